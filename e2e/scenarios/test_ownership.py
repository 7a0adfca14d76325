"""The owners of partitions change under load: by kill -9, by pauses, by instances that come and go.

Law: nothing acknowledged is lost, no etag of a committed object changes, every producer goes on on every partition,
and no error reaches any of them. An instance that was paused for longer than its lease steps down and says so. In the
end each partition is owned by the instance that rendezvous hashing prefers, whichever instances joined or left.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.inside import metric, shares
from e2e.harness.law import goes_on, nap, under_load
from e2e.harness.services import STOP_TIMEOUT_S, until

PARTITIONS = 12
SETTLED_S = 60.0
LONG_PAUSE_S = 12.0
CHAOS_PAUSE_S = 20.0
LEAVING_ROUNDS = 3
CHAOS_CYCLES = int(os.environ.get("CYCLES", "20"))

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(
        data_dir=tmp_path_factory.mktemp("owners"),
        scale={"produce": 2},
        env={"KAFSCALE_NUM_PARTITIONS": str(PARTITIONS)},
    )
    cluster.start()
    yield cluster
    cluster.kill()


def settles(cluster: Cluster, topic: str, nodes: list[int]) -> None:
    """Each partition is where it should be."""
    inside = cluster.inside()
    wanted = inside.preferred(topic, nodes)
    try:
        until("owners are those preferred", lambda: inside.owners(topic) == wanted, SETTLED_S)
    except Exception as trouble:
        raise AssertionError(f"owners {inside.owners(topic)}, preferred {wanted}") from trouble


@contextmanager
def paused(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def step_downs(http: str) -> float:
    """Writers of an instance that ended otherwise than by giving their partition away."""
    counts = metric(http, "kafscale_produce_stepdowns_total")
    return sum(count for labels, count in counts.items() if "released" not in labels)


def pid_and_http(cluster: Cluster, node: int) -> tuple[int, str]:
    """The process of a node id, and where its metrics are. `kafscale up` gives ids in the order of starts."""
    http = next(i.http_address for i in cluster.inside().instances("produce") if i.node_id == node)
    return process_listening(http), http


def process_listening(address: str) -> int:
    """The process that listens on a loopback port, by /proc."""
    port = int(address.rsplit(":", 1)[1])
    inodes = {
        line.split()[9]
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].split(":")[1], 16) == port
    }
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and _holds_socket(folder, inodes):
            return int(folder.name)
    raise AssertionError(f"nobody listens at {address}")


def _holds_socket(folder: Path, inodes: set[str]) -> bool:
    try:
        descriptors = list((folder / "fd").iterdir())
    except OSError:
        return False  # it ended
    return any(_target(descriptor) == f"socket:[{inode}]" for inode in inodes for descriptor in descriptors)


def _target(descriptor: Path) -> str:
    """What a descriptor refers to; nothing if it was closed meanwhile, as those of a busy process are."""
    try:
        return os.readlink(descriptor)
    except OSError:
        return ""


def test_a_pause_beyond_the_lease_ends_in_a_step_down(cluster: Cluster) -> None:
    pause_and_check(cluster, "long-pause", node=2, pause_s=LONG_PAUSE_S)


def pause_and_check(cluster: Cluster, topic: str, node: int, pause_s: float) -> None:
    with under_load(cluster, topic, PARTITIONS) as load:
        settles(cluster, topic, [1, 2])
        pid, http = pid_and_http(cluster, node)
        before = step_downs(http)
        with paused(pid):
            nap(pause_s)
            goes_on(load)
            assert set(cluster.inside().owners(topic).values()) == {3 - node}
        until("the paused one says that it stepped down", lambda: step_downs(http) > before)
        settles(cluster, topic, [1, 2])


def kill_and_check(cluster: Cluster, topic: str, node: int) -> None:
    with under_load(cluster, topic, PARTITIONS) as load:
        settles(cluster, topic, [1, 2])
        pid, _ = pid_and_http(cluster, node)
        os.kill(pid, signal.SIGKILL)
        goes_on(load)
        settles(cluster, topic, [1, 2])


def test_a_new_instance_gets_its_share_and_gives_it_away_when_told_to_stop(cluster: Cluster) -> None:
    topic = "joined"
    with under_load(cluster, topic, PARTITIONS) as load:
        settles(cluster, topic, [1, 2])
        third = cluster.add("produce")
        settles(cluster, topic, [1, 2, 3])
        assert shares(cluster.inside().owners(topic)).get(3, 0) > 0
        goes_on(load)
        assert third.stop() == 0
        assert 3 not in shares(cluster.inside().owners(topic))
        goes_on(load)
        settles(cluster, topic, [1, 2])


def test_two_instances_that_leave_at_once_leave_no_request_without_an_answer(cluster: Cluster) -> None:
    """Their partitions go to instances of which one leaves as well, so front doors learn late where to send."""
    topic = "left-at-once"
    with under_load(cluster, topic, PARTITIONS) as load:
        for _ in range(LEAVING_ROUNDS):
            leaving = [cluster.add("produce"), cluster.add("produce")]
            settles(cluster, topic, [1, 2, 3, 4])
            for each in leaving:
                each.process.send_signal(signal.SIGTERM)
            assert [each.process.wait(STOP_TIMEOUT_S) for each in leaving] == [0, 0]
            goes_on(load)
        settles(cluster, topic, [1, 2])
    logs = cluster.data_dir.joinpath("run", "log").glob("frontdoor-*.log")
    lines = [line for log in logs for line in log.read_text().splitlines()]
    assert [line for line in lines if "the service ended the stream" in line] == []
    assert any("the service leaves" in line for line in lines)


def test_a_supervised_instance_told_to_stop_gives_its_share_away(cluster: Cluster) -> None:
    topic = "restarted"
    with under_load(cluster, topic, PARTITIONS) as load:
        settles(cluster, topic, [1, 2])
        pid, _ = pid_and_http(cluster, 2)
        os.kill(pid, signal.SIGTERM)
        until("it is gone", lambda: not Path(f"/proc/{pid}/fd/0").exists())
        goes_on(load)
        settles(cluster, topic, [1, 2])  # the supervisor started it again


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_owners_die_and_pause_again_and_again(cluster: Cluster) -> None:
    for cycle in range(CHAOS_CYCLES):
        node = 1 + cycle % 2
        pause_and_check(cluster, f"pauses-{cycle}", node, CHAOS_PAUSE_S)
        kill_and_check(cluster, f"deaths-{cycle}", node)
    done = cluster.fsck()
    assert done.returncode == 0, done.stdout + done.stderr
