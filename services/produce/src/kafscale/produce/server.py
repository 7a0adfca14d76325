"""The composition root: builds the produce service on a runtime, and takes it down."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafscale.produce.admission import Admission
from kafscale.produce.checkpoint import Checkpointer
from kafscale.produce.committer import Committer
from kafscale.produce.governor import Governor
from kafscale.produce.handlers.produce import ProduceHandler
from kafscale.produce.handoff import Handoffs
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.offers import Offers
from kafscale.produce.overtaking import RefusedFirsts
from kafscale.produce.ownership import Ownership, World
from kafscale.produce.partition import Partition, Tools
from kafscale.produce.pump import Pump
from kafscale.produce.recovery import Recovery
from kafscale.produce.refusals import Refusals
from kafscale.produce.service import OwnershipService
from kafscale.produce.settings import ProduceSettings, limits_of, segments_per_s
from kafscale.produce.unseen import UnseenTopics
from kafscale.runtime.process import Runtime, ServiceParts
from kafscale.storage.etcd import KeyValue
from kafscale.storage.heads import OwnerRecord, decode_owner
from kafscale.storage.membership import LiveView
from kafscale.storage.views import PrefixView
from kafscale.wire.apis import ApiKey

ROLE = "produce"


def fresh_id() -> bytes:
    return uuid.uuid4().bytes


@asynccontextmanager
async def build(runtime: Runtime[ProduceSettings]) -> AsyncIterator[ServiceParts]:
    """The parts of one instance; their tasks live in the runtime's group."""
    service = ProduceService(runtime)
    try:
        yield service.parts()
    finally:
        await service.offers.close()


class ProduceService:
    """One instance. Holds the parts together; what they do is in their modules."""

    def __init__(self, runtime: Runtime[ProduceSettings]) -> None:
        self._runtime = runtime
        settings, store, clock, tasks = runtime.settings, runtime.store, runtime.clock, runtime.task_group
        metrics = ProduceMetrics(runtime.metrics)
        self.live = LiveView(runtime.etcd, runtime.keyspace, ROLE)
        self.owners: PrefixView[OwnerRecord] = PrefixView(
            runtime.etcd, runtime.keyspace.owners_prefix(), _decode_owner
        )
        world = World(
            etcd=runtime.etcd,
            keyspace=runtime.keyspace,
            topics=runtime.topics,
            live=self.live,
            owners=self.owners,
            me=runtime.registration.instance.id,
        )
        self.committer = Committer(runtime.etcd, clock=clock, metrics=metrics)
        governor: Governor[Partition] = Governor(segments_per_s(settings, store), clock.now_ms())
        self.ownership = Ownership(
            world,
            recovery=Recovery(store, runtime.keyspace),
            limits=lambda topic: limits_of(topic, settings, store),
            fresh_id=fresh_id,
            clock=clock,
            metrics=metrics,
            tasks=tasks,
        )
        self.offers = Offers(self._address_of)
        self.handoffs = Handoffs(
            self.ownership,
            offers=self.offers,
            per_s=settings.produce_handoffs_per_s,
            clock=clock,
            metrics=metrics,
        )
        self.pump = Pump(clock, governor)
        refused_firsts = RefusedFirsts()
        self.ownership.tools = Tools(
            store=store,
            keyspace=runtime.keyspace,
            committer=self.committer,
            governor=governor,
            checkpointer=Checkpointer(runtime.etcd, store, runtime.keyspace, fresh_id),
            pump=self.pump,
            refused_firsts=refused_firsts,
            clock=clock,
            metrics=metrics,
            tasks=tasks,
            drained=self.handoffs.drained,
            stepped_down=self.ownership.stepped_down,
        )
        self.handler = ProduceHandler(
            ownership=self.ownership,
            admission=Admission(runtime.budget, self.committer),
            refusals=Refusals(),
            refused_firsts=refused_firsts,
            unseen=UnseenTopics(runtime.topics.refresh, tasks),
            clock=clock,
            metrics=metrics,
        )
        runtime.metrics.watch_gauge(
            "owned_partitions", "Partitions this instance writes", self.ownership.owned_count
        )
        runtime.metrics.watch_gauge(
            "governor_waiting_partitions", "Partitions that wait for the PUT budget", lambda: governor.waiting
        )

    def parts(self) -> ServiceParts:
        return ServiceParts(
            bulk={int(ApiKey.PRODUCE): self.handler},
            grpc_services=(OwnershipService(self.ownership).add_to,),
            before_ready=self.start,
            drain=self.drain,
        )

    async def start(self) -> None:
        """Views first, then what acts on them. Predecessor's partitions are claimed by the scan."""
        tasks = self._runtime.task_group
        tasks.create_task(self.live.run(), name="live-view")
        tasks.create_task(self.owners.run(), name="owners-view")
        await self.live.loaded()
        await self.owners.ready()
        await self._runtime.topics.ready()
        for name, work in (
            ("pump", self.pump.run),
            ("committer", self.committer.run),
            ("sweep", self.ownership.sweep),
            ("scan", self.ownership.scan),
            ("balance", self.handoffs.balance),
            ("offers", self.offers.run),
        ):
            tasks.create_task(work(), name=name)
        self.ownership.set_stance(ready=True, draining=False)

    async def drain(self) -> None:
        await self.handoffs.drain(self._runtime.settings.drain_timeout_ms / 1000)

    def _address_of(self, node_id: int) -> str | None:
        instance = self.live.by_node(node_id)
        return instance.address if instance else None


def _decode_owner(kv: KeyValue) -> OwnerRecord:
    return decode_owner(kv.value)
