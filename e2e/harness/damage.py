"""Stored values that are missing, damaged or newer: what each kind of damage does, as the table of the docs says it.

`ROWS` is the only list: `docs/protocol/damage.md` is compared with it (`checkers/test_damage_page.py`), and
`scenarios/test_damage.py` damages a value of each row in each way that the row speaks of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from kafscale.storage.etcd import EtcdClient, KeyValue
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectStore

from e2e.harness.cluster import Cluster
from e2e.harness.raw import Raw
from e2e.harness.requests import ask_fetch, batch, send

T = TypeVar("T")


class Damage(StrEnum):
    MISSING = "missing"
    UNREADABLE = "unreadable"
    NEWER = "newer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`name` is what tests call it. An effect of "" stands for a damage that the kind cannot have."""

    name: str
    what: str
    missing: str
    unreadable: str
    newer: str = "as unreadable"
    remedy: str

    def ways(self) -> Sequence[Damage]:
        return [way for way in Damage if getattr(self, way.value)]


ROWS: Sequence[Row] = (
    Row(
        name="topic",
        what="`t/{topic}`: a topic's record",
        missing="The topic is unknown. Its heads and objects stay, and nothing collects them.",
        unreadable="Produce, Fetch and Metadata by name answer KAFKA_STORAGE_ERROR, requests by topic id "
        "UNKNOWN_TOPIC_ID. The name is not free, no object is collected, no group's offset expires as of a "
        "deleted topic. OffsetFetch answers UNSTABLE_OFFSET_COMMIT.",
        remedy="Put the record back. Do not create the topic anew.",
    ),
    Row(
        name="head",
        what="`p/{topic id}/{partition}`: a head",
        missing="Produce answers KAFKA_STORAGE_ERROR: no head is made while `o/` or `m/` of the partition stands. "
        "Readers find an empty log.",
        unreadable="Produce and Fetch of the partition answer KAFKA_STORAGE_ERROR. Its owner steps down.",
        remedy="Put back the newest value that etcd still has (`etcdctl get --rev`): nobody has written since. "
        "Without it delete the topic, or live without the partition.",
    ),
    Row(
        name="meta",
        what="`m/{topic id}/{partition}`: a meta",
        missing="Produce answers KAFKA_STORAGE_ERROR from the next checkpoint or claim on, as the head says that "
        "something is listed before its tail.",
        unreadable="Fetch answers KAFKA_STORAGE_ERROR at once, Produce from the next checkpoint or claim on.",
        remedy="Put back the newest value that etcd still has.",
    ),
    Row(
        name="owner",
        what="`o/{topic id}/{partition}`: an owner record",
        missing="Requests go to the instance that hashing prefers. The head decides, as always.",
        unreadable="As missing. The next claim writes it anew.",
        remedy="Nothing.",
    ),
    Row(
        name="epoch floor",
        what="`e/{topic}`: the highest epoch of a name",
        missing="A new topic of the name begins at epoch 1. If objects of the old one are left, it cannot replace "
        "them and steps down.",
        unreadable="A topic of that name is not created: KAFKA_STORAGE_ERROR. No other name is harmed.",
        remedy="Put back a number that is high enough.",
    ),
    Row(
        name="live record",
        what="`live/{role}/{node id}/{boot id}`: a running instance",
        missing="Nobody asks the instance. What it owns is claimed by others.",
        unreadable="Nobody asks the instance. What it owns is answered NOT_LEADER_OR_FOLLOWER or "
        "COORDINATOR_NOT_AVAILABLE until its lease ends.",
        remedy="Restart that instance.",
    ),
    Row(
        name="node id",
        what="`node/{role}/{node id}`: who holds a node id",
        missing="Another instance may take the id; the first one to register again ends.",
        unreadable="The instance goes on. One that registers again under the id ends with a sentence.",
        remedy="Restart the instance. If the key has no lease, delete it first.",
    ),
    Row(
        name="cluster",
        what="`cluster`: the cluster's id",
        missing="The next admin that starts draws a new one.",
        unreadable="Clients are told no cluster id by admins that start from then on. It is not drawn anew.",
        remedy="Put the record back, and restart the admins.",
    ),
    Row(
        name="producer ids",
        what="`pid/next`: the next producer id",
        missing="Ids go on from the clock (milliseconds since 1970, times 1024), above all that were handed out. "
        "So they do when an older value is put back.",
        unreadable="InitProducerId answers COORDINATOR_NOT_AVAILABLE once a coordinator's block of ids is used up. "
        "Producers that have an id go on.",
        remedy="Nothing. An unreadable value may be deleted, if no newer version runs.",
    ),
    Row(
        name="slot",
        what="`cs/{slot}`: a slot of groups",
        missing="Claimed anew at once, and its groups are read again.",
        unreadable="Claimed anew at once, by a compare on the damaged value. Its groups are read again.",
        newer="Left alone: a newer coordinator has it. This version answers COORDINATOR_NOT_AVAILABLE for its groups.",
        remedy="Nothing; for a newer schema, finish the upgrade.",
    ),
    Row(
        name="group",
        what="`g/{slot}/{group}`: a group",
        missing="The group begins anew, with the next member that joins.",
        unreadable="Calls of the group answer COORDINATOR_NOT_AVAILABLE from the next claim of its slot on, and "
        "members wait. OffsetFetch is served. No other group is harmed.",
        remedy="Put the record back or delete it, then restart the coordinator that has the slot.",
    ),
    Row(
        name="offset",
        what="`c/{slot}/{group}/{topic id}/{partition}`: a committed offset",
        missing="The group has no offset there.",
        unreadable="OffsetFetch answers UNSTABLE_OFFSET_COMMIT for the partition, and consumers wait.",
        remedy="Commit an offset in its place (`kafka-consumer-groups --reset-offsets`).",
    ),
    Row(
        name="job run",
        what="`job/{name}`: when a job of upkeep last ended",
        missing="The job is due an interval from now.",
        unreadable="The job is due at once, and its end is written anew.",
        remedy="Nothing.",
    ),
    Row(
        name="segment",
        what="`segment-*.kfs`, or what compaction made of several",
        missing="Fetch answers KAFKA_STORAGE_ERROR for its offsets. A claim that must replay it answers Produce so.",
        unreadable="As missing: the etag is not the committed one.",
        newer="",
        remedy="Restore the object's version with the committed etag. See KafscaleSegmentsLost.",
    ),
    Row(
        name="index",
        what="`*.index`",
        missing="Nothing: a reader walks the batches.",
        unreadable="As missing.",
        newer="",
        remedy="Nothing.",
    ),
    Row(
        name="manifest",
        what="`*.mf`: a manifest",
        missing="Fetch answers KAFKA_STORAGE_ERROR for its offsets. Writes go on; its neighbours in the list are not "
        "merged. Retention and compaction pass the partition over.",
        unreadable="As missing.",
        remedy="Restore the object.",
    ),
    Row(
        name="snapshot",
        what="`*.ps`: a producer snapshot",
        missing="Produce answers KAFKA_STORAGE_ERROR from the next claim on. Records are read as before.",
        unreadable="As missing.",
        remedy="Restore the object.",
    ),
    Row(
        name="lag history",
        what="`@kafscale/lag/*.parquet`: a file of the lag history",
        missing="A gap in the history.",
        unreadable="As missing.",
        newer="",
        remedy="Nothing; delete it if the log's line disturbs.",
    ),
)

