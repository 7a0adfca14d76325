"""The composition root: builds the produce service on a runtime, and takes it down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from kafscale.produce import handlers
from kafscale.produce.asked_partitions import AskedPartitions
from kafscale.produce.bundles.bundler import Bundled, Bundler
from kafscale.produce.bundles.cleaner import Cleaner
from kafscale.produce.bundles.deletion import OwnBundles
from kafscale.produce.bundles.gather import Gather, TokenBucket
from kafscale.produce.checkpoint import Checkpointer, Merges
from kafscale.produce.coordinators import Coordinators
from kafscale.produce.ends import Ends
from kafscale.produce.handlers.describe_producers import DescribeProducersHandler
from kafscale.produce.handlers.produce import ProduceHandler
from kafscale.produce.handlers.write_txn_markers import WriteTxnMarkersHandler
from kafscale.produce.handoff import Handoffs
from kafscale.produce.joins import Joins
from kafscale.produce.log.model import Instant
from kafscale.produce.log.producer_budget import ProducerBudget
from kafscale.produce.log.settling import KeptBudget
from kafscale.produce.log_starts import LogStarts
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.open_transactions import OpenTransactions
from kafscale.produce.opener import ConversionLine, Opener
from kafscale.produce.ownership import Ownership, World
from kafscale.produce.partition import Partition, Tools
from kafscale.produce.penalties import ClaimPenalties
from kafscale.produce.pieces import Pieces
from kafscale.produce.pump import Driven, Pump
from kafscale.produce.puts import BundlePuts, Origin, Pace, Uploader
from kafscale.produce.recovery import Recovery
from kafscale.produce.requests import Admission, AppendOrder, LaneOrder, UnknownTopics
from kafscale.produce.settings import (
    ProduceSettings,
    bundles_per_s,
    gather_limits,
    limits_of,
    marker_bundles_per_s,
    producer_bounds,
)
from kafscale.produce.settle_requests import SettleRequests, SliceAge
from kafscale.produce.settler import Settler
from kafscale.produce.shared_fills import BundleFills
from kafscale.runtime.authorization import enforced
from kafscale.runtime.committer import Committer
from kafscale.runtime.process import Runtime, ServiceParts
from kafscale.runtime.process_metrics import watch_views
from kafscale.runtime.shared_cache import SharedCache
from kafscale.runtime.stream.server import task_handler
from kafscale.storage.membership.members import LiveView
from kafscale.storage.owner_views import OwnersView
from kafscale.storage.system import random_bytes
from kafscale.wire.apis import ApiKey

ROLE = "produce"
BUNDLES_BURST = 20


fresh_id = partial(random_bytes, 16)


@asynccontextmanager
async def build(runtime: Runtime[ProduceSettings]) -> AsyncIterator[ServiceParts]:
    """The parts of one instance; their tasks live in the runtime's group."""
    service = ProduceService(runtime)
    try:
        yield service.parts()
    finally:
        await service.close()


