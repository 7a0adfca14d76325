"""What every handler of this service uses, and how it is built."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from kafscale.admin.acl_store import AclStore
from kafscale.admin.config_table import ConfigTable
from kafscale.admin.group_config_store import GroupConfigStore
from kafscale.admin.group_configs import group_table
from kafscale.admin.log_starts import LogStarts
from kafscale.admin.mutation_quotas import MutationQuotas
from kafscale.admin.quota_store import QuotaStore
from kafscale.admin.settings import AdminSettings
from kafscale.admin.topic_limits import TopicLimits
from kafscale.admin.topics import AutoCreation, TopicStore
from kafscale.admin.user_store import UserStore
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.clock import Clock
from kafscale.runtime.etcd_space import EtcdSpace
from kafscale.storage.access_view import AccessView
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.history.history import History
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import LiveView
from kafscale.storage.owner_views import OwnersView
from kafscale.storage.topics import TopicsView

SIZE_READS_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminContext:
    settings: AdminSettings
    clock: Clock
    keys: Keyspace
    cluster_id: str
    topics: TopicsView
    store: TopicStore
    auto_creation: AutoCreation
    group_config_store: GroupConfigStore
    group_config_table: ConfigTable
    log_starts: LogStarts
    access: AccessView
    user_store: UserStore
    quota_store: QuotaStore
    mutation_quotas: MutationQuotas
    acl_store: AclStore | None
    """None without an authorizer."""
    front_doors: LiveView
    owners: OwnersView
    etcd: EtcdClient
    size_reads: asyncio.Semaphore  # few requests read the heads of many partitions at a time
    large_answers: asyncio.Lock  # the lock allows one of them at a time
    authorization: Authorization


def assembled(
    settings: AdminSettings,
    etcd: EtcdClient,
    keys: Keyspace,
    clock: Clock,
    *,
    cluster_id: str,
    topics: TopicsView,
    front_doors: LiveView,
    owners: OwnersView,
    access: AccessView,
    space: EtcdSpace,
    history: History,
    authorization: Authorization,
) -> AdminContext:
    """The caller runs the views."""
    limits = TopicLimits(topics, topics_max=settings.topics_max, partitions_max=settings.partitions_max)
    store = TopicStore(etcd, keys, topics, limits, settings.num_partitions, space, history)
    return AdminContext(
        settings=settings,
        clock=clock,
        keys=keys,
        cluster_id=cluster_id,
        topics=topics,
        store=store,
        auto_creation=_auto_creation(settings, store),
        group_config_store=GroupConfigStore(etcd, keys, settings.group_configs_max),
        group_config_table=group_table(settings),
        log_starts=LogStarts(etcd, keys),
        access=access,
        user_store=UserStore(etcd, access.keys, settings.users_max, space),
        quota_store=QuotaStore(etcd, access.keys, settings.quotas_max, space),
        mutation_quotas=MutationQuotas(access.quotas, clock),
        acl_store=AclStore(etcd, access, settings.acls_max, space) if settings.authorizer == "acl" else None,
        front_doors=front_doors,
        owners=owners,
        etcd=etcd,
        size_reads=asyncio.Semaphore(SIZE_READS_AT_ONCE),
        large_answers=asyncio.Lock(),
        authorization=authorization,
    )


def _auto_creation(settings: AdminSettings, store: TopicStore) -> AutoCreation:
    return AutoCreation(
        store,
        enabled=settings.auto_create_topics_enable,
        per_request=settings.auto_create_topics_per_request,
    )
