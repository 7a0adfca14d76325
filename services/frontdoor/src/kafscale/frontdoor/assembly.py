"""The front door put together: the only place that builds its parts. Opens nothing by itself."""

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from kafscale.frontdoor.backends import Connect, Live, Pool, ServiceStream
from kafscale.frontdoor.connection import Limits
from kafscale.frontdoor.fetch_turns import FetchTurns
from kafscale.frontdoor.forwarding import Forwarder
from kafscale.frontdoor.gateway import REQUESTS_SHARE, Bounds, Gateway, Handler
from kafscale.frontdoor.group_calls import GroupCaller
from kafscale.frontdoor.handlers import (
    alter_configs,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)
from kafscale.frontdoor.handlers.api_versions import ApiVersionsHandler
from kafscale.frontdoor.lanes import LaneLimits
from kafscale.frontdoor.lookups import TopicLookups
from kafscale.frontdoor.metrics import FrontdoorMetrics
from kafscale.frontdoor.outlets import AnswerMemory
from kafscale.frontdoor.produce_lanes import LaneSender
from kafscale.frontdoor.refusals import Refuse
from kafscale.frontdoor.revisions import AckedRevision
from kafscale.frontdoor.routes import Backend
from kafscale.frontdoor.routing import Owners, Routing, Slots
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.runtime.loop_watchdog import LoopWatch
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.client import StreamClient
from kafscale.runtime.tracing import Tracer
from kafscale.storage.topics import TopicsView
from kafscale.wire.apis import ApiKey

