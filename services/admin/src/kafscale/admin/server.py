"""Composition: the watched views, the deletions, and one handler per API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FunctionType

from kafscale.admin import handlers
from kafscale.admin.bootstrap_users import UsersFileWrong, bootstrap, read_users
from kafscale.admin.cluster_view import cluster_id
from kafscale.admin.context import AdminContext, assembled
from kafscale.admin.deletion import Deletions
from kafscale.admin.settings import AdminSettings
from kafscale.runtime.authorization import enforced
from kafscale.runtime.etcd_space import EtcdSpace
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.process import CannotServe, Runtime, ServiceParts
from kafscale.runtime.process_metrics import watch_views
from kafscale.runtime.stream.apis import exported
from kafscale.runtime.stream.inbound import Handler
from kafscale.runtime.stream.server import task_handler
from kafscale.storage.history.witness import WentBack
from kafscale.storage.membership.members import LiveView
from kafscale.storage.owner_views import OwnersView


@asynccontextmanager
async def build(runtime: Runtime[AdminSettings]) -> AsyncIterator[ServiceParts]:
    etcd, keys, clock, topics = runtime.etcd, runtime.keyspace, runtime.clock, runtime.topics
    front_doors = LiveView(etcd, keys, "frontdoor")
    owners = OwnersView(etcd, keys)
    access = runtime.access.view
    space = EtcdSpace(etcd, runtime.settings.etcd_quota_bytes)
    context = assembled(
        runtime.settings,
        etcd,
        keys,
        clock,
        cluster_id=await _cluster_id(runtime),
        topics=topics,
        front_doors=front_doors,
        owners=owners,
        access=access,
        space=space,
        history=runtime.history,
        authorization=runtime.authorization,
    )
    deletions = Deletions(
        etcd, keys, runtime.store, context.store, topics, runtime.metrics, clock, runtime.history
    )
    _watch(runtime.metrics, context, space)
    first_users = _first_users(runtime.settings)
    runs = (front_doors.run(), owners.run(), deletions.run(), space.run())
    tasks = [runtime.task_group.create_task(run) for run in runs]

    async def before_ready() -> None:
        await topics.ready()
        await front_doors.loaded()
        await owners.ready()
        await bootstrap(etcd, access.keys, first_users)
        await access.loaded()  # a damaged record affects the calls about it, not the whole service

    try:
        yield ServiceParts(control=_control(context, runtime.task_group), before_ready=before_ready)
    finally:
        for task in tasks:
            task.cancel()


async def _cluster_id(runtime: Runtime[AdminSettings]) -> str:
    await runtime.history.judged()
    try:
        return await cluster_id(runtime.etcd, runtime.keyspace, runtime.clock.wall_ms(), runtime.history)
    except WentBack as back:
        raise CannotServe(f"etcd has no cluster id, and none is drawn: {back}") from back


def _watch(metrics: Metrics, context: AdminContext, space: EtcdSpace) -> None:
    space.watch(metrics)
    watch_views(
        metrics,
        topics=context.topics.view,
        owners=context.owners,
        live_frontdoor=context.front_doors.view,
        **context.access.views,
    )


def _first_users(settings: AdminSettings) -> dict[str, str]:
    if settings.bootstrap_users_file is None:
        return {}
    try:
        return read_users(settings.bootstrap_users_file)
    except UsersFileWrong as wrong:
        raise CannotServe(f"KAFSCALE_BOOTSTRAP_USERS_FILE: {wrong}") from wrong


def _control(context: AdminContext, tasks: asyncio.TaskGroup) -> dict[int, Handler]:
    """Raises NotEnforced if a handler does not ask what the rules say."""
    made = exported(handlers, "handler", FunctionType)
    enforced(handlers, made)
    return {key: task_handler(make(context), tasks) for key, make in made.items()}