class ProduceService:
    """One instance. Holds the parts together; what they do is in their modules."""

    def __init__(self, runtime: Runtime[ProduceSettings]) -> None:
        self._runtime = runtime
        self._metrics = ProduceMetrics(runtime.metrics)
        self._append_order = AppendOrder()
        self._producer_budget = ProducerBudget(runtime.settings.produce_producer_bytes)
        self.live = LiveView(runtime.etcd, runtime.keyspace, ROLE)
        self.owners = OwnersView(runtime.etcd, runtime.keyspace)
        self.coordinators = Coordinators(runtime) if runtime.settings.transactions else None
        self.log_starts = LogStarts(runtime.etcd, runtime.keyspace, lambda: self.ownership.partitions)
        self.settle_requests = SettleRequests(runtime.etcd, runtime.keyspace)
        self.committer = self._committer()
        self.ownership = self._ownership()
        self.handoffs = Handoffs(
            self.ownership,
            per_s=runtime.settings.produce_handoffs_per_s,
            clock=runtime.clock,
            metrics=self._metrics,
        )
        self.pump = Pump(runtime.clock)
        self.pace = Pace(runtime.store, runtime.clock, puts_max=runtime.settings.produce_puts_max)
        self.slice_age = SliceAge(runtime.clock)
        self.open_transactions = OpenTransactions(runtime.clock)
        self.own_bundles = OwnBundles(runtime.settings.bundle_grace_ms)
        self.cleaner = self._cleaner()
        self.ownership.tools = self._tools()
        asked = AskedPartitions(self.ownership)
        self.describe_producers = DescribeProducersHandler(asked, runtime.clock)
        self.conversions = ConversionLine(runtime.task_group)
        self.handler = ProduceHandler(
            ownership=self.ownership,
            admission=Admission(runtime.budget, self.committer, runtime.history),
            lane_order=LaneOrder(),
            append_order=self._append_order,
            unknown_topics=UnknownTopics(runtime.topics),
            conversions=self.conversions,
            clock=runtime.clock,
            timeout_min_ms=runtime.settings.produce_timeout_min_ms,
            transactions=runtime.settings.transactions,
        )
        self.ends = Ends(self.ownership, clock=runtime.clock, metrics=self._metrics)
        self.write_txn_markers = (
            None
            if self.coordinators is None
            else WriteTxnMarkersHandler(asked, self.coordinators.calls, self.ends)
        )
        self._watch_gauges()
        runtime.topics.subscribe(self._metrics.topics.changed)

    def _committer(self) -> Committer:
        runtime = self._runtime
        return Committer(
            runtime.etcd, clock=runtime.clock, metrics=self._metrics.commits, history=runtime.history
        )

    def _bundler(self, shared: SharedCache | None) -> Bundler:
        runtime, settings = self._runtime, self._runtime.settings
        now_ms = runtime.clock.now_ms()
        heads = settings.head_commits_per_s
        gather: Gather[Bundled] = Gather(
            gather_limits(settings),
            bundles=TokenBucket(bundles_per_s(settings, runtime.store), BUNDLES_BURST, now_ms),
            heads=TokenBucket(heads, heads, now_ms),
            markers=TokenBucket(marker_bundles_per_s(settings, runtime.store), BUNDLES_BURST, now_ms),
        )
        self.live.subscribe(lambda: gather.share(len(self.live.ready()), runtime.clock.now_ms()))
        bundler = Bundler(
            gather,
            self.own_bundles,
            puts=self._bundle_puts(),
            clock=runtime.clock,
            metrics=self._metrics,
            fills=BundleFills(shared),
            begin=self._begin,
            touch=self.pump.touch,
            wake=self.pump.wake,
            suspect=runtime.history.suspect,
        )

        def after_drives(touched: Iterable[Driven], now: Instant) -> None:
            bundler.drive((each for each in touched if isinstance(each, Partition)), now)

        self.pump.after = after_drives
        return bundler

    def _bundle_puts(self) -> BundlePuts:
        runtime, me = self._runtime, self._runtime.registration.instance.id
        return BundlePuts(
            runtime.store,
            self.pace,
            runtime.keyspace,
            Origin(runtime.etcd, runtime.keyspace, runtime.clock, owner=me),
            clock=runtime.clock,
            metrics=self._metrics,
        )

    def _cleaner(self) -> Cleaner:
        runtime = self._runtime
        return Cleaner(
            self.own_bundles,
            history=runtime.history,
            store=runtime.store,
            keyspace=runtime.keyspace,
            clock=runtime.clock,
            owned=lambda: self.ownership.partitions,
            ask_every_s=runtime.settings.settle_ms / 1000,
            grace_s=runtime.settings.bundle_grace_ms / 1000,
        )

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._runtime.task_group.create_task(work)

    def _ownership(self) -> Ownership:
        runtime = self._runtime
        settings, store = runtime.settings, runtime.store
        world = World(
            etcd=runtime.etcd,
            keyspace=runtime.keyspace,
            topics=runtime.topics,
            live=self.live,
            owners=self.owners,
            history=runtime.history,
            me=runtime.registration.instance.id,
        )
        return Ownership(
            world,
            recovery=Recovery(store, runtime.keyspace, producer_bounds(settings)),
            limits=lambda topic: self.settle_requests.limits(limits_of(topic, settings), topic),
            fresh_id=fresh_id,
            clock=runtime.clock,
            metrics=self._metrics,
            tasks=runtime.task_group,
        )

    def _tools(self) -> Tools:
        runtime = self._runtime
        shared = runtime.open_shared_cache()
        merges = Merges(
            runtime.store,
            self.pace,
            runtime.keyspace,
            fresh_id,
            begin=runtime.task_group.create_task,
            clock=runtime.clock,
            metrics=self._metrics,
        )
        return Tools(
            uploader=Uploader(runtime.store, self.pace, runtime.clock, self._metrics),
            keyspace=runtime.keyspace,
            committer=self.committer,
            opener=Opener(Pieces(), runtime.budget, runtime.clock),
            # Pieces of its own: commits wait for a checkpoint, and it must not wait for what clients sent.
            checkpointer=Checkpointer(
                runtime.etcd, runtime.store, self.pace, runtime.keyspace, fresh_id, Pieces(), merges
            ),
            settler=Settler(
                runtime.etcd, runtime.store, self.pace, runtime.keyspace, fresh_id, Pieces(), self._metrics
            ),
            pump=self.pump,
            append_order=self._append_order,
            joins=Joins(
                None if self.coordinators is None else self.coordinators.calls,
                metrics=self._metrics,
                begin=self._begin,
            ),
            penalties=ClaimPenalties(),
            producer_budget=self._producer_budget,
            budget=runtime.budget,
            clock=runtime.clock,
            metrics=self._metrics,
            tasks=runtime.task_group,
            shared=shared,
            bundler=self._bundler(shared),
            kept=KeptBudget(runtime.settings.settle_keep_bytes),
            drained=self.handoffs.drained,
            stepped_down=self.ownership.stepped_down,
        )

    def _watch_gauges(self) -> None:
        watch = self._runtime.metrics.watch
        watch_views(
            self._runtime.metrics,
            topics=self._runtime.topics.view,
            owners=self.owners,
            live_produce=self.live.view,
            settle_requests=self.settle_requests.view,
            **({} if self.coordinators is None else self.coordinators.views),
        )
        watch("owned_partitions", self.ownership.owned_count)
        watch("head_tokens_waiting", lambda: self.ownership.tools.bundler.head_tokens_waiting)
        watch("oldest_slice_seconds", lambda: self.slice_age.seconds)
        watch("puts_total", lambda: self.pace.sent)
        watch("puts_unknown_total", lambda: self.pace.unknown)
        limit = self.pace.limit
        watch("puts_in_flight", lambda: limit.puts)
        watch("puts_in_flight_bytes", lambda: limit.bytes)
        watch("puts_waiting", lambda: limit.waiting)
        watch("puts_limit", lambda: limit.limit)
        watch("puts_limit_halved_total", lambda: limit.halved)
        watch("conversions_waiting", lambda: len(self.conversions))
        watch("marker_bundles_total", lambda: self.ownership.tools.bundler.marker_bundles)
        watch("open_transactions", lambda: self.open_transactions.count)
        watch("oldest_open_transaction_seconds", lambda: self.open_transactions.oldest_s)
        watch("transaction_joins_waiting", lambda: self.ownership.tools.joins.waiting)
        watch("producer_ids", lambda: self._producer_budget.ids)
        watch("producer_ids_bytes", lambda: self._producer_budget.used_bytes)
        watch("producer_ids_evicted_total", lambda: self._producer_budget.evicted)

    def parts(self) -> ServiceParts:
        bulk = {int(ApiKey.PRODUCE): self.handler}
        control = {
            int(ApiKey.DESCRIBE_PRODUCERS): task_handler(self.describe_producers, self._runtime.task_group)
        }
        if self.write_txn_markers is not None:
            control[int(ApiKey.WRITE_TXN_MARKERS)] = task_handler(
                self.write_txn_markers, self._runtime.task_group
            )
        enforced(handlers, (*bulk, *control))
        return ServiceParts(
            bulk=bulk,
            control=control,
            before_ready=self.start,
            drain=self.drain,
            ends=self.ends,
        )

    async def start(self) -> None:
        """Views first, then what acts on them. Predecessor's partitions are claimed by the scan."""
        tasks = self._runtime.task_group
        tasks.create_task(self.live.run(), name="live-view")
        tasks.create_task(self.owners.run(), name="owners-view")
        await self.live.loaded()
        await self.owners.ready()
        if self.coordinators is not None:
            await self.coordinators.start()
        await self._runtime.topics.ready()
        await self._runtime.history.judged()
        for name, work in (
            ("pump", self.pump.run),
            ("committer", self.committer.run),
            ("sweep", self.ownership.sweep),
            ("scan", self.ownership.scan),
            ("balance", self.handoffs.balance),
            ("clean", self.cleaner.run),
            ("log-starts", self.log_starts.run),
            ("settle-requests-view", self.settle_requests.view.run),
            ("settle-requests", self._settle_on_request),
            ("slice-age", self._watch_slice_age),
            ("open-transactions", self._watch_open_transactions),
        ):
            tasks.create_task(work(), name=name)
        self.ownership.set_stance(ready=True, draining=False)

    async def _settle_on_request(self) -> None:
        owned = self.ownership
        await self.settle_requests.apply(owned.partitions.values, owned.configure)

    async def _watch_slice_age(self) -> None:
        await self.slice_age.watch(self.ownership.partitions.values)

    async def _watch_open_transactions(self) -> None:
        await self.open_transactions.watch(self.ownership.partitions.values)

    async def drain(self) -> None:
        if self._runtime.history.stopped is not None:
            return  # nothing can be handed over
        await self.handoffs.drain(self._runtime.settings.drain_timeout_ms / 1000)

    async def close(self) -> None:
        if self.coordinators is not None:
            await self.coordinators.close()