ROLES: Final = (Backend.PRODUCE, Backend.FETCH, Backend.COORDINATOR, Backend.ADMIN)
FORWARDED: Final = {
    ApiKey.LIST_OFFSETS: list_offsets.POLICY,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.POLICY,
    ApiKey.FIND_COORDINATOR: find_coordinator.POLICY,
    ApiKey.INIT_PRODUCER_ID: init_producer_id.POLICY,
    ApiKey.CREATE_TOPICS: create_topics.POLICY,
    ApiKey.DELETE_TOPICS: delete_topics.POLICY,
    ApiKey.DELETE_RECORDS: delete_records.POLICY,
    ApiKey.CREATE_PARTITIONS: create_partitions.POLICY,
    ApiKey.DESCRIBE_CONFIGS: describe_configs.POLICY,
    ApiKey.ALTER_CONFIGS: alter_configs.POLICY,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.POLICY,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster.POLICY,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.POLICY,
    ApiKey.ELECT_LEADERS: elect_leaders.POLICY,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources.POLICY,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments.POLICY,
    ApiKey.DESCRIBE_ACLS: describe_acls.POLICY,
    ApiKey.CREATE_ACLS: create_acls.POLICY,
    ApiKey.DELETE_ACLS: delete_acls.POLICY,
}
ONE_GROUP: Final = {
    ApiKey.JOIN_GROUP: join_group.POLICY,
    ApiKey.SYNC_GROUP: sync_group.POLICY,
    ApiKey.HEARTBEAT: heartbeat.POLICY,
    ApiKey.LEAVE_GROUP: leave_group.POLICY,
    ApiKey.OFFSET_COMMIT: offset_commit.POLICY,
    ApiKey.OFFSET_DELETE: offset_delete.POLICY,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat.POLICY,
}
REFUSALS: Final[Mapping[int, Refuse]] = {
    ApiKey.PRODUCE: produce.refuse,
    ApiKey.FETCH: fetch.refuse,
    ApiKey.METADATA: metadata.refuse,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.refuse,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.refuse,
    ApiKey.OFFSET_FETCH: offset_fetch.refuse,
    ApiKey.LIST_GROUPS: list_groups.refuse,
    ApiKey.DESCRIBE_GROUPS: describe_groups.refuse,
    ApiKey.DELETE_GROUPS: delete_groups.refuse,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe.refuse,
    **{key: policy.refuse for key, policy in FORWARDED.items()},
    **{key: policy.refuse for key, policy in ONE_GROUP.items()},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """What is known of the cluster, each kept true by a task of its own."""

    topics: TopicsView
    owners: Owners
    slots: Slots
    live: Mapping[Backend, Live]
    front_doors: Live


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What the process gives the front door to work with."""

    node_id: int
    clock: Clock
    tasks: asyncio.TaskGroup
    metrics: Metrics
    tracer: Tracer | None
    budget: MemoryBudget
    acked: AckedRevision
    connect: Connect
    watch: LoopWatch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontDoor:
    gateway: Gateway
    pools: Mapping[Backend, Pool]
    sender: LaneSender

    async def close(self) -> None:
        for pool in self.pools.values():
            await pool.close()


def connect_streams(streams: int) -> Connect:
    def connect(address: str, kind: Literal["bulk", "control"]) -> ServiceStream:
        return StreamClient(address, kind=kind, streams=streams)

    return connect


def connection_base() -> int:
    """Numbers of connections are drawn upwards from here: no other process of the cluster draws the same."""
    return secrets.randbits(31) << 32


def assemble(settings: FrontdoorSettings, views: Views, means: Means) -> FrontDoor:
    pools = {role: Pool(role, views.live[role], means.connect, means.tasks, means.tracer) for role in ROLES}
    routing = Routing(pools, views.owners, views.slots)
    sender = LaneSender(
        routing=routing,
        topics=views.topics,
        clock=means.clock,
        limits=LaneLimits(hold_ms_max=settings.frontdoor_hold_ms_max),
        acked=means.acked,
    )
    means.metrics.watch("held_parts", lambda: sender.held_parts)
    means.metrics.watch("parts_resent_total", lambda: sender.resent_parts)
    lookups = TopicLookups(views.topics, means.clock, means.tasks)
    producing = produce.ProduceHandler(sender=sender, topics=views.topics, lookups=lookups, clock=means.clock)
    forwarder = Forwarder(routing=routing, clock=means.clock, acked=means.acked)
    turns = FetchTurns(AnswerMemory(int(means.budget.bytes_max * (1 - REQUESTS_SHARE))))
    gateway = Gateway(
        handlers={
            **handlers_of(producing, forwarder, turns, views),
            **ops_handlers(means, views, forwarder, lookups),
            **group_handlers(settings, views, means, routing),
        },
        refusals=REFUSALS,
        leavers=(producing,),
        bounds=bounds_of(settings),
        clock=means.clock,
        budget=means.budget,
        turns=turns,
        metrics=FrontdoorMetrics(means.metrics),
        tracer=means.tracer,
        connection_base=connection_base(),
        log_requests=settings.log_level == "debug",
    )
    return FrontDoor(gateway=gateway, pools=pools, sender=sender)


def handlers_of(
    producing: produce.ProduceHandler, forwarder: Forwarder, turns: FetchTurns, views: Views
) -> Mapping[int, Handler]:
    """One for each row that is served, but for those of groups and those cut by broker or owner."""
    return {
        ApiKey.API_VERSIONS: ApiVersionsHandler(),
        ApiKey.PRODUCE: producing,
        ApiKey.FETCH: fetch.FetchHandler(forwarder=forwarder, turns=turns, topics=views.topics),
        ApiKey.METADATA: metadata.MetadataHandler(forwarder=forwarder, front_doors=views.front_doors),
        **{key: partial(forwarder.forward, policy=policy) for key, policy in FORWARDED.items()},
    }


def ops_handlers(
    means: Means, views: Views, forwarder: Forwarder, lookups: TopicLookups
) -> Mapping[int, Handler]:
    return {
        ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.DescribeLogDirsHandler(
            forwarder=forwarder,
            topics=views.topics,
            lookups=lookups,
            front_doors=views.front_doors,
            node_id=means.node_id,
        ),
        ApiKey.DESCRIBE_PRODUCERS: describe_producers.DescribeProducersHandler(
            routing=forwarder.routing, clock=means.clock, topics=views.topics, lookups=lookups
        ),
    }


def group_handlers(
    settings: FrontdoorSettings, views: Views, means: Means, routing: Routing
) -> Mapping[int, Handler]:
    caller = GroupCaller(
        routing=routing,
        clock=means.clock,
        watch=means.watch,
        wait_ms_max=settings.frontdoor_join_wait_ms_max,
    )

    return {
        ApiKey.OFFSET_FETCH: offset_fetch.OffsetFetchHandler(caller),
        ApiKey.LIST_GROUPS: list_groups.ListGroupsHandler(
            routing=routing, clock=means.clock, front_doors=views.front_doors, node_id=means.node_id
        ),
        ApiKey.DESCRIBE_GROUPS: partial(caller.call_batch, policy=describe_groups.POLICY),
        ApiKey.DELETE_GROUPS: partial(caller.call_batch, policy=delete_groups.POLICY),
        ApiKey.CONSUMER_GROUP_DESCRIBE: partial(caller.call_batch, policy=consumer_group_describe.POLICY),
        **{key: partial(caller.call, policy=policy) for key, policy in ONE_GROUP.items()},
    }


def bounds_of(settings: FrontdoorSettings) -> Bounds:
    return Bounds(
        connection=Limits(
            frame_bytes_max=settings.socket_request_max_bytes,
            requests_max=settings.frontdoor_requests_max,
            request_bytes_max=settings.frontdoor_request_bytes_max,
            unsent_bytes_max=settings.frontdoor_unsent_bytes_max,
        ),
        connections_max=settings.max_connections,
        address_connections_max=settings.max_connections_per_ip,
        address_memory_share=settings.frontdoor_address_memory_percent / 100,
        first_request_ms_max=settings.frontdoor_first_request_ms,
        idle_ms_max=settings.connections_max_idle_ms,
        request_timeout_ms=settings.frontdoor_request_timeout_ms,
    )