HEAD = "| stored value | missing | unreadable | of a newer schema | what to do |\n|---|---|---|---|---|\n"


def table() -> str:
    """As it stands in the docs."""
    rows = (
        f"| {row.what} | {row.missing} | {row.unreadable} | {row.newer or '(it has none)'} | {row.remedy} |\n"
        for row in ROWS
    )
    return HEAD + "".join(rows)


@dataclass(frozen=True, slots=True)
class Scene:
    """A running cluster, with a hand in its etcd and in its bucket."""

    cluster: Cluster
    keys: Keyspace = field(default_factory=Keyspace)

    def _ask(self, question: Callable[[EtcdClient], Awaitable[T]]) -> T:
        async def run() -> T:
            client = EtcdClient.connect([self.cluster.inside().etcd])
            try:
                return await question(client)
            finally:
                await client.close()

        return asyncio.run(run())

    def get(self, key: bytes) -> KeyValue | None:
        return self._ask(lambda etcd: etcd.get(key))

    def put(self, key: bytes, value: bytes, lease: int = 0) -> None:
        self._ask(lambda etcd: etcd.put(key, value, lease=lease))

    def delete(self, key: bytes) -> None:
        self._ask(lambda etcd: etcd.delete(key))

    def find(self, prefix: bytes) -> list[KeyValue]:
        async def ask(etcd: EtcdClient) -> list[KeyValue]:
            return list((await etcd.prefix(prefix)).kvs)

        return self._ask(ask)

    def _store(self, question: Callable[[ObjectStore], Awaitable[T]]) -> T:
        async def run() -> T:
            store = self.cluster.open_store()
            try:
                return await question(store)
            finally:
                await store.close()

        return asyncio.run(run())

    def objects(self, prefix: str) -> list[str]:
        async def ask(store: ObjectStore) -> list[str]:
            return [info.key async for info in store.list(prefix)]

        return self._store(ask)

    def read_object(self, key: str) -> bytes:
        return self._store(lambda store: store.get(key))

    def write_object(self, key: str, body: bytes) -> None:
        self._store(lambda store: store.put(key, [body]))

    def delete_object(self, key: str) -> None:
        self._store(lambda store: store.delete(key))

    # -- as a client, on a connection of its own ---------------------------------------------------

    def raw(self) -> Raw:
        return Raw.to(self.cluster.bootstrap)

    def sends(self, topic: str) -> int:
        with self.raw() as raw:
            return send(raw, batch(), topic=topic)

    def reads(self, topic: str, offset: int = 0) -> int:
        with self.raw() as raw:
            (part,) = ask_fetch(raw, topic=topic, offset=offset)
            return part.error_code
