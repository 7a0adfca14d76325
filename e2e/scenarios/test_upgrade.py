"""An upgrade from an older version and the way back, instance by instance, as docs/upgrade.md says.

Law: with two instances of each service, no client notices (`harness/unnoticed.py`). No instance of either version finds
a value that it cannot read or logs an error, and the jobs of upkeep run in both. The logs have bundles and segments. In
the end the fsck of both versions finds every record.

The one exception is a partition that had a transaction, the first of which follows the upgrade. The older version
refuses this partition, and says why; it serves all others, and the records are there for the newer version.

In both directions the services are replaced in the same order. So each pair of services runs in both mixtures.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from kafscale.testkit.seaweed import require_weed

from e2e.harness.cluster import KAFSCALE
from e2e.harness.deployment import ROLES
from e2e.harness.fleet import NODES, Fleet
from e2e.harness.inside import metric
from e2e.harness.load import read_everything
from e2e.harness.services import until
from e2e.harness.transactional import COMMITTED, read
from e2e.harness.unnoticed import SETTINGS, TOPICS, nobody_notices
from e2e.harness.versions import checked_out, modules_of, version_env

FROM: Final = os.environ.get("FROM", "78fa60039b37d9d24a2786893d02cc5f6524856b")
"""A partition could still seal segments by time: the setting KAFSCALE_BUNDLES, and a config of topics."""
OLD_CONFIG: Final = "kafscale.bundles=false"
PARTITIONS: Final = 6
SERVICES: Final = (*ROLES, "upkeep")
JOBS: Final = ("retention", "orphans", "compaction", "lag")
"""Of upkeep, in both versions."""
UPKEEP: Final = {
    "KAFSCALE_RETENTION_EVERY_MS": "5000",
    "KAFSCALE_RETENTION_GRACE_MS": "5000",
    "KAFSCALE_ORPHANS_EVERY_MS": "5000",
    "KAFSCALE_COMPACTION_EVERY_MS": "5000",
    "KAFSCALE_LAG_EVERY_MS": "5000",
}
NEW: Final[Mapping[str, str]] = {}
QUIET: Final = "quiet"
"""A topic with OLD_CONFIG, which gets a few records from each version: the older one writes segments, the newer one
ignores the config."""
PAID: Final = "paid"
"""A topic whose partition TOUCHED has transactions after the upgrade. Nobody needs it during the way back."""
TOUCHED: Final = 0
REFUSAL: Final = re.compile(r"this head has schema \d+, this version of KafScale reads")
REFUSED_S: Final = 10.0
WRITE_S: Final = 60.0
COMMAND_S: Final = 600.0
"""fsck reads some ten thousand segments."""

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def old() -> Mapping[str, str]:
    """With it, a process runs the older version."""
    tree = checked_out(FROM)
    env = version_env(tree)
    modules = modules_of(env, *SERVICES)
    assert [module for module in modules if not module.is_relative_to(tree)] == []
    assert [module for module in modules_of({}, *SERVICES) if module.is_relative_to(tree)] == []
    return env


@dataclass(slots=True)
class Operator:
    """Does what the page says."""

    fleet: Fleet
    go_on: Callable[[], None]
    _begun: float = field(default_factory=time.monotonic)

    def replace(self, version: Mapping[str, str], *settings: Mapping[str, str], roles: Sequence[str]) -> None:
        """One instance at a time, while the clients go on."""
        self.fleet.env = env_of(version, *settings)
        for role in roles:
            for node in NODES:
                self.fleet.restart(role, node)
                self.go_on()
            if role == "upkeep":
                wait_for_jobs(self.fleet)

    def note(self, what: str) -> None:
        log.info("%3.0f s: %s", time.monotonic() - self._begun, what)


def env_of(version: Mapping[str, str], *settings: Mapping[str, str]) -> dict[str, str]:
    merged = {**SETTINGS, **UPKEEP, **version}
    for each in settings:
        merged.update(each)
    return merged


@pytest.fixture
def fleet(old: Mapping[str, str], tmp_path: Path) -> Iterator[Fleet]:
    """Of the older version."""
    require_weed()
    fleet = Fleet(tmp_path, PARTITIONS, env_of(old), SERVICES)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.kill()


def kafscale(fleet: Fleet, version: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """The command of that version."""
    return subprocess.run(
        [*KAFSCALE, *words],
        env={**os.environ, **fleet.outside.env, **version},
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )


def slices(fleet: Fleet) -> int:
    return sum(map(fleet.inside().slices, (*TOPICS, QUIET)))


def is_in_bundles(fleet: Fleet) -> bool:
    """Every partition of the topics has records in one."""
    inside = fleet.inside()
    heads = [head for topic in TOPICS for head in inside.heads(topic).values()]
    return all(any(seg.is_slice for seg in head.tail) for head in heads)


def write_quiet(fleet: Fleet, value: bytes) -> None:
    """One record more in each partition."""
    producer = Producer({"bootstrap.servers": fleet.bootstrap, "acks": "all", "log_level": 0})
    for partition in range(PARTITIONS):
        producer.produce(QUIET, value, partition=partition)
    assert producer.flush(WRITE_S) == 0


def wait_for_jobs(fleet: Fleet) -> None:
    """Until the active instance has done each job, none of which failed."""
    http = fleet.services["upkeep", NODES[0]].http

    def done() -> bool:
        assert not any(metric(http, "kafscale_upkeep_failures_total").values())
        runs = metric(http, "kafscale_upkeep_runs_total")
        return all(runs.get(f'task="{job}"}}', 0) for job in JOBS)

    until("upkeep has done each job", done)


def first_transactions(fleet: Fleet) -> None:
    """One is aborted, one is committed, and a consumer of committed records reads the second."""
    config = {"bootstrap.servers": fleet.bootstrap, "transactional.id": "payments", "log_level": 0}
    producer = Producer(config)
    producer.init_transactions(WRITE_S)
    for end in (producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        producer.produce(PAID, end.__name__.encode(), partition=TOUCHED)
        assert producer.flush(WRITE_S) == 0
        end(WRITE_S)

    def is_read() -> bool:
        return [value for _, value in read(fleet.bootstrap, PAID, COMMITTED, TOUCHED)] == [
            "commit_transaction"
        ]

    until("the committed record is read", is_read)


def refused_partitions(fleet: Fleet) -> set[int]:
    """The partitions of the topic to which no record can be written."""
    failed = set[int]()
    producer = Producer(
        {
            "bootstrap.servers": fleet.bootstrap,
            "acks": "all",
            "message.timeout.ms": int(1000 * REFUSED_S),
            "log_level": 0,
        }
    )
    for partition in range(PARTITIONS):

        def delivered(error: object, _message: object, partition: int = partition) -> None:
            if error is not None:
                failed.add(partition)

        producer.produce(PAID, b"later", partition=partition, on_delivery=delivered)
    assert producer.flush(WRITE_S) == 0
    return failed


def complaints(folder: Path, touched: str) -> list[str]:
    """Lines of the services' logs that no upgrade may cause: errors, values that cannot be read, and tracebacks.
    The older version refuses the partition `touched` and names it, or its head, by topic id or by topic."""
    found, refusals = [], 0
    for path in sorted(folder.glob("*-[0-9].log")):
        for line in path.read_text(errors="replace").splitlines():
            known = line.startswith("{") and json.loads(line)["level"] in ("info", "warning")
            if REFUSAL.search(line) and (touched in line or PAID in line):
                refusals += 1
            elif not known or any(word in line for word in ("unreadable", "damaged", "schema")):
                found.append(f"{path.name}: {line}")
    assert refusals, "the older version does not say why it refuses the partition"
    return found


def test_an_upgrade_and_the_way_back_go_unnoticed(
    fleet: Fleet, old: Mapping[str, str], tmp_path: Path
) -> None:
    with nobody_notices(fleet, tmp_path) as go_on:
        operator = Operator(fleet, go_on)
        for topic, config in ((QUIET, ("--config", OLD_CONFIG)), (PAID, ())):
            words = ("topics", "create", topic, "--partitions", str(PARTITIONS), *config)
            created = kafscale(fleet, old, *words, "-b", fleet.bootstrap)
            assert created.returncode == 0, (created.stdout, created.stderr)
        until("every partition has records in a bundle", lambda: is_in_bundles(fleet))
        for number, version in enumerate((old, NEW, old)):
            if number:
                operator.replace(version, roles=SERVICES)
                operator.note(f"replaced; {slices(fleet)} slices")
            write_quiet(fleet, b"%d" % number)
            assert fleet.inside().slices(QUIET) == (PARTITIONS if number else 0)
            if version is NEW:
                first_transactions(fleet)
                operator.go_on()
        assert refused_partitions(fleet) == {TOUCHED}
        quiet = [(offset, b"%d" % offset) for offset in range(3)]
        assert read_everything(fleet.bootstrap, QUIET, PARTITIONS) == dict.fromkeys(range(PARTITIONS), quiet)
    assert [service.stop() for service in fleet.services.values()] == [0] * len(fleet.services)
    touched = fleet.inside().topic_id(PAID).hex()
    assert complaints(tmp_path / "log", touched) == []
    for version in (old, NEW):
        checked = kafscale(fleet, version, "fsck")
        log.info("%s", checked.stdout + checked.stderr)
        problems = [line for line in checked.stdout.splitlines() if REFUSAL.search(line)]
        assert (checked.returncode, len(problems)) == ((0, 0) if version is NEW else (1, 1)), checked
