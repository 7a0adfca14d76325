"""DeleteRecords against etcd: read, decide, compare-and-swap, and read again if a checkpoint came first.

Only etcd takes part; the owner gets no request. The start is in meta, which readers watch. Many partitions share one
request, as nested transactions that fail independently. An unknown outcome is REQUEST_TIMED_OUT, never a failure.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import structlog
from kafscale.admin.errors import refusal
from kafscale.admin.names import invalid_reason
from kafscale.storage.etcd.client import EtcdClient, EtcdError, Range, Txn, TxnResult
from kafscale.storage.keys import Keyspace
from kafscale.storage.log_starts import LogBounds, build_move, build_read, read_bounds
from kafscale.storage.meta_swap import TRIES_MAX
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import Topic, TopicState, decode_topic
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

HIGH_WATERMARK: Final = -1
"""As an offset: everything that is committed when the request is executed."""
PARTITIONS_PER_REQUEST_MAX: Final = 50
"""Nested transactions in one request to etcd."""
GIVE_WAY_S: Final = 0.1
GIVE_WAY_TRIES_MAX: Final = 10
"""How often a deletion yields to the checkpoint that a full tail waits for. Each of the two invalidates what the other
prepared, and the checkpoint needs longer."""


class Place(NamedTuple):
    topic: str
    partition: int


def start_after(bounds: LogBounds, offset: int) -> int | ErrorCode:
    """The log start when the records below `offset` are deleted; below the present one nothing changes."""
    wanted = bounds.next if offset == HIGH_WATERMARK else offset
    if not 0 <= wanted <= bounds.next:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return max(bounds.start, wanted)


@dataclass(slots=True)
class Deleted:
    """For each partition its log start, or the error."""

    results: dict[Place, int | ErrorCode] = field(default_factory=dict)
    revision: int = 0
    """A reader of etcd at this revision sees every log start in `results`."""


class LogStarts:
    def __init__(self, etcd: EtcdClient, keys: Keyspace) -> None:
        self._etcd = etcd
        self._keys = keys

    async def delete(self, asked: Mapping[Place, int], timeout_s: float) -> Deleted:
        """Delete the records below each offset. After a timeout, a partition may have been changed or not."""
        deleted = Deleted()
        places = list(asked)
        try:
            async with asyncio.timeout(timeout_s):
                for at in range(0, len(places), PARTITIONS_PER_REQUEST_MAX):
                    some = places[at : at + PARTITIONS_PER_REQUEST_MAX]
                    await self._delete_some({place: asked[place] for place in some}, deleted)
        except TimeoutError:
            self._fail(asked, deleted, ErrorCode.REQUEST_TIMED_OUT)
        except EtcdError as trouble:
            self._fail(asked, deleted, refusal(trouble).error)
        return deleted

    async def _delete_some(self, asked: Mapping[Place, int], deleted: Deleted) -> None:
        left = asked
        for tried in range(TRIES_MAX):
            give_way = tried < GIVE_WAY_TRIES_MAX
            logs = await self._read(left, deleted)
            await self._move(left, logs, deleted, give_way=give_way)
            left = {place: offset for place, offset in left.items() if place not in deleted.results}
            if not left:
                return
            if give_way and any(bounds.tail_full for _, bounds in logs.values()):
                await asyncio.sleep(GIVE_WAY_S)
        self._fail(left, deleted, ErrorCode.REQUEST_TIMED_OUT)

    @staticmethod
    def _fail(places: Mapping[Place, int], deleted: Deleted, error: ErrorCode) -> None:
        for place in places:
            deleted.results.setdefault(place, error)

    # -- what is there ---------------------------------------------------------------------------

    async def _read(
        self, places: Mapping[Place, int], deleted: Deleted
    ) -> dict[Place, tuple[Topic, LogBounds]]:
        """The logs that can be changed; the others have their error, or changed while they were read."""
        topics = await self._topics({place.topic for place in places})
        wanted: dict[Place, Topic] = {}
        for place in places:
            topic = topics.get(place.topic)
            if isinstance(topic, ErrorCode):
                deleted.results[place] = topic
            elif topic is None or not 0 <= place.partition < topic.partitions:
                deleted.results[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif not topic.deletes_records:  # as in Kafka
                deleted.results[place] = ErrorCode.POLICY_VIOLATION
            else:
                wanted[place] = topic
        reads = [build_read(self._keys, topic, place.partition) for place, topic in wanted.items()]
        answers = await self._nested(reads, deleted)
        logs = {}
        for (place, topic), answer in zip(wanted.items(), answers, strict=True):
            try:
                bounds = read_bounds(answer)
            except UnreadableValue as error:
                log.error("head or meta unreadable", place=place, why=str(error))
                deleted.results[place] = ErrorCode.KAFKA_STORAGE_ERROR
                continue
            if bounds is not None:
                logs[place] = (topic, bounds)
        return logs

    async def _topics(self, names: set[str]) -> dict[str, Topic | ErrorCode]:
        legal = [name for name in names if invalid_reason(name) is None]
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

    # -- what becomes of it ----------------------------------------------------------------------

    async def _move(
        self,
        asked: Mapping[Place, int],
        logs: Mapping[Place, tuple[Topic, LogBounds]],
        deleted: Deleted,
        *,
        give_way: bool,
    ) -> None:
        """Partitions whose meta changed meanwhile get no result, nor those that yielded."""
        moves: dict[Place, int] = {}
        txns: list[Txn] = []
        for place, (topic, bounds) in logs.items():
            start = start_after(bounds, asked[place])
            if isinstance(start, ErrorCode) or start == bounds.start:
                deleted.results[place] = start
            elif not (give_way and bounds.tail_full):
                moves[place] = start
                txns.append(build_move(self._keys, topic, place.partition, bounds, start))
        answers = await self._nested(txns, deleted)
        for (place, start), answer in zip(moves.items(), answers, strict=True):
            if answer.succeeded:
                deleted.results[place] = start

    async def _nested(self, txns: list[Txn], deleted: Deleted) -> list[TxnResult]:
        if not txns:
            return []
        result = await self._etcd.txn(Txn(success=tuple(txns)))
        deleted.revision = max(deleted.revision, result.revision)
        return [answer for answer in result.responses if isinstance(answer, TxnResult)]
