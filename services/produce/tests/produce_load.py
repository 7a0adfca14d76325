"""Producers that keep a topic busy while a test does things to its instances."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import suppress
from typing import Any

from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.storage.coordination import OwnerRecord
from kafscale.storage.etcd.client import EtcdError
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode
from produce_harness import PATIENCE_S, Answer, Cluster, Node, batch, preferred, until


class Producer:
    """An idempotent producer of one partition behind what a front door does for its lane.

    Keeps several requests in flight and sends again what was not acknowledged, in order; the front
    door holds the lane after a NOT_OWNER, raises its epoch and sends it again. Any error that an
    idempotent client would take as fatal fails the test.
    """

    IN_FLIGHT = 5
    RETRIED = frozenset(
        {
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,  # behind a request that is sent again first
        }
    )

    def __init__(self, cluster: Cluster, topic: Topic, partition: int, *, timeout_ms: int = 10_000) -> None:
        self._cluster, self._topic, self._partition = cluster, topic, partition
        self._timeout_ms = timeout_ms
        self._lane_epoch = 0
        self._record: OwnerRecord | None = None
        self.connection = partition + 1_000 * len(topic.name)
        self.sent = 0
        self.acked: dict[int, int] = {}  # number → offset
        self.retries: defaultdict[str, int] = defaultdict(int)
        self.stopping = False

    async def run(self) -> None:
        while not self.stopping:
            await self.window()

    async def window(self) -> None:
        """Bring the next few records to their acknowledgement."""
        waiting = list(range(self.sent, self.sent + self.IN_FLIGHT))
        self.sent += self.IN_FLIGHT
        async with asyncio.timeout(PATIENCE_S * 2):
            while waiting:
                waiting = await self._try(waiting)

    async def _try(self, numbers: list[int]) -> list[int]:
        node = await self._target()
        if node is None:
            await asyncio.sleep(0.02)
            return numbers
        answers = await asyncio.gather(
            *(
                node.send(
                    self._topic,
                    self._partition,
                    batch(b"%d" % n, pid=self._partition + 1, epoch=0, seq=n),
                    connection=self.connection,
                    lane_epoch=self._lane_epoch,
                    timeout_ms=self._timeout_ms,
                )
                for n in numbers
            )
        )
        again = [n for n, answer in zip(numbers, answers, strict=True) if not self._take(n, answer)]
        if any(answer.status is ReplyStatus.NOT_OWNER for answer in answers):
            self._lane_epoch += 1
        if again:
            await asyncio.sleep(0.02)
        return again

    def _take(self, number: int, answer: Answer) -> bool:
        if answer.response is None:
            self.retries["LOST"] += 1
            return False
        if answer.error is ErrorCode.NONE:
            self.acked[number] = answer.base_offset
            return True
        assert answer.error in self.RETRIED, answer.error.name
        if answer.status is not ReplyStatus.NOT_OWNER:
            self.retries[answer.error.name] += 1
        return False

    async def _target(self) -> Node | None:
        """As the contract of front doors says: the live owner, the promised one, the preferred one."""
        with suppress(EtcdError):  # a front door goes on with what its watch reported last
            self._record = await self._cluster.owner(self._topic, self._partition)
        record = self._record
        live = [node for node in self._cluster.nodes if node.is_live]
        for node in live:
            if record and record.owner == node.id:
                return node
        for node in live:
            if record and record.handoff_to == str(node.number):
                return node
        ready = [node for node in live if node.registration.instance.is_ready]
        return preferred(self._topic, self._partition, ready) if ready else None

    async def check(self) -> None:
        """Everything sent was acknowledged, and is in the log once, in order, where the answer said."""
        assert sorted(self.acked) == list(range(self.sent))
        log = await self._cluster.log(self._topic, self._partition)
        assert log == [b"%d" % n for n in range(self.sent)]
        assert all(offset == number for number, offset in self.acked.items())


class Load:
    """Producers for all partitions of a topic, running in the background."""

    def __init__(self, cluster: Cluster, topic: Topic, **options: Any) -> None:
        self.producers = [Producer(cluster, topic, n, **options) for n in range(topic.partitions)]

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(producer.run()) for producer in self.producers]
        return self

    async def __aexit__(self, *failure: object) -> None:
        for producer in self.producers:
            producer.stopping = True
        if failure[0] is not None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            return
        await asyncio.gather(*self._tasks)
        for producer in self.producers:
            await producer.check()

    @property
    def acked(self) -> int:
        return sum(len(producer.acked) for producer in self.producers)

    async def progress(self, records: int = 100) -> None:
        """Until `records` more are acknowledged, and at least one window in every partition."""
        goal = self.acked + records
        each = [len(producer.acked) for producer in self.producers]

        def done() -> bool:
            if any(task.done() for task in self._tasks):
                return True  # a failed producer: its exception is raised on leaving
            return self.acked >= goal and all(
                len(producer.acked) > before for producer, before in zip(self.producers, each, strict=True)
            )

        await until(done, f"{records} more acknowledged", PATIENCE_S * 2)
