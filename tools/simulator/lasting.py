"""One trouble that lasts, after all other faults: the store takes no PUT, objects are lost, etcd is full, or
all instances of produce are restarted in turn on a busy machine.

Nothing else goes wrong meanwhile, so laws about time can be judged. What refuses gets few claims. Readers are served
while only writes are refused. A bystander, that is a partition without a record in a lost object, is written as ever.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from kafscale.storage.keys import PartitionKey
from kafscale.storage.objects import StoreFull, StoreRefused
from kafscale.testkit.etcd_model.server import NODE as ETCD
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_records

from tools.simulator.churn import come_and_go
from tools.simulator.clients import TOPIC, Client, Producer, Records, create, judge
from tools.simulator.faults import Fault, etcd_full
from tools.simulator.lost_objects import KEYS, Loss, give_back, heads, lose, places
from tools.simulator.memory import oldest_place_s
from tools.simulator.world import World

BYSTANDERS: Final = "bystanders"
BYSTANDERS_COUNT: Final = 4
CROWD: Final = 16
CROWD_PACE_S: Final = 0.5
CROWD_S: Final = 8.0
"""Before the objects are lost."""
LOST_AT_ONCE: Final = 8
RECOVERY_S: Final = 20.0
"""After the faults, before the trouble begins."""
CLAIMS_MAX: Final = 20
"""Of one instance, while the store takes no PUT: it tries again after waits that double up to half a minute."""
SILENCE_MAX_S: Final = 30.0
"""Of a bystander, and of a reader; and for as long may a bundle be in flight. A PUT of a thin store takes seconds."""
SLOW_S: Final = (0.0, 0.5)
HURRIED: Final = 6
RESTART_EVERY_S: Final = 7.0
STANDS_S: Final = (0.02, 0.6)
RUNS_S: Final = 0.05
THIN_S: Final = (0.2, 3.0)
BYSTANDER_PACE_S: Final = 1.0
PATIENCE_MS: Final = 20_000
LOOK_S: Final = 1.0
DELETE_RECORDS_V: Final = 1

Begin = Callable[[str, Callable[[Client], Awaitable[None]]], object]
"""Starts a client with this name."""


@dataclass(eq=False)
class Lasting:
    world: World
    records: Records
    partitions: int
    instances: int
    """Of produce."""
    chance: random.Random
    begin: Begin
    bystanders: Records = field(default_factory=lambda: Records(topic=BYSTANDERS))

    async def run(self, kind: str, lasts_s: float) -> None:
        await asyncio.sleep(RECOVERY_S)
        self.world.note(f"** from now on only one trouble, for {lasts_s:.0f} s: {kind}")
        await TROUBLES[kind](self, lasts_s)
        self.world.note("** it is over")

    async def judge(self, client: Client) -> None:
        """At the end of the run."""
        if self.bystanders.history.sent:
            await judge(client, self.bystanders, BYSTANDERS_COUNT)
            self.records.broken += self.bystanders.broken

    # -- the store takes no PUT ------------------------------------------------------------------------

    async def store_refuses(self, lasts_s: float) -> None:
        store, epochs, claims = self.world.store, dict[PartitionKey, int](), 0
        self.world.slow[ETCD] = SLOW_S  # so that commits are under way when PUTs are refused
        await self._begin_crowd()
        store.refusal = self.chance.choice((StoreFull, StoreRefused))
        read = self.records.fetched.copy()
        async for _ in self._looks(lasts_s):
            now = {where: head.epoch for where, head in heads(self.world).items()}
            claims += sum(epoch - epochs.get(where, epoch) for where, epoch in now.items())
            epochs = now
            self._not_silent(self.records.fetched, read, "no Fetch is answered")
        store.refusal = None
        del self.world.slow[ETCD]
        self.records.counts["claims while the store refused"] += claims
        if claims > CLAIMS_MAX * self.instances:
            self.records.broken.append(f"claims: {claims} in {lasts_s:.0f} s in which the store took no PUT")

    # -- objects are lost ------------------------------------------------------------------------------

    async def objects_lost(self, lasts_s: float) -> None:
        for loss in await self._lost(lasts_s, {BYSTANDERS}):
            give_back(self.world, loss)

    async def objects_lost_for_good(self, lasts_s: float) -> None:
        """In the end an operator deletes the records of the partitions that name it, as docs/protocol/damage.md says.
        Those are excused, and no others."""
        others = {head.topic for head in heads(self.world).values() if head.topic != TOPIC}
        starts = self.records.starts
        for loss in await self._lost(lasts_s, others | {BYSTANDERS}):
            if KEYS.parse_bundle(loss.key) is None:
                give_back(self.world, loss)
                continue
            self.world.store.objects.discard(loss.key)
            for (_, partition), seg in places(self.world).get(loss.key, []):
                starts[partition] = max(seg.end, starts.get(partition, 0))
        for partition, end in starts.items():
            self.world.note(f"** the records of {TOPIC}/{partition} below {end} are deleted")

            async def delete(client: Client, partition: int = partition, end: int = end) -> None:
                client.timeout_s = PATIENCE_MS / 1000  # a full tail holds it up for a second
                await delete_below(client, TOPIC, partition, end)

            self.begin(f"operator-{partition}", delete)

    async def _lost(self, lasts_s: float, others: set[str]) -> list[Loss]:
        """`others`: topics that have no record in the objects."""
        await self._begin_bystanders()
        self.world.store.put_s = THIN_S
        await self._begin_crowd()
        spared = frozenset(where for where, head in heads(self.world).items() if head.topic in others)
        found = [lose(self.world, self.chance, spared, most=True) for _ in range(LOST_AT_ONCE)]
        lost = [loss for loss in found if loss is not None]
        self.records.counts["lost objects"] += len(lost)
        answered, stuck = self.bystanders.answered.copy(), dict[str, float]()
        async for _ in self._looks(lasts_s):
            self._places_are_given_back(stuck)
            self._not_silent(
                self.bystanders.answered,
                answered,
                f"no Produce is answered, while only {[loss.key for loss in lost]} are lost",
            )
        self.world.store.put_s = None
        return lost

    def _places_are_given_back(self, stuck: dict[str, float]) -> None:
        """A slice that waits for settling may wait for ever. `stuck`: the breaches that were named."""
        for node, service in self.world.services.items():
            age_s = oldest_place_s(service)
            if age_s > SILENCE_MAX_S and node not in stuck:
                stuck[node] = age_s
                self.records.broken.append(f"place: {node}: a bundle is in flight for {age_s:.0f} s")

    async def _begin_bystanders(self) -> None:
        for number in range(BYSTANDERS_COUNT):

            async def write(client: Client, number: int = number) -> None:
                client.timeout_s, client.pace_s = PATIENCE_MS / 1000, BYSTANDER_PACE_S
                await create(client, BYSTANDERS, BYSTANDERS_COUNT, tries_max=1)
                name = f"bystander-{number}"
                await Producer(
                    client,
                    self.bystanders,
                    name,
                    BYSTANDERS_COUNT,
                    False,
                    only=number,
                    timeout_ms=PATIENCE_MS,
                ).run()

            self.begin(f"bystander-{number}", write)
        async for _ in self._looks(SILENCE_MAX_S):
            if len(self.bystanders.answered) == BYSTANDERS_COUNT:
                return
        self.records.broken.append(
            f"silence: only {list(self.bystanders.answered)} of the bystanders are answered"
        )

    async def _begin_crowd(self) -> None:
        for number in range(CROWD):
            self.begin(f"crowd-{number}", self._crowd)
        await asyncio.sleep(CROWD_S)

    async def _crowd(self, client: Client) -> None:
        client.pace_s = CROWD_PACE_S
        await Producer(client, self.records, client.name, self.partitions, False).run()

    # -- etcd is full ----------------------------------------------------------------------------------

    async def etcd_full(self, lasts_s: float) -> None:
        await etcd_full(self.world, Fault(at_s=0.0, kind="etcd full", nodes=(ETCD,), lasts_s=lasts_s))

    # -- a rolling restart -----------------------------------------------------------------------------

    async def rolling_restart(self, lasts_s: float) -> None:
        """Topics are deleted while their partitions are handed over, and processes handle both in one turn."""
        for number in range(HURRIED):
            self.begin(f"hurried-{number}", come_and_go)
        nodes, end_s = sorted(self.world.services), self.world.loop.time() + lasts_s
        while self.world.loop.time() < end_s:
            for node in nodes:
                self.world.note(f"** {node} is stopped")
                self.world.stop(node)
                await self._stutter(nodes, RESTART_EVERY_S)

    async def _stutter(self, nodes: list[str], lasts_s: float) -> None:
        end_s = self.world.loop.time() + lasts_s
        while self.world.loop.time() < end_s:
            for node in nodes:
                self.world.pause(node)
            await asyncio.sleep(self.chance.uniform(*STANDS_S))
            for node in nodes:
                self.world.resume(node)
            await asyncio.sleep(RUNS_S)

    # ------------------------------------------------------------------------------------------------

    async def _looks(self, lasts_s: float) -> AsyncIterator[None]:
        end_s = self.world.loop.time() + lasts_s
        while self.world.loop.time() < end_s:
            yield
            await asyncio.sleep(LOOK_S)

    def _not_silent(self, last: dict[int, float], before: dict[int, float], what: str) -> None:
        """`last`: when each partition had its last answer. Each silence is named once."""
        now_s = self.world.loop.time()
        for partition, at_s in last.items():
            if now_s - at_s > SILENCE_MAX_S and before.get(partition) != -1.0:
                before[partition] = -1.0
                self.records.broken.append(
                    f"silence: partition {partition}: {what}, for {now_s - at_s:.0f} s"
                )


async def delete_below(client: Client, topic: str, partition: int, offset: int) -> None:
    """Until it is done, or the topic is gone."""
    part = delete_records.DeleteRecordsRequestPartition(partition_index=partition, offset=offset)
    request = delete_records.DeleteRecordsRequest(
        topics=[delete_records.DeleteRecordsRequestTopic(name=topic, partitions=[part])], timeout_ms=5_000
    )
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    while code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OFFSET_OUT_OF_RANGE):
        answer = await client.patiently(delete_records, DELETE_RECORDS_V, request)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        await client.rest()


BUNDLES: Final = {"bundle_direct_bytes": 1 << 20, "segment_bytes": 4 << 20}
"""Large batches are in no bundle."""
NEEDS: Final[dict[str, dict[str, int]]] = {
    "the store takes no PUT": {**BUNDLES, "settle_keep_bytes": 64 << 20},
    "objects are lost": {**BUNDLES, "settle_keep_bytes": 0},
    "objects are lost for good": {**BUNDLES, "settle_keep_bytes": 0},
}
"""Settings. An owner that keeps batches in memory settles them without the object."""

TROUBLES: Final[dict[str, Callable[[Lasting, float], Awaitable[None]]]] = {
    "the store takes no PUT": Lasting.store_refuses,
    "objects are lost": Lasting.objects_lost,
    "objects are lost for good": Lasting.objects_lost_for_good,
    "etcd is full": Lasting.etcd_full,
    "a rolling restart": Lasting.rolling_restart,
}
