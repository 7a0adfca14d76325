"""What every handler of this service is given, and how it is put together."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kafscale.admin.auto_creation import AutoCreation
from kafscale.admin.config_table import ConfigTable
from kafscale.admin.group_configs import group_table
from kafscale.admin.groups import GroupStore
from kafscale.admin.log_starts import LogStarts
from kafscale.admin.settings import AdminSettings
from kafscale.admin.sizes import Sizes
from kafscale.admin.topic_limits import TopicLimits
from kafscale.admin.topics import TopicStore
from kafscale.runtime.clock import Clock
from kafscale.runtime.etcd_space import EtcdSpace
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.heads import OwnerRecord
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import LiveView
from kafscale.storage.topics import TopicsView
from kafscale.storage.views import PrefixView


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminContext:
    settings: AdminSettings
    clock: Clock
    keys: Keyspace
    cluster_id: str | None
    topics: TopicsView
    store: TopicStore
    auto_creation: AutoCreation
    groups: GroupStore
    group_configs: ConfigTable
    log_starts: LogStarts
    front_doors: LiveView
    owners: PrefixView[OwnerRecord]
    sizes: Sizes
    large_answers: asyncio.Lock  # one is built after the other


def assembled(
    settings: AdminSettings,
    etcd: EtcdClient,
    keys: Keyspace,
    clock: Clock,
    *,
    cluster_id: str | None,
    topics: TopicsView,
    front_doors: LiveView,
    owners: PrefixView[OwnerRecord],
    space: EtcdSpace,
) -> AdminContext:
    """Around the views, which are the caller's to run."""
    limits = TopicLimits(topics, topics_max=settings.topics_max, partitions_max=settings.partitions_max)
    store = TopicStore(etcd, keys, topics, limits, settings.num_partitions, space)
    return AdminContext(
        settings=settings,
        clock=clock,
        keys=keys,
        cluster_id=cluster_id,
        topics=topics,
        store=store,
        auto_creation=AutoCreation(
            store,
            enabled=settings.auto_create_topics_enable,
            per_request=settings.auto_create_topics_per_request,
        ),
        groups=GroupStore(etcd, keys, settings.group_configs_max),
        group_configs=group_table(settings),
        log_starts=LogStarts(etcd, keys),
        front_doors=front_doors,
        owners=owners,
        sizes=Sizes(etcd, keys),
        large_answers=asyncio.Lock(),
    )
