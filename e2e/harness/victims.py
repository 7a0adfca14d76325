"""A victim with a value of each kind, and the ways in which one of them is damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message
from kafscale.access.scram_credentials import ScramMechanism
from kafscale.log.heads import HEAD_FEATURES
from kafscale.log.manifests import MANIFEST_FEATURES
from kafscale.storage.access_keys import AccessKeys
from kafscale.storage.keys import Keyspace, SlotId, TopicId
from kafscale.storage.schema import SCHEMA
from kafscale.storage.slots import slot_of
from kafscale.store.v1 import store_pb2 as pb
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    alter_user_scram_credentials,
    describe_user_scram_credentials,
    offset_commit,
    offset_fetch,
)

from e2e.harness.damage import Damage, Row, Scene
from e2e.harness.requests import ask, batch, create, init_pid, send
from e2e.harness.services import until

GARBAGE = b"\xff\xff\xff damaged"
FILL = 30
"""Segments: a checkpoint is made at 25, so some are in a manifest and some in the head's tail."""
COMMITTED = 7
JOB = "lag"
NONE = ErrorCode.NONE
SHA_256 = ScramMechanism.SCRAM_SHA_256


@dataclass(frozen=True, slots=True)
class Victim:
    """A topic of one partition, and a group."""

    scene: Scene
    topic: str

    @property
    def group(self) -> str:
        return f"group-of-{self.topic}"

    def topic_id(self) -> TopicId:
        return TopicId(self.scene.cluster.inside().topic_id(self.topic))

    def fill(self, count: int = FILL) -> None:
        with self.scene.raw() as raw:
            assert create(raw, self.topic) == NONE
        until("the topic is there", lambda: self.sends() == NONE)
        with self.scene.raw() as raw:  # a producer with an id, which a snapshot remembers
            producer = init_pid(raw)
            for number in range(count - 1):
                records = batch(producer_id=producer, producer_epoch=0, base_sequence=number)
                assert send(raw, records, topic=self.topic) == NONE

    def sends(self) -> int:
        return self.scene.sends(self.topic)

    def reads(self) -> int:
        return self.scene.reads(self.topic)

    def commits(self, offset: int = COMMITTED) -> int:
        partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = offset_commit.OffsetCommitRequest(
            group_id=self.group,
            topics=[offset_commit.OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )
        with self.scene.raw() as raw:
            answer = ask(raw, offset_commit, 8, request)
        return int(answer.topics[0].partitions[0].error_code)

    def offset(self) -> tuple[int, int]:
        """Error and offset."""
        topics = [offset_fetch.OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0])]
        with self.scene.raw() as raw:
            request = offset_fetch.OffsetFetchRequest(group_id=self.group, topics=topics)
            answer = ask(raw, offset_fetch, 7, request)
        found = answer.topics[0].partitions[0]
        return answer.error_code or found.error_code, found.committed_offset

    def enrolls(self) -> int:
        """Stores a password for the user of the topic's name."""
        credential = alter_user_scram_credentials.AlterUserScramCredentialsRequestCredentialUpsertion(
            name=self.topic, mechanism=SHA_256, iterations=4_096, salt=b"salt", salted_password=b"salted"
        )
        request = alter_user_scram_credentials.AlterUserScramCredentialsRequest(upsertions=[credential])
        with self.scene.raw() as raw:
            (result,) = ask(raw, alter_user_scram_credentials, 0, request).results
        return int(result.error_code)

    def is_enrolled(self) -> int:
        """The error of a description of that user."""
        name = describe_user_scram_credentials.DescribeUserScramCredentialsRequestName(name=self.topic)
        request = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=[name])
        with self.scene.raw() as raw:
            (result,) = ask(raw, describe_user_scram_credentials, 0, request).results
        return int(result.error_code)

    def objects(self, *, tree: str = "", suffix: str = "") -> list[str]:
        prefix = f"{self.scene.keys.namespace}/{tree or self.topic}/"
        return [key for key in self.scene.objects(prefix) if key.endswith(suffix)]


def own_slot(victim: Victim) -> SlotId:
    return slot_of(victim.group)


