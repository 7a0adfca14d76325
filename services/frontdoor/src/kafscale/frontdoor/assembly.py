"""The front door put together: the only place that builds its parts. Opens nothing by itself."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

from kafscale.frontdoor.access import AccessMeans
from kafscale.frontdoor.api import Api, Backend, Forward, Own, ToOwners, ToSlot, ToSlots
from kafscale.frontdoor.apis import SERVED, advertised, not_served, served
from kafscale.frontdoor.authentication.credentials import CredentialSource
from kafscale.frontdoor.authentication.machine import Versions
from kafscale.frontdoor.authorization import RequestAuthorizer, check_apis, need_of_each
from kafscale.frontdoor.backends import Connect, Live, Pool, ServiceStream
from kafscale.frontdoor.exchange import AckedRevision
from kafscale.frontdoor.fetch_turns import FetchTurns
from kafscale.frontdoor.forwarding import Forwarder
from kafscale.frontdoor.gateway import REQUESTS_SHARE, Gateway, Handler, Served
from kafscale.frontdoor.group_calls import SlotCaller
from kafscale.frontdoor.handlers.api_versions import ApiVersionsHandler
from kafscale.frontdoor.lanes import LaneLimits
from kafscale.frontdoor.listeners.listener_security import ListenerSecurity
from kafscale.frontdoor.memory import AnswerMemory
from kafscale.frontdoor.metrics import FrontdoorMetrics
from kafscale.frontdoor.owner_calls import OwnerCaller
from kafscale.frontdoor.parts import Parts
from kafscale.frontdoor.produce_lanes import LaneSender
from kafscale.frontdoor.quotas.metering import HELD_SHARE, Metering, window_of
from kafscale.frontdoor.quotas.usage_page import SharedUsage
from kafscale.frontdoor.routing import Owners, Routing, Slots
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock, LoopWatch
from kafscale.runtime.grpc_identity import DialRole, plain
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.client import StreamClient
from kafscale.runtime.stream.options import Stream
from kafscale.runtime.tracing import Tracer
from kafscale.storage.membership.records import Instance
from kafscale.storage.system import random_bytes
from kafscale.storage.topics import TopicsView

if TYPE_CHECKING:
    from kafscale.frontdoor.authentication.authentication import Authentication
    from kafscale.frontdoor.authentication.login import ListenerLogins

ROLES: Final = (Backend.PRODUCE, Backend.FETCH, Backend.COORDINATOR, Backend.ADMIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """The watched copies of the cluster's state; each has its own task."""

    topics: TopicsView
    owners: Owners
    slots: Slots
    live: Mapping[Backend, Live]
    front_doors: Live
    cluster_id: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the process gives the front door to work with."""

    node_id: int
    clock: Clock
    watch: LoopWatch
    tasks: asyncio.TaskGroup
    metrics: Metrics
    tracer: Tracer | None
    budget: MemoryBudget
    acked: AckedRevision
    connect: Connect
    authorization: Authorization
    access: AccessMeans = AccessMeans()
    usage: SharedUsage | None = None
    """Of quotas, with the other workers of this front door, and with other front doors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontDoor:
    gateway: Gateway
    pools: Mapping[Backend, Pool]
    sender: LaneSender
    authentication: "Authentication | None"

    def logins(self, securities: Mapping[str, ListenerSecurity]) -> "dict[str, ListenerLogins]":
        """What the connections of the listeners with logins need, by listener."""
        authentication = self.authentication
        if authentication is None:
            return {}
        return {
            name: authentication.of(name, encrypted=one.tls is not None)
            for name, one in securities.items()
            if one.protocol.uses_sasl
        }

    async def close(self) -> None:
        if self.authentication is not None:
            self.authentication.close()
        for pool in self.pools.values():
            await pool.close()


def connect_streams(settings: FrontdoorSettings, dial: DialRole) -> Connect:
    """An instance's registration says whether it has a certificate. That is not believed unless the settings say so:
    what can write to etcd could otherwise ask for the clients' records without encryption.
    """

    def connect(instance: Instance, kind: Stream) -> ServiceStream:
        in_plaintext = settings.frontdoor_plaintext_services and not instance.tls
        return StreamClient(instance.address, kind=kind, dial=plain if in_plaintext else dial(instance.role))

    return connect


def connection_base() -> int:
    """Numbers of connections are drawn upwards from here: no other process of the cluster draws the same."""
    return int.from_bytes(random_bytes(4), "big") >> 1 << 32


