"""A client that commits offsets endlessly cannot fill etcd, and the procedure for a full etcd works.

On a real cluster with 64 MiB for etcd. The attack is open to any client: offsets of invented groups, with as much
metadata as Kafka allows.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kafscale.runtime.etcd_binary import HISTORY, QUOTA_BYTES, SNAPSHOT_ENTRIES
from kafscale.storage.etcd.client import EtcdClient, EtcdStatus, EtcdUnknown, Put, Txn
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_groups, offset_commit

from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.manifests import of_kind, rendered
from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import TOPIC, ask, batch, create, send
from e2e.harness.services import until

QUOTA = 64 << 20
WIDE, PARTITIONS = "wide", 500
METADATA = "m" * 4096
REFUSED = ErrorCode.COORDINATOR_NOT_AVAILABLE
ATTACKS = 40
"""Commits of 2 MB each, which take 3 MB in etcd. Without the reserved share they would take nearly twice its quota."""
JUNK = b"/of-another-program/"
JUNK_BYTES = 1 << 20
BEYOND_NEW = int(0.62 * QUOTA)
"""Here services create nothing new, but existing groups may commit."""
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path / "data", env={"KAFSCALE_ETCD_QUOTA_BYTES": str(QUOTA)})
    cluster.start()
    with Raw.to(cluster.bootstrap) as raw:
        assert [create(raw, WIDE, partitions=PARTITIONS), create(raw, TOPIC)] == [0, 0]
        until("the topic takes records", lambda: send(raw, batch()) == 0)
    yield cluster
    cluster.kill()


def commit(cluster: Cluster, group: str, *, partitions: int = 1, metadata: str = "") -> set[int]:
    """The errors of its partitions."""
    wanted = [
        offset_commit.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=1, committed_metadata=metadata
        )
        for index in range(partitions)
    ]
    request = offset_commit.OffsetCommitRequest(
        group_id=group, topics=[offset_commit.OffsetCommitRequestTopic(name=WIDE, partitions=wanted)]
    )
    with Raw.to(cluster.bootstrap) as raw:
        answer = ask(raw, offset_commit, 7, request)
    return {partition.error_code for topic in answer.topics for partition in topic.partitions}


def attack(cluster: Cluster) -> list[str]:
    """The groups whose offsets were taken."""
    groups = [f"fill-{number}" for number in range(ATTACKS)]
    return [each for each in groups if commit(cluster, each, partitions=PARTITIONS, metadata=METADATA) == {0}]


def of_etcd(cluster: Cluster) -> EtcdStatus:
    return cluster.inside()._ask(lambda client: client.status())


def produced(cluster: Cluster) -> bool:
    """Whether a record is acknowledged now."""
    try:
        with Raw.to(cluster.bootstrap) as raw:
            return send(raw, batch()) == 0
    except (Closed, OSError):
        return False


def produce_dies_and_comes_back(cluster: Cluster) -> None:
    dead = cluster.signal("produce", signal.SIGKILL)
    until("another produce process runs", lambda: cluster.pids("produce") not in ([], [dead]))
    until("it takes records", lambda: produced(cluster))


def kafscale(cluster: Cluster, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*KAFSCALE, command, "--data-dir", str(cluster.data_dir)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def created(cluster: Cluster, name: str) -> int:
    with Raw.to(cluster.bootstrap) as raw:
        return create(raw, name)


def deleted(cluster: Cluster, groups: list[str]) -> set[int]:
    request = delete_groups.DeleteGroupsRequest(groups_names=groups)
    with Raw.to(cluster.bootstrap) as raw:
        return {result.error_code for result in ask(raw, delete_groups, 2, request).results}


def test_offsets_of_invented_groups_leave_etcd_to_heads_and_leases(cluster: Cluster) -> None:
    assert commit(cluster, "honest") == {0}
    taken = attack(cluster)
    assert 0 < len(taken) < ATTACKS / 2
    assert of_etcd(cluster).db_bytes < 0.8 * QUOTA
    assert of_etcd(cluster).errors == ()
    assert commit(cluster, "more", partitions=PARTITIONS, metadata=METADATA) == {REFUSED}
    assert commit(cluster, "honest") == {0}, "a group that was there commits on"
    produce_dies_and_comes_back(cluster)
    # The heads continue to grow into their reserved share; nothing new is created.
    until("no topic is made", lambda: created_beyond_the_share(cluster) == ErrorCode.POLICY_VIOLATION)
    until("no group is made", lambda: committed_beyond_the_share(cluster) == {REFUSED})
    assert produced(cluster)
    unfill(cluster)
    assert deleted(cluster, taken) == {0}
    done = kafscale(cluster, "etcd-repair")
    assert done.returncode == 0, done.stderr
    until("a topic is made", lambda: created(cluster, "new") in (0, ErrorCode.TOPIC_ALREADY_EXISTS))
    until("a group is made", lambda: commit(cluster, f"stranger-{os.urandom(4).hex()}") == {0})


def created_beyond_the_share(cluster: Cluster) -> int:
    fill(cluster, upto=BEYOND_NEW)
    return created(cluster, f"no-{os.urandom(4).hex()}")


def committed_beyond_the_share(cluster: Cluster) -> set[int]:
    fill(cluster, upto=BEYOND_NEW)
    return commit(cluster, f"no-{os.urandom(4).hex()}")


def fill(cluster: Cluster, *, upto: int) -> None:
    """Fills etcd up to this use, by writes that the limit does not count, like those of heads.

    etcd compacts its history every two minutes, and its use falls by what the history held: call it again.
    """

    async def write(client: EtcdClient) -> None:
        while (await client.status()).db_bytes_in_use < upto:
            put = Put(JUNK + os.urandom(8).hex().encode(), os.urandom(JUNK_BYTES))
            await client.txn(Txn(success=(Txn(success=(put,)),)))

    cluster.inside()._ask(write)


def unfill(cluster: Cluster) -> None:
    cluster.inside()._ask(lambda client: client.delete(JUNK, range_end=JUNK[:-1] + b"0"))


def test_an_etcd_that_is_full_takes_writes_again_after_the_one_command(cluster: Cluster) -> None:
    assert commit(cluster, "old", partitions=PARTITIONS, metadata=METADATA) == {0}
    fill(cluster, upto=int(1.4 * QUOTA))
    with pytest.raises(EtcdUnknown, match="space exceeded"):
        cluster.inside()._ask(lambda client: client.lease_grant(10))
    assert "NOSPACE" in "".join(of_etcd(cluster).errors)
    cluster.signal("produce", signal.SIGKILL)
    log = cluster.data_dir / "run" / "log" / "produce-1.log"
    until("the next one says what it waits for", lambda: "kafscale etcd-repair" in log.read_text())
    full = kafscale(cluster, "etcd-repair")
    assert (full.returncode, "etcd is still full" in full.stderr) == (1, True), full.stderr
    assert f"{PARTITIONS} offsets" in full.stderr
    assert deleted(cluster, ["old"]) == {0}, "as the sentence says, it works while etcd is full"
    unfill(cluster)
    done = kafscale(cluster, "etcd-repair")
    assert done.returncode == 0, done.stderr
    assert "alarms cleared: 1" in done.stdout
    until("records are taken", lambda: produced(cluster))
    until("a topic is made", lambda: created(cluster, "new") in (0, ErrorCode.TOPIC_ALREADY_EXISTS))
    # Each coordinator learns etcd's size by itself, so the group's may learn it later than admin.
    until("a group is made", lambda: commit(cluster, "stranger") == {0})


def flags_of(words: list[str]) -> dict[str, str]:
    return dict(word.removeprefix("--").split("=", 1) for word in words if word.startswith("--"))


def test_etcd_is_given_as_much_and_keeps_as_little_wherever_it_runs() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    [member] = [
        each for each in of_kind(rendered("dev"), "StatefulSet") if each["metadata"]["name"] == "etcd"
    ]
    [settings] = [
        each for each in of_kind(rendered("dev"), "ConfigMap") if "KAFSCALE_ETCD_ENDPOINTS" in each["data"]
    ]
    [container] = member["spec"]["template"]["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    wanted = {
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": HISTORY,
        "quota-backend-bytes": str(QUOTA_BYTES),
        "snapshot-count": str(SNAPSHOT_ENTRIES),
    }
    assert wanted.items() <= flags_of(compose["services"]["etcd"]["command"]).items()
    for flag, value in wanted.items():
        assert variables[f"ETCD_{flag.upper().replace('-', '_')}"] == value
    assert settings["data"]["KAFSCALE_ETCD_QUOTA_BYTES"] == str(QUOTA_BYTES)
    for service in ("coordinator", "admin"):
        assert compose["services"][service]["environment"]["KAFSCALE_ETCD_QUOTA_BYTES"] == str(QUOTA_BYTES)
