"""Composition: the views that are watched, the topic store, the deletions, one handler per API."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafscale.admin.cluster import cluster_id
from kafscale.admin.context import AdminContext
from kafscale.admin.deletion import Deletions
from kafscale.admin.handlers import handlers
from kafscale.admin.log_starts import LogStarts
from kafscale.admin.settings import AdminSettings
from kafscale.admin.sizes import Sizes
from kafscale.admin.topics import TopicStore
from kafscale.runtime.process import Runtime, ServiceParts
from kafscale.runtime.stream.server import task_handler
from kafscale.storage.heads import decode_owner
from kafscale.storage.membership import LiveView
from kafscale.storage.views import PrefixView


@asynccontextmanager
async def build(runtime: Runtime[AdminSettings]) -> AsyncIterator[ServiceParts]:
    front_doors = LiveView(runtime.etcd, runtime.keyspace, "frontdoor")
    owners = PrefixView(runtime.etcd, runtime.keyspace.owners_prefix(), lambda kv: decode_owner(kv.value))
    topics = runtime.topics
    store = TopicStore(runtime.etcd, runtime.keyspace, topics, runtime.settings.num_partitions)
    deletions = Deletions(runtime.etcd, runtime.keyspace, runtime.store, store, topics, runtime.clock)
    context = AdminContext(
        settings=runtime.settings,
        clock=runtime.clock,
        keys=runtime.keyspace,
        cluster_id=await cluster_id(runtime.etcd, runtime.keyspace, runtime.clock.wall_ms()),
        topics=topics,
        store=store,
        log_starts=LogStarts(runtime.etcd, runtime.keyspace),
        front_doors=front_doors,
        owners=owners,
        sizes=Sizes(runtime.etcd, runtime.keyspace),
    )
    tasks = [
        runtime.task_group.create_task(run) for run in (front_doors.run(), owners.run(), deletions.run())
    ]

    async def before_ready() -> None:
        await topics.ready()
        await front_doors.loaded()
        await owners.ready()

    control = {key: task_handler(fn, runtime.task_group) for key, fn in handlers(context).items()}
    try:
        yield ServiceParts(control=control, before_ready=before_ready)
    finally:
        for task in tasks:
            task.cancel()