def assemble(settings: FrontdoorSettings, views: Views, means: Means) -> FrontDoor:
    """Raises NotEnforced if an API would be served without asking what the rules say."""
    check_apis(SERVED)
    pools = {role: Pool(role, views.live[role], means.connect, means.tasks) for role in ROLES}
    metrics = FrontdoorMetrics(means.metrics)
    parts = parts_of(settings, views, means, Routing(pools, views.owners, views.slots), metrics)
    sender = parts.sender
    means.metrics.watch("held_parts", lambda: sender.held_parts)
    means.metrics.watch("parts_resent_total", lambda: sender.resent_parts)
    gateway = Gateway(
        served={
            key: Served(api, parts.authorizer.guarded(api, handler_of(api, parts)), *api.versions)
            for key, api in served(transactions=settings.transactions).items()
        }
        | {
            int(one.key): Served(api, handler_of(api, parts), *api.versions)
            for one in not_served(transactions=settings.transactions)
            for api in [one.as_api()]
        },
        left=sender.left,
        settings=settings,
        clock=means.clock,
        budget=means.budget,
        turns=parts.turns,
        metering=parts.metering,
        metrics=metrics,
        tracer=means.tracer,
        connection_base=connection_base(),
        with_logins=means.access.users is not None,
        access=means.access.copy,
    )
    authentication: Authentication | None = None
    if means.access.users is not None:
        versions = ApiVersionsHandler(parts).answer
        authentication = authentication_of(settings, means, metrics, versions, means.access.users)
    return FrontDoor(gateway=gateway, pools=pools, sender=sender, authentication=authentication)


def authentication_of(
    settings: FrontdoorSettings,
    means: Means,
    metrics: FrontdoorMetrics,
    versions: Versions,
    credentials: CredentialSource,
) -> "Authentication":
    """Imported only here: its libraries need some MiB, which listeners without logins do not pay."""
    from kafscale.frontdoor.authentication.authentication import Authentication, LoginMeans

    login_means = LoginMeans(clock=means.clock, tasks=means.tasks, metrics=metrics, versions=versions)
    return Authentication(settings, credentials, login_means)


def parts_of(
    settings: FrontdoorSettings, views: Views, means: Means, routing: Routing, metrics: FrontdoorMetrics
) -> Parts:
    clock, authorizer = means.clock, RequestAuthorizer(means.authorization)
    return Parts(
        node_id=means.node_id,
        clock=clock,
        topics=views.topics,
        front_doors=views.front_doors,
        cluster_id=views.cluster_id,
        routing=routing,
        forwarder=Forwarder(
            routing=routing, clock=clock, acked=means.acked, tasks=means.tasks, access=means.access.copy
        ),
        slots=SlotCaller(
            routing=routing,
            clock=clock,
            watch=means.watch,
            wait_ms_max=settings.frontdoor_join_wait_ms_max,
            authorizer=authorizer,
        ),
        owners=OwnerCaller(routing=routing, topics=views.topics, clock=clock, authorizer=authorizer),
        sender=LaneSender(
            routing=routing,
            topics=views.topics,
            clock=clock,
            limits=LaneLimits(hold_ms_max=settings.frontdoor_hold_ms_max),
            acked=means.acked,
        ),
        turns=FetchTurns(AnswerMemory(int(means.budget.bytes_max * (1 - REQUESTS_SHARE)))),
        metering=_metering(settings, means, metrics),
        authorizer=authorizer,
        advertised=advertised(transactions=settings.transactions),
        transaction_version=settings.transaction_version if settings.transactions else None,
        produce_timeout_min_ms=settings.produce_timeout_min_ms,
    )


def _metering(settings: FrontdoorSettings, means: Means, metrics: FrontdoorMetrics) -> Metering:
    return Metering(
        means.access.quotas,
        window_of(settings),
        means.clock,
        metrics.throttled,
        shared=means.usage,
        held_bytes_max=int(means.budget.bytes_max * HELD_SHARE),
    )


def handler_of(api: Api, parts: Parts) -> Handler:
    how = api.dispatch
    match how:
        case Forward():
            return partial(parts.forwarder.forward, how=how)
        case ToSlot():
            return partial(parts.slots.call, how=how)
        case ToSlots():
            return partial(parts.slots.call_several, how=how, need=need_of_each(api.key))
        case ToOwners():
            return partial(parts.owners.call, how=how, need=need_of_each(api.key))
        case Own():
            return how.make(parts)
        case _ as never:
            assert_never(never)
