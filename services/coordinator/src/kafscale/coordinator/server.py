"""Composition: producer id blocks, the view of front doors, slots of groups, one handler per API."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from types import FunctionType

from kafscale.coordinator import handlers
from kafscale.coordinator.consumer.model import TopicInfo, Topics
from kafscale.coordinator.consumer.subscriptions import Expressions
from kafscale.coordinator.context import CoordinatorContext
from kafscale.coordinator.groups.classic_type import ClassicGroupType
from kafscale.coordinator.groups.commits import Commits
from kafscale.coordinator.groups.consumer_type import ConsumerGroupType
from kafscale.coordinator.groups.ends import GroupEnds
from kafscale.coordinator.groups.group_configs import GroupConfigView
from kafscale.coordinator.groups.line import Lines
from kafscale.coordinator.groups.offset_expiration import OffsetExpiration
from kafscale.coordinator.groups.registry import GROUP_STATES, Groups
from kafscale.coordinator.groups.running_clock import RunningClock
from kafscale.coordinator.groups.transaction_offsets import TransactionOffsets
from kafscale.coordinator.producer_ids import ProducerIdBlocks
from kafscale.coordinator.settings import CoordinatorSettings
from kafscale.coordinator.slots import Contents, Slots, World, slot_table
from kafscale.coordinator.transactions.proofs import Proofs
from kafscale.coordinator.transactions.service import Transactions, watch_transactions
from kafscale.runtime.authorization import enforced
from kafscale.runtime.committer import CommitMetrics, Committer
from kafscale.runtime.etcd_space import EtcdSpace
from kafscale.runtime.metrics import Metrics, Row
from kafscale.runtime.process import Runtime, ServiceParts
from kafscale.runtime.process_metrics import watch_views
from kafscale.runtime.stream.apis import exported
from kafscale.runtime.stream.server import task_handler
from kafscale.storage.membership.members import LiveView
from kafscale.storage.slots import ROLE
from kafscale.storage.system import monotonic_s
from kafscale.storage.topics import Topic, TopicState, TopicsView
from kafscale.wire.apis import ApiKey

HEARTBEATS = frozenset({ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT})
"""The most frequent requests. Most of them are answered without waiting."""
OF_TRANSACTIONS = frozenset(
    {
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    }
)
"""Answered only while transactions are on. InitProducerId then takes transactional ids."""
GROUP_CALLS_MAX = 100_000
"""Joins and Syncs wait for whole rebalances, each in a task. The limits of the streams are reached earlier."""


class Coordination:
    """Builds and runs the components of the group coordinator."""

    def __init__(self, runtime: Runtime[CoordinatorSettings], front_doors: LiveView) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._topics: Topics = {}
        self._topics_scheduled = False
        self.clock = RunningClock(runtime.clock, self._is_fresh)
        self.live = LiveView(runtime.etcd, runtime.keyspace, ROLE)
        self.table = slot_table(runtime.etcd, runtime.keyspace)
        self.committer = Committer(runtime.etcd, clock=runtime.clock, metrics=CommitMetrics(runtime.metrics))
        self.space = EtcdSpace(runtime.etcd, settings.etcd_quota_bytes)
        self.group_configs = GroupConfigView(runtime.etcd, runtime.keyspace, settings.consumer_rules())
        self.expressions = Expressions(runtime.authorization.authorizer, self._schedule_topics)
        self.groups = self._groups()
        world = World(
            etcd=runtime.etcd,
            keyspace=runtime.keyspace,
            live=self.live,
            table=self.table,
            committer=self.committer,
            me=runtime.registration.instance.id,
        )
        lines = Lines(runtime.keyspace, self.committer, lambda held: self.slots.lost(held))
        self.transaction_offsets = self._transaction_offsets(lines)
        self.group_ends = GroupEnds(self.groups, self.transaction_offsets)
        self.producer_ids = ProducerIdBlocks(runtime.etcd, runtime.keyspace, runtime.clock)
        self.transactions = self._transactions(world)
        self.slots = Slots(world, self._contents(), runtime.task_group.create_task)
        self.commits = Commits(runtime.etcd, runtime.keyspace, lines, self.slots.lost)
        self.context = CoordinatorContext(
            front_doors=front_doors,
            producer_ids=self.producer_ids,
            topics=runtime.topics,
            clock=self.clock,
            slots=self.slots,
            groups=self.groups,
            commits=self.commits,
            transaction_offsets=self.transaction_offsets,
            settings=settings,
            authorization=runtime.authorization,
            follow_acls=self.expressions.follow_acls,
            transactional_ids=None if self.transactions is None else self.transactions.ids,
            group_joins=None if self.transactions is None else self.transactions.group_joins,
        )
        self.offset_expiration = OffsetExpiration(self.context)
        runtime.topics.subscribe(self._topic_changed)
        self._watch(runtime.metrics)

    def _transactions(self, world: World) -> Transactions | None:
        if not self._runtime.settings.transactions:
            return None
        return Transactions(
            self._runtime,
            world,
            space=self.space,
            producer_ids=self.producer_ids,
            held=lambda slot_id: self.slots.held(slot_id),
            fenced=lambda held: self.slots.lost(held),
            is_fresh=self._is_fresh,
            group_ends=self.group_ends,
        )

    def _contents(self) -> Sequence[Contents]:
        if self.transactions is None:
            return (self.groups,)
        return (self.groups, self.transaction_offsets, self.transactions.ids)

    def _transaction_offsets(self, lines: Lines) -> TransactionOffsets:
        runtime = self._runtime
        proofs = Proofs(
            runtime.etcd,
            runtime.keyspace,
            lambda held: self.slots.lost(held),
            runtime.task_group.create_task,
        )
        return TransactionOffsets(runtime.keyspace, lines, proofs, runtime.topics)

    def _groups(self) -> Groups:
        runtime, settings = self._runtime, self._runtime.settings
        return Groups(
            keyspace=runtime.keyspace,
            committer=self.committer,
            clock=self.clock,
            classic_type=ClassicGroupType(settings.classic_rules()),
            consumer_type=ConsumerGroupType(
                self.group_configs.of, lambda: self._topics, self.expressions.sees
            ),
            held=lambda slot_id: self.slots.held(slot_id),
            fenced=lambda held: self.slots.lost(held),
            space=self.space,
            groups_max=settings.groups_max,
        )

    def _is_fresh(self) -> bool:
        return self._runtime.registration.is_fresh(monotonic_s())

    def _watch(self, metrics: Metrics) -> None:
        self.space.watch(metrics)
        metrics.watch("slots", lambda: self.slots.held_count)
        metrics.watch("slots_lost_total", lambda: self.slots.lost_count)
        metrics.watch_each("groups", self._by_state)
        metrics.watch("rebalances_total", lambda: self.groups.rebalances)
        metrics.watch("offsets_unreadable_total", lambda: self.commits.unreadable_met)
        metrics.watch("groups_unreadable", lambda: self.groups.unreadable_count)
        metrics.watch("pending_offsets", lambda: self.transaction_offsets.count)
        metrics.watch("pending_offsets_unreadable", lambda: self.transaction_offsets.unreadable_count)
        watch_transactions(metrics, self.transactions)

    def _by_state(self) -> Iterator[Row]:
        """Reports every state, also those without groups: a missing metric would not say 0."""
        counts = Counter(self.groups.state_of(actor) for actor in self.groups.all())
        for state in GROUP_STATES:
            yield (state,), counts[state]

    async def start(self) -> None:
        """Starts the views first, then the tasks that use them."""
        tasks = self._runtime.task_group
        tasks.create_task(self.live.run(), name="live-view")
        tasks.create_task(self.table.run(), name="slot-table")
        tasks.create_task(self.group_configs.view.run(), name="group-configs")
        tasks.create_task(self.clock.run(), name="running-clock")
        tasks.create_task(self.committer.run(), name="committer")
        tasks.create_task(self.space.run(), name="etcd-space")
        await self.live.loaded()
        await self.table.ready()
        await self.group_configs.view.ready()
        await self._runtime.topics.ready()
        self._topics = _active_topics(self._runtime.topics)
        if self.transactions is not None:
            await self.transactions.start()
        tasks.create_task(self.slots.run(), name="slots")
        tasks.create_task(self.offset_expiration.run(), name="offset-expiration")

    async def drain(self) -> None:
        await self.slots.drain(self._runtime.settings.drain_timeout_ms / 1000)

    def _topic_changed(self, _name: str, _topic: Topic | None) -> None:
        self._schedule_topics()

    def _schedule_topics(self) -> None:
        """Schedules one update for all changes of this event loop iteration: 2,000 topics may change at once."""
        if not self._topics_scheduled:
            self._topics_scheduled = True
            asyncio.get_running_loop().call_soon(self._publish_topics)

    def _publish_topics(self) -> None:
        self._topics_scheduled = False
        self._topics = _active_topics(self._runtime.topics)
        self.groups.topics_changed(self._topics)


def _active_topics(topics: TopicsView) -> Topics:
    return {
        topic.name: TopicInfo(topic.topic_id, topic.partitions)
        for topic in topics.all()
        if topic.state is TopicState.ACTIVE
    }


@asynccontextmanager
async def build(runtime: Runtime[CoordinatorSettings]) -> AsyncIterator[ServiceParts]:
    front_doors = LiveView(runtime.etcd, runtime.keyspace, "frontdoor")
    coordination = Coordination(runtime, front_doors)
    transactions = coordination.transactions
    watch_views(
        runtime.metrics,
        topics=runtime.topics.view,
        slots=coordination.table,
        live_coordinator=coordination.live.view,
        live_frontdoor=front_doors.view,
        **runtime.access.views,
        **({} if transactions is None else transactions.views),
    )
    watching = runtime.task_group.create_task(front_doors.run(), name="front-doors")

    async def ready() -> None:
        await front_doors.loaded()
        await coordination.start()

    control = {
        key: task_handler(
            make(coordination.context),
            runtime.task_group,
            concurrent_max=GROUP_CALLS_MAX,
            prompt=key in HEARTBEATS,
        )
        for key, make in exported(handlers, "handler", FunctionType).items()
        if transactions is not None or key not in OF_TRANSACTIONS
    }
    enforced(handlers, control)
    try:
        yield ServiceParts(
            control=control,
            before_ready=ready,
            drain=coordination.drain,
            ends=None if transactions is None else coordination.group_ends,
            joins=None if transactions is None else transactions.joins,
        )
    finally:
        watching.cancel()
        if transactions is not None:
            await transactions.close()
