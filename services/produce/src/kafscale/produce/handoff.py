"""Giving partitions away: to a newly ready instance that should have them, and all of them at the end.

The order is the law: stop appending (a definite refusal), commit what was taken, save the producer
state, and only then write the head and the owner record without owner. That record names the
successor, which watches the owner records of all partitions and claims at once. A partition that
cannot be drained in time is dropped instead, and a claim elsewhere fences what is left of it.
"""

from __future__ import annotations

import asyncio
from functools import partial

from kafscale.log.claims import build_release
from kafscale.produce.log.model import State, StepDownReason
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.ownership import Ownership
from kafscale.produce.partition import Partition, Phase
from kafscale.runtime.clock import Clock
from kafscale.runtime.committer import Answer, Settled
from kafscale.storage.coordination import NO_NODE, give_all_away, next_look

LEAVING_MAX = 64
LEAVE_WITHIN_MS = 10_000
SLOW_AFTER_MS = 2_000
BALANCE_EVERY_S = 5.0
BALANCE_SETTLE_S = 0.2
BALANCE_PAGE = 500
DRAIN_LOOK_S = 0.02


class Handoffs:
    """See the module's law."""

    def __init__(
        self,
        ownership: Ownership,
        *,
        per_s: int,
        clock: Clock,
        metrics: ProduceMetrics,
    ) -> None:
        """`per_s` holds while rebalancing; a drain goes as fast as the store and etcd do."""
        self._ownership = ownership
        self._per_s = per_s
        self._clock = clock
        self._metrics = metrics
        self._leaving: dict[Partition, int] = {}  # → since ms

    async def balance(self) -> None:
        """Give each partition to whom rendezvous hashing prefers, a few per second."""
        while True:
            wanted = self._ownership.balance_wanted
            await next_look(wanted, every_s=BALANCE_EVERY_S, settle_s=BALANCE_SETTLE_S)
            if self._ownership.ready and not self._ownership.draining:
                await self._balance_once()

    async def _balance_once(self) -> None:
        self._drop_stuck()
        for number, partition in enumerate(list(self._ownership.partitions.values())):
            if number % BALANCE_PAGE == BALANCE_PAGE - 1:
                await asyncio.sleep(0)
            if self._target(partition) == NO_NODE or not self._may_leave(partition):
                continue
            if self._slow():
                return  # the store or etcd is away: giving more away would only stop more writers
            self._begin(partition)
            await asyncio.sleep(1 / self._per_s)

    async def drain(self, timeout_s: float) -> None:
        """Give everything away; returns when nothing is owned, or the time is over."""
        self._ownership.set_stance(ready=False, draining=True)
        owned = self._ownership.partitions
        await give_all_away(owned.__len__, self._give_some, partial(asyncio.sleep, DRAIN_LOOK_S), timeout_s)

    def _give_some(self) -> None:
        self._drop_stuck()
        for partition in list(self._ownership.partitions.values()):
            if len(self._leaving) < LEAVING_MAX and self._may_leave(partition):
                self._begin(partition)

    def drained(self, partition: Partition) -> None:
        """The writer has committed all it took: write the head without owner."""
        writer, id_ = partition.writer, partition.id
        assert writer is not None, partition
        if writer.state is not State.DRAINED:  # in the same turn it was fenced, or lost its topic
            return
        target = self._target(partition)
        released = writer.released_head("" if target == NO_NODE else str(target))
        txn = build_release(
            self._ownership.world.keyspace,
            id_.topic_id,
            id_.partition,
            released=released,
            revision=writer.revision,
        )
        self._ownership.tools.committer.submit(txn, lambda answer: self._released(partition, answer))

    def _released(self, partition: Partition, answer: Answer) -> None:
        """Whatever the answer is, the partition is not ours any more."""
        self._leaving.pop(partition, None)
        assert partition.writer is not None, partition
        applied = isinstance(answer, Settled) and (answer.result.succeeded or answer.ambiguous)
        reason = StepDownReason.RELEASED if applied else StepDownReason.FENCED
        partition.writer.step_down(reason, self._ownership.tools.now())
        self._ownership.tools.pump.touch(partition)
        if applied:
            self._metrics.handoffs.inc()

    def _begin(self, partition: Partition) -> None:
        assert partition.writer is not None, partition
        self._leaving[partition] = self._clock.now_ms()
        partition.writer.begin_handoff(self._ownership.tools.now())
        self._ownership.tools.pump.touch(partition)

    def _may_leave(self, partition: Partition) -> bool:
        return partition.phase is Phase.SERVING and partition not in self._leaving

    def _target(self, partition: Partition) -> int:
        return self._ownership.fleet().successor(partition.id.topic_id, partition.id.partition)

    def _slow(self) -> bool:
        oldest_ms = self._clock.now_ms() - SLOW_AFTER_MS
        return any(since_ms < oldest_ms for since_ms in self._leaving.values())

    def _drop_stuck(self) -> None:
        """Those that could not commit in time, as when the store is away."""
        oldest_ms = self._clock.now_ms() - LEAVE_WITHIN_MS
        for partition, since_ms in list(self._leaving.items()):
            if partition.phase is Phase.GONE:
                del self._leaving[partition]
            elif since_ms < oldest_ms:
                del self._leaving[partition]
                assert partition.writer is not None, partition
                partition.writer.step_down(StepDownReason.ORDERED, self._ownership.tools.now())
                self._ownership.tools.pump.touch(partition)
