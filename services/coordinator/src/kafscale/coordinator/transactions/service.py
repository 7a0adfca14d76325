"""Composition of what coordinates transactional ids: the ids of this instance, proofs of their slots, and the ends of
what they have decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from kafscale.coordinator.groups.joins import GroupJoins
from kafscale.coordinator.producer_ids import ProducerIdBlocks
from kafscale.coordinator.settings import CoordinatorSettings
from kafscale.coordinator.slots import Held, World
from kafscale.coordinator.transactions.actor import DECISIONS
from kafscale.coordinator.transactions.closing import ANSWERS, Closing, Targets
from kafscale.coordinator.transactions.model import Phase, Rules
from kafscale.coordinator.transactions.proofs import Proofs
from kafscale.coordinator.transactions.registry import Surroundings, TransactionalIds
from kafscale.coordinator.transactions.serving import Joins
from kafscale.runtime.etcd_space import EtcdSpace
from kafscale.runtime.metrics import Metrics, Row
from kafscale.runtime.process import Runtime
from kafscale.runtime.transactions.calling import CoordinatorCalls, ParticipantCalls
from kafscale.runtime.transactions.channels import Channels
from kafscale.runtime.transactions.serving import ServesEnds
from kafscale.storage.keys import SlotId
from kafscale.storage.membership.members import LiveView
from kafscale.storage.owner_views import OwnersView
from kafscale.storage.slots import Slot
from kafscale.storage.views import PrefixView

UNFINISHED: Final = (Phase.ONGOING, Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT)


class Transactions:
    """Made only if transactions are on: without them, no key and no instance of theirs is watched."""

    def __init__(
        self,
        runtime: Runtime[CoordinatorSettings],
        world: World,
        *,
        space: EtcdSpace,
        producer_ids: ProducerIdBlocks,
        held: Callable[[SlotId], Held | None],
        fenced: Callable[[Held], None],
        is_fresh: Callable[[], bool],
        group_ends: ServesEnds,
    ) -> None:
        """`group_ends`: carries out ends for groups of this instance."""
        self._runtime = runtime
        begin = runtime.task_group.create_task
        self.owners = OwnersView(runtime.etcd, runtime.keyspace)
        self.producers = LiveView(runtime.etcd, runtime.keyspace, "produce")
        coordinators = Channels(world.live, runtime.dial, begin)
        self.channels = (Channels(self.producers, runtime.dial, begin), coordinators)
        self.closing = Closing(
            targets=Targets(
                me=world.me,
                keyspace=runtime.keyspace,
                owners=self.owners,
                producers=self.producers,
                table=world.table,
                coordinators=world.live,
                held=held,
            ),
            calls=ParticipantCalls(*self.channels),
            local=group_ends,
            topics=runtime.topics,
            clock=runtime.clock,
            ended=lambda name, event: self.ids.ended(name, event),
            begin=begin,
        )
        around = Surroundings(
            keyspace=runtime.keyspace,
            committer=world.committer,
            clock=runtime.clock,
            space=space,
            proofs=Proofs(runtime.etcd, runtime.keyspace, fenced, begin),
            held=held,
            fenced=fenced,
            is_fresh=is_fresh,
            draw=producer_ids.draw,
            closing=self.closing.put,
            begin=begin,
        )
        rules = Rules(expiration_ms=runtime.settings.transactional_id_expiration_ms)
        self.ids = TransactionalIds(around, rules)
        self.joins = Joins(self.ids, runtime.clock)
        self.group_joins = GroupJoins(
            CoordinatorCalls(coordinators, partial(_claim, world)), self.joins, held
        )

    @property
    def views(self) -> dict[str, PrefixView[Any]]:
        return {"owners": self.owners, "live_produce": self.producers.view}

    async def start(self) -> None:
        """Starts the views first, then the tasks that use them."""
        tasks = self._runtime.task_group
        tasks.create_task(self.owners.run(), name="owners")
        tasks.create_task(self.producers.run(), name="live-produce")
        await self.owners.ready()
        await self.producers.loaded()
        tasks.create_task(self.closing.run(), name="closing")
        tasks.create_task(self.ids.run(), name="transactional-ids")

    async def close(self) -> None:
        for channels in self.channels:
            await channels.close()


def _claim(world: World, slot_id: SlotId) -> Slot | None:
    seen = world.table.items.get(world.keyspace.slot_claim(slot_id))
    return None if seen is None else seen.slot


def watch_transactions(metrics: Metrics, found: Transactions | None) -> None:
    """Without transactions every metric says 0."""

    def decided() -> Iterator[Row]:
        for decision in DECISIONS:
            yield decision, 0 if found is None else found.ids.decisions[decision]

    def unfinished() -> Iterator[Row]:
        counts = Counter[Phase]() if found is None else found.ids.by_phase()
        for phase in UNFINISHED:
            yield (phase.value,), counts[phase]

    def ends() -> Iterator[Row]:
        for answer in ANSWERS:
            yield (answer,), 0 if found is None else found.closing.answers[answer]

    metrics.watch_each("transactions_decided_total", decided)
    metrics.watch_each("transactions", unfinished)
    metrics.watch_each("transaction_ends_total", ends)
    metrics.watch("transactional_ids", lambda: 0 if found is None else found.ids.count)
    metrics.watch("transactional_ids_unreadable", lambda: 0 if found is None else found.ids.unreadable_count)
    metrics.watch("transactions_closing", lambda: 0 if found is None else found.closing.count)
    metrics.watch(
        "transactions_closing_oldest_seconds", lambda: 0 if found is None else found.closing.oldest_s()
    )
