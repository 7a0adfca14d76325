"""DeleteRecords: reads, decides, swaps the meta in etcd, and reads again if a checkpoint was first.

This calls no other service: the log start is in the partition's meta, which readers watch. Many partitions share one
etcd request, as nested transactions that fail separately. An unknown outcome is REQUEST_TIMED_OUT, never a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog
from kafscale.admin.errors import refusal
from kafscale.admin.plan import invalid_topic_name
from kafscale.log.log_starts import build_move, build_read, read_if_unchanged
from kafscale.log.state import StoredState
from kafscale.storage.etcd.client import EtcdClient, EtcdError, Range, Txn, TxnResult
from kafscale.storage.etcd.swap import TRIES_MAX
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import INTERNAL_TOPICS, Topic, TopicState, decode_topic
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

HIGH_WATERMARK: Final = -1
"""Instead of an offset: delete all records that are committed when the request is executed."""
PARTITIONS_PER_REQUEST_MAX: Final = 50
"""Nested transactions in one etcd request."""
DEFER_S: Final = 0.1
DEFER_TRIES_MAX: Final = 10
"""If the tail is full, DeleteRecords waits this long for the checkpoint. Each of the two invalidates what the other has
read, and a checkpoint takes longer."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


def start_after(bounds: StoredState, offset: int) -> int | ErrorCode:
    """The log start after the records below `offset` are deleted. It never falls."""
    wanted = bounds.next if offset == HIGH_WATERMARK else offset
    if not 0 <= wanted <= bounds.next:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return max(bounds.log_start, wanted)


@dataclass(slots=True)
class Deleted:
    """The log start of each partition, or its error."""

    results: dict[TopicPartition, int | ErrorCode] = field(default_factory=dict)
    revision: int = 0
    """A reader of etcd at this revision or later sees every log start in `results`."""


class LogStarts:
    def __init__(self, etcd: EtcdClient, keys: Keyspace) -> None:
        self._etcd = etcd
        self._keys = keys

    async def delete(self, asked: Mapping[TopicPartition, int], timeout_s: float) -> Deleted:
        """Deletes the records below each offset. Partitions that time out may be changed or not."""
        deleted = Deleted()
        partitions = list(asked)
        try:
            async with asyncio.timeout(timeout_s):
                for at in range(0, len(partitions), PARTITIONS_PER_REQUEST_MAX):
                    some = partitions[at : at + PARTITIONS_PER_REQUEST_MAX]
                    await self._delete_some({partition: asked[partition] for partition in some}, deleted)
        except TimeoutError:
            self._fail(asked, deleted, ErrorCode.REQUEST_TIMED_OUT)
        except EtcdError as trouble:
            self._fail(asked, deleted, refusal(trouble).error)
        return deleted

    async def _delete_some(self, asked: Mapping[TopicPartition, int], deleted: Deleted) -> None:
        left = asked
        for tried in range(TRIES_MAX):
            defer = tried < DEFER_TRIES_MAX
            logs = await self._read(left, deleted)
            await self._move(left, logs, deleted, defer=defer)
            left = {
                partition: offset for partition, offset in left.items() if partition not in deleted.results
            }
            if not left:
                return
            if defer and any(bounds.tail_full for _, bounds in logs.values()):
                await asyncio.sleep(DEFER_S)
        self._fail(left, deleted, ErrorCode.REQUEST_TIMED_OUT)

    @staticmethod
    def _fail(partitions: Mapping[TopicPartition, int], deleted: Deleted, error: ErrorCode) -> None:
        for partition in partitions:
            deleted.results.setdefault(partition, error)

    # -- reading ---------------------------------------------------------------------------

    async def _read(
        self, partitions: Mapping[TopicPartition, int], deleted: Deleted
    ) -> dict[TopicPartition, tuple[Topic, StoredState]]:
        """The logs that can be changed. The others have their error, or changed while they were read."""
        topics = await self._topics({partition.topic for partition in partitions})
        wanted: dict[TopicPartition, Topic] = {}
        for partition in partitions:
            topic = topics.get(partition.topic)
            if isinstance(topic, ErrorCode):
                deleted.results[partition] = topic
            elif topic is None or not 0 <= partition.partition < topic.partitions:
                deleted.results[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif partition.topic in INTERNAL_TOPICS:  # made by an earlier version; as in Kafka
                deleted.results[partition] = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif topic.is_compacted and not topic.deletes_records:  # as in Kafka
                deleted.results[partition] = ErrorCode.POLICY_VIOLATION
            else:
                wanted[partition] = topic
        reads = [build_read(self._keys, topic, partition.partition) for partition, topic in wanted.items()]
        answers = await self._nested(reads, deleted)
        logs = {}
        for (partition, topic), answer in zip(wanted.items(), answers, strict=True):
            try:
                bounds = read_if_unchanged(answer)
            except UnreadableValue as error:
                log.error(
                    "head or meta unreadable",
                    topic=partition.topic,
                    partition=partition.partition,
                    why=str(error),
                )
                deleted.results[partition] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            if bounds is not None:
                logs[partition] = (topic, bounds)
        return logs

    async def _topics(self, names: set[str]) -> dict[str, Topic | ErrorCode]:
        legal = [name for name in names if invalid_topic_name(name) is None]
        if not legal:
            return {}
        found = await self._etcd.ranges([Range(self._keys.topic(name)) for name in legal])
        topics: dict[str, Topic | ErrorCode] = {}
        for name, result in zip(legal, found, strict=True):
            for kv in result.kvs:
                try:
                    topic = decode_topic(name, kv.value, kv.mod_revision)
                except UnreadableValue:
                    topics[name] = ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    if topic.state is TopicState.ACTIVE:
                        topics[name] = topic
        return topics

    # -- changing ----------------------------------------------------------------------

    async def _move(
        self,
        asked: Mapping[TopicPartition, int],
        logs: Mapping[TopicPartition, tuple[Topic, StoredState]],
        deleted: Deleted,
        *,
        defer: bool,
    ) -> None:
        """Partitions whose meta has changed since the read, or that wait for a checkpoint, get no result yet."""
        moves: dict[TopicPartition, int] = {}
        txns: list[Txn] = []
        for partition, (topic, bounds) in logs.items():
            start = start_after(bounds, asked[partition])
            if isinstance(start, ErrorCode) or start == bounds.log_start:
                deleted.results[partition] = start
            elif not (defer and bounds.tail_full):
                moves[partition] = start
                txns.append(build_move(self._keys, topic, partition.partition, bounds, start))
        answers = await self._nested(txns, deleted)
        for (partition, start), answer in zip(moves.items(), answers, strict=True):
            if answer.succeeded:
                deleted.results[partition] = start

    async def _nested(self, txns: list[Txn], deleted: Deleted) -> list[TxnResult]:
        if not txns:
            return []
        result = await self._etcd.txn(Txn(success=tuple(txns)))
        deleted.revision = max(deleted.revision, result.revision)
        return [answer for answer in result.responses if isinstance(answer, TxnResult)]