def first(victim: Victim, prefix: bytes) -> bytes:
    return victim.scene.find(prefix)[0].key


KEYS: dict[str, tuple[type[Message], Callable[[Victim, Keyspace], bytes]]] = {
    "topic": (pb.TopicConfig, lambda victim, keys: keys.topic(victim.topic)),
    "head": (pb.Head, lambda victim, keys: keys.head(victim.topic_id(), 0)),
    "meta": (pb.Meta, lambda victim, keys: keys.meta(victim.topic_id(), 0)),
    "owner": (pb.Owner, lambda victim, keys: keys.owner(victim.topic_id(), 0)),
    "epoch floor": (pb.EpochFloor, lambda victim, keys: keys.epoch_floor(f"next-{victim.topic}")),
    "live record": (pb.Live, lambda victim, keys: first(victim, keys.live_prefix("fetch"))),
    "node id": (pb.NodeLease, lambda victim, keys: first(victim, keys.nodes_prefix("fetch"))),
    "cluster": (pb.Cluster, lambda _, keys: keys.cluster()),
    "producer ids": (pb.ProducerIds, lambda _, keys: keys.pid_next()),
    "slot": (pb.Owner, lambda victim, keys: keys.slot_claim(own_slot(victim))),
    "group": (pb.GroupState, lambda victim, keys: keys.group(own_slot(victim), victim.group)),
    "offset": (
        pb.CommittedOffset,
        lambda victim, keys: keys.committed(own_slot(victim), victim.group, victim.topic_id(), 0),
    ),
    "user": (pb.ScramCredential, lambda victim, keys: AccessKeys(keys).user(victim.topic, SHA_256)),
    "job run": (pb.JobRun, lambda _, keys: keys.job_run(JOB)),
}


@dataclass(slots=True)
class Damaged:
    """What was done to one key of etcd; `heal` undoes it."""

    scene: Scene
    key: bytes
    before: bytes
    lease: int
    after: bytes | None

    def stands(self) -> bool:
        found = self.scene.get(self.key)
        return (None if found is None else found.value) == self.after

    def heal(self) -> None:
        self.scene.put(self.key, self.before, self.lease)


def damage_key(victim: Victim, row: Row, way: Damage) -> Damaged:
    scene = victim.scene
    kind, of = KEYS[row.name]
    key = of(victim, scene.keys)
    found = scene.get(key)
    value = b"" if found is None else found.value
    lease = 0 if found is None else found.lease
    message = kind.FromString(value)
    message.schema = (SCHEMA + HEAD_FEATURES if row.name == "head" else SCHEMA) + 1  # type: ignore[attr-defined]
    after = {Damage.MISSING: None, Damage.UNREADABLE: GARBAGE, Damage.NEWER: message.SerializeToString()}[way]
    if after is None:
        scene.delete(key)
    else:
        scene.put(key, after, lease)
    return Damaged(scene, key, value, lease, after)


def damage_objects(victim: Victim, row: Row, way: Damage, topic_id: str) -> None:
    places: dict[str, Callable[[], list[str]]] = {
        "segment": lambda: victim.objects(suffix=".kfs"),
        "index": lambda: victim.objects(suffix=".index"),
        "manifest": lambda: victim.objects(tree=f"@kafscale/manifest/{topic_id}", suffix=".mf"),
        "snapshot": lambda: victim.objects(tree=f"@kafscale/producers/{topic_id}", suffix=".ps"),
        "lag history": lambda: victim.objects(tree="@kafscale/lag", suffix=".parquet"),
    }
    of = places[row.name]
    until(f"there is a {row.name} to damage", lambda: bool(of()))  # upkeep writes the history of lag
    for name in of():
        if way is Damage.MISSING:
            victim.scene.delete_object(name)
        elif way is Damage.UNREADABLE:
            victim.scene.write_object(name, GARBAGE)
        else:
            message = pb.Manifest() if row.name == "manifest" else pb.ProducerSnapshot()
            message.ParseFromString(victim.scene.read_object(name))
            message.schema = SCHEMA + MANIFEST_FEATURES + 1  # a snapshot has no more features
            victim.scene.write_object(name, message.SerializeToString())
