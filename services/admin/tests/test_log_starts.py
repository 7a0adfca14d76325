"""The law of a log's start, whatever runs beside a deletion: it only grows, never passes the high watermark,
and an answer names a start that was true while the request was under way.

The real code runs over an etcd in memory that executes one request at a time, when the test says so; in between
come appends, other deletions, and checkpoints that were prepared from an older meta.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from kafscale.admin.log_starts import HIGH_WATERMARK, Deleted, LogStarts, TopicPartition, start_after
from kafscale.log.heads import Head, Meta, decode_head, decode_meta, encode_head, encode_meta
from kafscale.log.state import StoredState
from kafscale.storage.etcd.client import (
    Compare,
    EtcdClient,
    KeyValue,
    Op,
    Put,
    Range,
    RangeResult,
    Txn,
    TxnResult,
)
from kafscale.storage.etcd.ops import PutResult, Result
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.topics import Topic, TopicState, encode_topic
from kafscale.wire.errors import ErrorCode

KEYS = Keyspace("test")
TOPIC = Topic(
    name="t",
    topic_id=TopicId(b"t" * 16),
    partitions=1,
    configs={},
    state=TopicState.ACTIVE,
    epoch_floor=0,
    created_ms=0,
    config_version=0,
    mod_revision=0,
)
HEAD, META = KEYS.head(TOPIC.topic_id, 0), KEYS.meta(TOPIC.topic_id, 0)
PLACE = TopicPartition("t", 0)
TIMEOUT_S = 3_600.0


@pytest.mark.parametrize(
    ("start", "end", "offset", "after"),
    [
        (0, 0, HIGH_WATERMARK, 0),
        (0, 0, 0, 0),
        (0, 0, 1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2, 9, HIGH_WATERMARK, 9),
        (2, 9, 9, 9),
        (2, 9, 5, 5),
        (2, 9, 2, 2),
        (2, 9, 1, 2),
        (2, 9, 0, 2),
        (2, 9, 10, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2, 9, -2, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_where_a_log_starts_after_a_deletion(start: int, end: int, offset: int, after: int) -> None:
    found = start_after(
        StoredState(head=Head(epoch=1, topic="t", next=end), meta=Meta(log_start=start)), offset
    )
    assert (found, isinstance(found, ErrorCode)) == (after, isinstance(after, ErrorCode))


@dataclass(slots=True)
class SteppedEtcd:
    """Requests wait until `step` executes the oldest; every one of them is atomic, as etcd's are."""

    revision: int = 0
    values: dict[bytes, KeyValue] = field(default_factory=dict)
    waiting: list[asyncio.Future[None]] = field(default_factory=list)

    async def _turn(self) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        await turn

    async def ranges(self, reads: Sequence[Range]) -> tuple[RangeResult, ...]:
        await self._turn()
        return tuple(self._range(read) for read in reads)

    async def txn(self, txn: Txn) -> TxnResult:
        await self._turn()
        return self.execute(txn)

    def execute(self, txn: Txn) -> TxnResult:
        before = dict(self.values)  # nested compares see the state before the whole request
        self.revision += 1
        return self._execute(txn, before)

    def _execute(self, txn: Txn, before: dict[bytes, KeyValue]) -> TxnResult:
        holds = all(self._holds(compare, before) for compare in txn.compare)
        results = tuple(self._do(op, before) for op in (txn.success if holds else txn.failure))
        return TxnResult(holds, self.revision, results)

    def _holds(self, compare: Compare, before: dict[bytes, KeyValue]) -> bool:
        assert compare.op == "=", compare
        kv = before.get(compare.key)
        found = {"mod": kv.mod_revision if kv else 0, "create": kv.create_revision if kv else 0}
        return found[compare.target] == compare.value

    def _do(self, op: Op, before: dict[bytes, KeyValue]) -> Result:
        match op:
            case Put():
                old = self.values.get(op.key)
                created = old.create_revision if old else self.revision
                self.values[op.key] = KeyValue(op.key, op.value, created, self.revision, 1, 0)
                return PutResult(self.revision)
            case Range():
                return self._range(op)
            case Txn():
                return self._execute(op, before)
            case _:
                raise AssertionError(op)

    def _range(self, read: Range) -> RangeResult:
        kv = self.values.get(read.key)
        return RangeResult((kv,) if kv else (), self.revision)

    def put(self, key: bytes, value: bytes) -> None:
        self.execute(Txn(success=(Put(key, value),)))


