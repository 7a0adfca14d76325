"""No input of one connection delays another client beyond a bound, or exceeds the memory limit of a process.

Each attack runs together with a normal client of the same front door. The client's latency is compared with its
latency without the attack, plus seconds for a busy machine and disk. The processes stay within the memory limits of
the Kubernetes manifests. Afterwards the same processes run, without errors.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.harness.attacks import ATTACKS
from e2e.harness.bystander import Bystander
from e2e.harness.cluster import Cluster
from e2e.harness.disk import DiskWatch
from e2e.harness.raw import Raw
from e2e.harness.requests import TOPIC, ask_list_offsets, batch, create, send
from e2e.harness.services import dying_with_parent, until

log = logging.getLogger(__name__)

MEMORY_MIB = {"frontdoor": 1536, "produce": 1536, "fetch": 1536, "coordinator": 768, "admin": 768}
"""The limits of k8s/base, whose settings for memory are those of the cluster below."""
SETTINGS = {"KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
SLOWER_S = 2.0
"""How much longer one request in a hundred may take during an attack."""
LONGEST_S = 5.0
"""How much longer any request may take."""
QUIET_S = 4.0
ATTACK_TIMEOUT_S = 150.0
WANTED: Mapping[str, Mapping[str, int]] = {
    "honest and slow": {"answered": 6},
    "bombs for a topic": {"taken": 1},
    "bombs for a compacted topic": {"taken": 1},
    "slow probes": {"probes": 3},
}
"""What each attacker must see at least."""


@dataclass(slots=True)
class Scene:
    """A cluster that serves, whatever the attacks before have done to theirs."""

    folder: Path
    cluster: Cluster | None = None
    quiet: Mapping[str, Sequence[float]] | None = None
    starts: int = 0
    harmed: bool = False

    def ready(self) -> Cluster:
        """The cluster of the attack before, unless that has harmed it."""
        if self.cluster is None or self.harmed:
            self.stop()
            self.starts += 1
            self.cluster = Cluster(data_dir=self.folder / f"cluster-{self.starts}", env=SETTINGS)
            self.cluster.start()
            with Raw.to(self.cluster.bootstrap) as raw:
                until("the topic is there", lambda: create(raw, TOPIC, partitions=2) in (0, 36))
                until("it takes records", lambda: send(raw, batch()) == 0)
                until("all of it", lambda: send(raw, batch(), part=1) == 0)
                until("fetch has its views", lambda: ask_list_offsets(raw, -1)[0] == 0)
        return self.cluster

    def alone(self, cluster: Cluster) -> Mapping[str, Sequence[float]]:
        """The bystander's latencies without an attack; measured once."""
        if self.quiet is None:
            bystander = Bystander(cluster.bootstrap)
            bystander.start()
            until("it has been watched", lambda: len(bystander.seconds["produce"]) >= QUIET_S / 0.2)
            bystander.stop()
            assert bystander.errors == []
            self.quiet = bystander.seconds
        return self.quiet

    def stop(self) -> None:
        if self.cluster is not None:
            self.cluster.kill()
            self.cluster = None


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("bystander"))
    try:
        yield scene
    finally:
        scene.stop()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DiskWatch]:
    watch = DiskWatch(tmp_path / "disk")
    try:
        yield watch
    finally:
        watch.stop()


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.timeout(400)
def test_a_bystander_goes_on_and_memory_is_bounded_beside(name: str, scene: Scene, disk: DiskWatch) -> None:
    cluster = scene.ready()
    quiet = scene.alone(cluster)
    scene.harmed = True
    pids = {role: cluster.pids(role)[0] for role in MEMORY_MIB}
    bystander = Bystander(cluster.bootstrap)
    with attacker(name, cluster) as process:
        bystander.start()
        for pid in pids.values():
            forget_peak(pid)
        outcome = told(process)
    bystander.another_round()
    bystander.stop()
    peaks = {role: peak_mib(pid) for role, pid in pids.items()}
    log.info("%s: %s, peaks in MiB %s", name, described(bystander.seconds), peaks)
    assert bystander.errors == []
    assert {role: cluster.pids(role)[0] for role in MEMORY_MIB} == pids, "a process ended"
    assert too_slow(quiet, bystander.seconds, disk.still_s) == {}
    assert {role: mib for role, mib in peaks.items() if mib > MEMORY_MIB[role]} == {}
    for what, count in WANTED.get(name, {}).items():
        assert outcome[what] >= count
    scene.harmed = False


@contextmanager
def attacker(name: str, cluster: Cluster) -> Iterator[subprocess.Popen[str]]:
    """Has everything that it needs, and waits."""
    (door,) = cluster.inside().instances("frontdoor")
    process = subprocess.Popen(
        [
            *dying_with_parent(),
            sys.executable,
            "-m",
            "e2e.harness.attacks",
            name,
            cluster.bootstrap,
            door.http_address,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", "the attack could not be prepared"
        yield process
    finally:
        process.kill()
        process.communicate()


def told(process: subprocess.Popen[str]) -> dict[str, int]:
    """Lets it begin; what it saw when it is over."""
    said, _ = process.communicate("go\n", ATTACK_TIMEOUT_S)
    outcome: dict[str, int] = json.loads(said)
    return outcome


def percentile(times: Sequence[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def described(beside: Mapping[str, Sequence[float]]) -> dict[str, str]:
    return {
        kind: f"{percentile(times, 0.99):.2f} s, longest {max(times):.2f}" for kind, times in beside.items()
    }


def too_slow(
    quiet: Mapping[str, Sequence[float]], beside: Mapping[str, Sequence[float]], still_s: float
) -> dict[str, str]:
    """The 99th percentile and the maximum of each kind of request that exceeds its bounds."""
    found: dict[str, str] = {}
    for kind, times in beside.items():
        p99, longest = percentile(times, 0.99), max(times)
        p99_max = percentile(quiet[kind], 0.99) + SLOWER_S + still_s
        longest_max = max(quiet[kind]) + LONGEST_S + still_s
        if p99 > p99_max or longest > longest_max:
            found[kind] = f"{p99:.2f} s of {p99_max:.2f}, longest {longest:.2f} of {longest_max:.2f}"
    return found


def forget_peak(pid: int) -> None:
    """Resets the peak of its memory, so that it is the peak of this attack (proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def peak_mib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) >> 10
    raise AssertionError(f"no peak of process {pid}")
