"""A thin pipe to the store, in virtual time: what it carries is stored, and waiting ends no epoch.

Writers, uploader and pace are the real ones. Sizes are a sixteenth of the real ones and the pipe is as much thinner; a
commit is applied at once.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest
from kafscale.log.heads import Head
from kafscale.produce.log.model import (
    Action,
    CommitHead,
    HeadObject,
    Instant,
    Limits,
    MetaWrite,
    PartitionId,
    PutObject,
    Reply,
    StepDownReason,
    SteppedDown,
    TakeCheckpoint,
)
from kafscale.produce.log.producers import ProducerTable
from kafscale.produce.log.writer import PartitionWriter
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.puts import Pace, Uploader
from kafscale.runtime.metrics import Metrics
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.objects import (
    NO_METADATA,
    Buffer,
    Condition,
    IfAbsent,
    MemoryStore,
    Metadata,
    StoreError,
    StoreSlow,
    StoreUnavailable,
)
from kafscale.storage.objects.progress import time_limit_s
from kafscale.testkit.clock import LoopClock, run_in_virtual_time
from kafscale.wire.errors import ErrorCode
from produce_harness import batch

SEGMENT_BYTES = 256 << 10
PIPE_BYTES_PER_S = 200_000
STALL_S = 10.0
REQUESTS = 30
"""In flight for each partition: three segments, and some records of the next."""
LIMITS = Limits(direct_bytes=SEGMENT_BYTES)


class ThinPipe(MemoryStore):
    """Its PUTs share a rate fairly. As the S3 store does, it gives up PUTs that rest or are too slow."""

    def __init__(self, bytes_per_s: float) -> None:
        super().__init__()
        self.puts_at_once_max: int | None = 48
        self.bytes_per_s = bytes_per_s
        self.stuck = ""  # PUTs with this in their key rest for ever
        self.sent_bytes = 0.0
        self.stored_bytes = 0
        self.most_at_once = 0
        self._at_s = 0.0
        self._level = 0.0  # bytes that a PUT would have been carried that was there from the start
        self._active: dict[asyncio.Future[None], float] = {}  # → the level at which it is through
        self._timer: asyncio.TimerHandle | None = None

    async def put(
        self,
        key: str,
        body: Sequence[Buffer],
        *,
        condition: Condition = None,
        metadata: Metadata = NO_METADATA,
    ) -> str:
        size = sum(map(len, body))
        if self.stuck and self.stuck in key:
            await asyncio.sleep(STALL_S)
            raise StoreUnavailable(key, "no byte moved")
        await self._carry(key, size)
        self.stored_bytes += size
        return await super().put(key, body, condition=condition, metadata=metadata)

    async def _carry(self, key: str, size: int) -> None:
        through = asyncio.get_running_loop().create_future()
        self._advance()
        begun = self._level
        self._active[through] = begun + size
        self.most_at_once = max(self.most_at_once, len(self._active))
        self._arm()
        try:
            async with asyncio.timeout(time_limit_s(size, STALL_S)):
                await through
        except TimeoutError:
            raise StoreSlow(key, "too slow") from None
        finally:
            self._advance()
            self._active.pop(through, None)
            self.sent_bytes += min(size, self._level - begun)
            self._arm()

    def _advance(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self._level += self.bytes_per_s * (now_s - self._at_s) / max(1, len(self._active))
        self._at_s = now_s

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left = [level for future, level in self._active.items() if not future.done()]
        if left:
            wait_s = (min(left) - self._level) * len(self._active) / self.bytes_per_s
            self._timer = asyncio.get_running_loop().call_later(max(wait_s, 1e-6), self._through)

    def _through(self) -> None:
        self._advance()
        for future, level in self._active.items():
            if not future.done() and level <= self._level + 1:
                future.set_result(None)
        self._timer = None


def no_span() -> AbstractContextManager[None]:
    return nullcontext()


class Owner:
    """One partition with producers that always have REQUESTS requests in flight."""

    def __init__(self, number: int, uploader: Uploader, tasks: asyncio.TaskGroup) -> None:
        self._uploader = uploader
        self._tasks = tasks
        self._records = memoryview(batch(os.urandom(30 << 10)))
        self._tokens = itertools.count(1)
        self._revision = 1
        self._ids = itertools.count(1)
        self._again = False
        self.acked = 0
        self.stopped: StepDownReason | None = None
        self.writer = PartitionWriter(
            PartitionId(topic="t", topic_id=TopicId(bytes(16)), partition=number),
            Head(epoch=1, topic="t", owner="1/boot"),
            self._revision,
            producers=ProducerTable(),
            log_start=0,
            limits=LIMITS,
            names=Keyspace(),
            ids=lambda: (number << 64 | next(self._ids)).to_bytes(16, "big"),
        )
        for _ in range(REQUESTS):
            self._append()
        self.drive()

    def _append(self) -> None:
        now = _now()
        self.writer.append(next(self._tokens), self._records, deadline_ms=now.mono_ms + 3_600_000, now=now)

    def drive(self) -> None:
        due_ms = self.writer.next_deadline()
        if due_ms is not None and due_ms <= _now().mono_ms:
            self.writer.tick(_now())
        while actions := self.writer.take_actions():
            for action in actions:
                self._perform(action)
        due_ms = self.writer.next_deadline()
        if due_ms is not None:
            wait_s = max(0.001, (due_ms - _now().mono_ms) / 1000)
            asyncio.get_running_loop().call_later(wait_s, self.drive)

    def _perform(self, action: Action) -> None:
        match action:
            case PutObject():
                self._tasks.create_task(self._put(action))
            case HeadObject():
                self._tasks.create_task(self._head(action))
            case CommitHead():
                self._revision += 1
                self.writer.committed(action.txn, self._revision, _now())
            case TakeCheckpoint():
                write = MetaWrite(expected_revision=1, value=b"")
                self.writer.checkpoint_ready(action.plan, "snap", write, _now())
            case Reply(error=ErrorCode.NONE):
                self.acked += 1
                self._append()
            case SteppedDown():
                self.stopped = action.reason
            case _:
                pass

    async def _put(self, action: PutObject) -> None:
        await self._uploader.put(self.writer, action, is_wanted=lambda: self.stopped is None, span=no_span)
        self.drive()

    async def _head(self, action: HeadObject) -> None:
        await self._uploader.head(self.writer, action)
        self.drive()


def _now() -> Instant:
    clock = LoopClock()
    return Instant(clock.now_ms(), clock.wall_ms())


async def _written(pipe: ThinPipe, partitions: int, seconds: float) -> list[Owner]:
    """What the owners did in this time; it is cut off in the middle of their PUTs."""
    pace = Pace(pipe, LoopClock())
    uploader = Uploader(pipe, pace, LoopClock(), ProduceMetrics(Metrics("produce")))
    owners: list[Owner] = []

    async def write() -> None:
        async with asyncio.TaskGroup() as tasks:
            owners.extend(Owner(number, uploader, tasks) for number in range(partitions))
            await asyncio.Event().wait()

    writing = asyncio.create_task(write())
    await asyncio.wait({writing}, timeout=seconds)
    assert not writing.done(), writing
    writing.cancel()
    await asyncio.wait({writing})
    return owners


@pytest.mark.parametrize("partitions", [1, 4, 16, 32, 64])
def test_goodput_is_most_of_the_pipe_and_little_is_sent_again(partitions: int) -> None:
    pipe = ThinPipe(PIPE_BYTES_PER_S)
    owners = run_in_virtual_time(_written(pipe, partitions, 300))
    assert pipe.stored_bytes >= 0.7 * PIPE_BYTES_PER_S * 300
    in_flight = 48 * SEGMENT_BYTES
    assert pipe.sent_bytes <= 1.2 * pipe.stored_bytes + in_flight, "what was sent is stored"
    assert [owner.stopped for owner in owners] == [None] * partitions
    if partitions <= 16:
        assert min(owner.acked for owner in owners) > 0


def test_a_segment_that_needs_longer_than_a_stall_though_it_is_alone_arrives() -> None:
    pipe = ThinPipe(22_000)
    (owner,) = run_in_virtual_time(_written(pipe, 1, 600))
    assert SEGMENT_BYTES / pipe.bytes_per_s > STALL_S
    assert pipe.stored_bytes >= 0.7 * pipe.bytes_per_s * 600
    assert owner.stopped is None


def test_waiting_for_a_place_ends_no_epoch_and_each_partition_gets_its_turn() -> None:
    """64 partitions need six minutes for one round of this pipe: many times what a store may be away."""
    pipe = ThinPipe(PIPE_BYTES_PER_S)
    owners = run_in_virtual_time(_written(pipe, 64, 800))
    assert [owner.stopped for owner in owners] == [None] * 64
    assert min(owner.acked for owner in owners) > 0


def test_one_stuck_partition_leaves_the_pipe_to_the_others() -> None:
    pipe = ThinPipe(10 * PIPE_BYTES_PER_S)
    pipe.stuck = "/0/"
    owners = run_in_virtual_time(_written(pipe, 8, 100))
    assert pipe.stored_bytes >= 0.7 * pipe.bytes_per_s * 100
    assert owners[0].acked == 0
    assert min(owner.acked for owner in owners[1:]) > 0


def test_a_store_that_is_away_ends_every_epoch_in_time_also_of_those_that_wait() -> None:
    pipe = ThinPipe(PIPE_BYTES_PER_S)
    pipe.stuck = "segment"
    owners = run_in_virtual_time(_written(pipe, 64, 120))
    assert {owner.stopped for owner in owners} == {StepDownReason.STORE_UNAVAILABLE}


def test_a_store_that_is_back_is_used_in_full_again() -> None:
    async def away_and_back(pipe: ThinPipe) -> None:
        async def heal() -> None:
            pipe.stuck = "segment"
            await asyncio.sleep(40)
            pipe.stuck = ""

        healing = asyncio.create_task(heal())
        await _written(pipe, 16, 240)
        await healing

    pipe = ThinPipe(10 * PIPE_BYTES_PER_S)
    run_in_virtual_time(away_and_back(pipe))
    assert pipe.stored_bytes >= 0.7 * pipe.bytes_per_s * (240 - 40)


def test_a_put_that_waits_is_not_sent_after_its_epoch() -> None:
    async def sent() -> int:
        owners: list[Owner] = []
        pace = Pace(pipe, LoopClock(), puts_max=1)
        uploader = Uploader(pipe, pace, LoopClock(), ProduceMetrics(Metrics("produce")))
        async with asyncio.TaskGroup() as tasks, pace.place(1):
            owners.append(Owner(0, uploader, tasks))
            await asyncio.sleep(1)
            assert pace.limit.waiting > 0
            owners[0].writer.step_down(StepDownReason.FENCED, _now())
            owners[0].drive()
        return pipe.most_at_once

    pipe = ThinPipe(PIPE_BYTES_PER_S)
    assert run_in_virtual_time(sent()) == 0


def test_a_local_store_meets_no_bound() -> None:
    pipe = ThinPipe(1e12)
    pipe.puts_at_once_max = None

    async def all_at_once() -> int:
        pace = Pace(pipe, LoopClock())
        async with asyncio.TaskGroup() as tasks:
            for number in range(512):
                tasks.create_task(pace.put(f"k{number}", [bytes(64 << 10)], condition=IfAbsent()))
            await asyncio.sleep(0)
            return pace.limit.waiting

    assert run_in_virtual_time(all_at_once()) == 0


async def test_a_put_that_is_cancelled_leaves_the_bound_as_it_was() -> None:
    pipe = ThinPipe(1.0)
    pipe.puts_at_once_max = 1
    pace = Pace(pipe, LoopClock())
    tasks = [asyncio.create_task(pace.put(f"k{n}", [b"x" * 100], condition=IfAbsent())) for n in range(3)]
    await asyncio.sleep(0)
    assert (pace.limit.puts, pace.limit.waiting) == (1, 2)
    tasks[1].cancel()
    tasks[0].cancel()
    await asyncio.gather(*tasks[:2], return_exceptions=True)
    assert (pace.limit.puts, pace.limit.waiting) == (1, 0)
    tasks[2].cancel()
    await asyncio.gather(tasks[2], return_exceptions=True)
    assert (pace.limit.puts, pace.limit.bytes, pace.limit.halved) == (0, 0, 0)


async def test_a_refusal_of_the_store_does_not_halve_the_bound() -> None:
    store = MemoryStore()
    pace = Pace(store, LoopClock(), puts_max=8)
    assert pace.limit.limit == 8
    await pace.put("k", [b"x"], condition=IfAbsent())
    with pytest.raises(StoreError):
        await pace.put("k", [b"x"], condition=IfAbsent())
    assert (pace.limit.limit, pace.limit.halved) == (8, 0)