@dataclass(slots=True)
class Deletion:
    """One request under way, and the starts that were true since it came."""

    offset: int
    end_before: int
    task: asyncio.Task[Deleted]
    starts: set[int]


class LogStartMachine(RuleBasedStateMachine):
    """One partition; any number of deletions and one checkpoint at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.etcd = SteppedEtcd()
        self.admin = LogStarts(cast(EtcdClient, self.etcd), KEYS)
        self.deletions: list[Deletion] = []
        self.checkpoint: tuple[Meta, int, int] | None = None  # meta, its revision, where the tail began
        self.highest = 0

    @initialize(records=st.integers(0, 5), has_head=st.booleans())
    def create(self, records: int, has_head: bool) -> None:
        self.etcd.put(KEYS.topic("t"), encode_topic(TOPIC))
        if has_head:
            self.append(records)

    @property
    def end(self) -> int:
        kv = self.etcd.values.get(HEAD)
        return decode_head(kv.value).next if kv else 0

    @property
    def meta(self) -> Meta:
        kv = self.etcd.values.get(META)
        return decode_meta(kv.value) if kv else Meta()

    @rule(records=st.integers(1, 5))
    def append(self, records: int) -> None:
        self.etcd.put(HEAD, encode_head(Head(epoch=1, topic="t", next=self.end + records)))

    @rule(offset=st.one_of(st.just(HIGH_WATERMARK), st.integers(-2, 30)))
    def delete(self, offset: int) -> None:
        task = self.loop.create_task(self.admin.delete({PLACE: offset}, TIMEOUT_S))
        self.deletions.append(Deletion(offset, self.end, task, {self.meta.log_start}))
        self._settle()

    @precondition(lambda self: self.etcd.waiting)
    @rule(at=st.integers(0, 20))
    def step(self, at: int) -> None:
        waiting = self.etcd.waiting
        waiting.pop(at % len(waiting)).set_result(None)
        self._settle()

    @precondition(lambda self: self.checkpoint is None)
    @rule()
    def begin_checkpoint(self) -> None:
        kv = self.etcd.values.get(META)
        self.checkpoint = (self.meta, kv.mod_revision if kv else 0, self.end)

    @precondition(lambda self: self.checkpoint is not None)
    @rule()
    def end_checkpoint(self) -> None:
        assert self.checkpoint is not None
        meta, revision, end = self.checkpoint
        self.checkpoint = None
        written = encode_meta(replace(meta, manifest_end=end))
        self.etcd.execute(Txn(compare=(Compare(META, "mod", "=", revision),), success=(Put(META, written),)))

    def _settle(self) -> None:
        """Let every task run up to its next request, and judge those that have ended."""
        pending = -1
        while pending != len(self.etcd.waiting):
            pending = len(self.etcd.waiting)
            for _ in range(5):
                self.loop.run_until_complete(asyncio.sleep(0))
        for deletion in self.deletions:
            deletion.starts.add(self.meta.log_start)
        for deletion in [one for one in self.deletions if one.task.done()]:
            self.deletions.remove(deletion)
            self._judge(deletion, deletion.task.result())

    def _judge(self, deletion: Deletion, deleted: Deleted) -> None:
        result = deleted.results[PLACE]
        if isinstance(result, ErrorCode):
            assert result is ErrorCode.OFFSET_OUT_OF_RANGE
            assert deletion.offset < HIGH_WATERMARK or deletion.offset > deletion.end_before
            return
        assert result in deletion.starts, "the answer names a start that was never true"
        wanted = deletion.end_before if deletion.offset == HIGH_WATERMARK else deletion.offset
        assert result >= wanted, "records below the offset were left"
        assert 0 < deleted.revision <= self.etcd.revision

    @invariant()
    def the_start_only_grows_and_stays_within_the_log(self) -> None:
        start = self.meta.log_start
        assert self.highest <= start <= self.end, (self.highest, start, self.end)
        self.highest = start

    def teardown(self) -> None:
        while self.etcd.waiting:
            self.step(0)
            self.the_start_only_grows_and_stays_within_the_log()
        assert not self.deletions, "a deletion without an answer"
        self.loop.close()


LogStartMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
test_the_start_of_a_log = LogStartMachine.TestCase
