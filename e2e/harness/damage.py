"""Stored values that are missing, damaged or newer: what each kind of damage does, as the table of the docs says it.

`ROWS` and `TRANSACTION_ROWS` are the only lists: `docs/protocol/damage.md` is compared with them
(`checkers/test_damage_page.py`), and `scenarios/test_damage.py` damages a value of each row in each way that the row
speaks of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from kafscale.storage.etcd.client import EtcdClient, KeyValue
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
    """`name` is the name in tests. An effect of "" means that this damage is impossible for the kind."""

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
        missing="The topic is unknown. Its heads and objects remain, and no job collects them.",
        unreadable="Produce, Fetch and Metadata by name answer KAFKA_STORAGE_ERROR, requests by topic id "
        "UNKNOWN_TOPIC_ID. The name is not free, no object is collected, and no group offset expires as for a "
        "deleted topic. OffsetFetch answers UNSTABLE_OFFSET_COMMIT.",
        remedy="Restore the record. Do not create the topic again.",
    ),
    Row(
        name="head",
        what="`p/{topic id}/{partition}`: a head",
        missing="Produce answers KAFKA_STORAGE_ERROR: no head is created while `o/` or `m/` of the partition exists. "
        "Readers find an empty log.",
        unreadable="Produce and Fetch of the partition answer KAFKA_STORAGE_ERROR. Its owner steps down.",
        remedy="Restore the newest value that etcd still has (`etcdctl get --rev`): no instance has written since. "
        "If there is none, delete the topic, or continue without the partition.",
    ),
    Row(
        name="meta",
        what="`m/{topic id}/{partition}`: a meta",
        missing="Produce answers KAFKA_STORAGE_ERROR from the next checkpoint or claim on, because the head shows "
        "that manifests list segments before its tail.",
        unreadable="Fetch answers KAFKA_STORAGE_ERROR at once, Produce from the next checkpoint or claim on.",
        remedy="Restore the newest value that etcd still has.",
    ),
    Row(
        name="owner",
        what="`o/{topic id}/{partition}`: an owner record",
        missing="Requests go to the instance that hashing prefers. The head still decides who owns the partition.",
        unreadable="As missing. The next claim writes it again.",
        remedy="Nothing.",
    ),
    Row(
        name="epoch floor",
        what="`e/{topic}`: the highest epoch of a name",
        missing="A new topic of the name begins at epoch 1. If objects of the old topic are left, its writer cannot "
        "replace them and steps down.",
        unreadable="A topic of that name is not created: KAFKA_STORAGE_ERROR. Other names are not affected.",
        remedy="Restore a number that is high enough.",
    ),
    Row(
        name="live record",
        what="`live/{role}/{node id}/{boot id}`: a running instance",
        missing="The instance gets no requests. Other instances claim its partitions or slots.",
        unreadable="The instance gets no requests. Requests for its partitions or slots are answered "
        "NOT_LEADER_OR_FOLLOWER or COORDINATOR_NOT_AVAILABLE until its lease ends.",
        remedy="Restart that instance.",
    ),
    Row(
        name="node id",
        what="`node/{role}/{node id}`: the holder of a node id",
        missing="Another instance may take the id; the first of the two to register again exits.",
        unreadable="The instance continues. An instance that registers again under the id exits with an error message.",
        remedy="Restart the instance. If the key has no lease, delete it first.",
    ),
    Row(
        name="cluster",
        what="`cluster`: the cluster's id",
        missing="The next admin that starts creates a new one.",
        unreadable="Admins that start from then on return an empty cluster id to clients. No new id is created.",
        remedy="Restore the record, and restart the admins.",
    ),
    Row(
        name="producer ids",
        what="`pid/next`: the next producer id",
        missing="The next ids come from the clock (milliseconds since 1970, times 1024), above all ids that were "
        "handed out. The same holds when an older value is restored.",
        unreadable="InitProducerId answers COORDINATOR_NOT_AVAILABLE once a coordinator's block of ids is used up. "
        "Producers that have an id continue.",
        remedy="Nothing. An unreadable value may be deleted, if no newer version runs.",
    ),
    Row(
        name="slot",
        what="`cs/{slot}`: a slot of groups",
        missing="A coordinator claims it again at once, and reads its groups again.",
        unreadable="As missing. The claim compares the revision of the damaged value.",
        newer="Not changed: a newer coordinator has it. This version answers COORDINATOR_NOT_AVAILABLE for its groups.",
        remedy="Nothing; for a newer schema, finish the upgrade.",
    ),
    Row(
        name="group",
        what="`g/{slot}/{group}`: a group",
        missing="The group starts again with the next member that joins.",
        unreadable="Calls of the group answer COORDINATOR_NOT_AVAILABLE from the next claim of its slot on, and "
        "members wait. OffsetFetch works. Other groups are not affected.",
        remedy="Restore the record or delete it, then restart the coordinator that has the slot.",
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
        what="`job/{name}`: the time at which a job of upkeep last ended",
        missing="The job is due after one interval.",
        unreadable="The job is due at once, and its end is written again.",
        remedy="Nothing.",
    ),
    Row(
        name="user",
        what="`user/{name}/{mechanism}`: the SCRAM credential of a user",
        missing="The user has no credential for the mechanism.",
        unreadable="Calls about the user answer KAFKA_STORAGE_ERROR. Other users are not affected.",
        remedy="Store a password again (`kafscale users passwd --etcd`).",
    ),
    Row(
        name="segment",
        what="`segment-*.kfs`, or a compacted segment",
        missing="Fetch answers KAFKA_STORAGE_ERROR for its offsets. So does Produce, if a claim must replay it.",
        unreadable="As missing: the etag is not the committed one.",
        newer="",
        remedy="Restore the object's version with the committed etag. See KafscaleSegmentsLost.",
    ),
    Row(
        name="index",
        what="`*.index`",
        missing="No effect: a reader walks the batches.",
        unreadable="As missing.",
        newer="",
        remedy="Nothing.",
    ),
    Row(
        name="manifest",
        what="`*.mf`: a manifest",
        missing="Fetch answers KAFKA_STORAGE_ERROR for its offsets. Writes continue; its neighbours in the list are "
        "not merged. Retention and compaction skip the partition.",
        unreadable="As missing.",
        remedy="Restore the object.",
    ),
    Row(
        name="snapshot",
        what="`*.ps`: a producer snapshot",
        missing="Produce answers KAFKA_STORAGE_ERROR from the next claim on. Reads continue.",
        unreadable="As missing.",
        remedy="Restore the object.",
    ),
    Row(
        name="lag history",
        what="`@kafscale/lag/*.parquet`: a file of the lag history",
        missing="A gap in the history.",
        unreadable="As missing.",
        newer="",
        remedy="Nothing. You can delete the file to stop the log line.",
    ),
)

TRANSACTION_ROWS: Sequence[Row] = (
    Row(
        name="transactional id",
        what="`x/{slot}/{transactional id}`: the state of a transactional id",
        missing="The id is new. Its producer gets INVALID_PRODUCER_ID_MAPPING. A transaction that the id had open is "
        "never ended: readers of committed records stop before it.",
        unreadable="Calls of that id answer COORDINATOR_NOT_AVAILABLE. Other ids are served.",
        remedy="Restore the record, and restart the coordinator that has the slot. If the record is lost, abort what "
        "hangs (`kafka-transactions abort`).",
    ),
    Row(
        name="pending offsets",
        what="`cp/{slot}/{group}/{producer id}`: the pending offsets of a transaction",
        missing="If the transaction is committed, its offsets in the group are lost, and consumers read the records "
        "again.",
        unreadable="OffsetFetch of the group answers UNSTABLE_OFFSET_COMMIT if it requires stable offsets. The end of "
        "the transaction waits.",
        remedy="Restore the value, or delete the key: then consumers continue from the offsets before. Restart the "
        "coordinator that has the slot.",
    ),
)
"""Those of the page's section on transactions. `scenarios/test_transaction_offsets.py` damages them."""

HEAD = "| stored value | missing | unreadable | of a newer schema | what to do |\n|---|---|---|---|---|\n"


def table(of: Sequence[Row] = ROWS) -> str:
    """The table of the docs."""
    rows = (
        f"| {row.what} | {row.missing} | {row.unreadable} | {row.newer or '(it has none)'} | {row.remedy} |\n"
        for row in of
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

    # -- as a client, on a separate connection -----------------------------------------------------

    def raw(self) -> Raw:
        return Raw.to(self.cluster.bootstrap)

    def sends(self, topic: str) -> int:
        with self.raw() as raw:
            return send(raw, batch(), topic=topic)

    def reads(self, topic: str, offset: int = 0) -> int:
        with self.raw() as raw:
            (part,) = ask_fetch(raw, topic=topic, offset=offset)
            return part.error_code
