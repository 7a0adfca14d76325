"""Composition: whose turn it is, the jobs, and the schedule that runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from kafscale.runtime.process import Runtime, ServiceParts
from kafscale.runtime.process_metrics import watch_views
from kafscale.storage.membership.members import LiveView
from kafscale.upkeep.jobs import job_list
from kafscale.upkeep.metrics import ScheduleMetrics
from kafscale.upkeep.schedule import LowestNode, Schedule
from kafscale.upkeep.settings import UpkeepSettings

ROLE: Final = "upkeep"


@asynccontextmanager
async def build(runtime: Runtime[UpkeepSettings]) -> AsyncIterator[ServiceParts]:
    live = LiveView(runtime.etcd, runtime.keyspace, ROLE)
    turn = LowestNode(live, runtime.registration)
    runtime.metrics.watch("working", lambda: turn.mine)
    watch_views(runtime.metrics, live_upkeep=live.view)
    schedule = Schedule(
        job_list(runtime),
        turn=turn,
        etcd=runtime.etcd,
        keys=runtime.keyspace,
        clock=runtime.clock,
        metrics=ScheduleMetrics(runtime.metrics),
    )
    tasks = [runtime.task_group.create_task(run) for run in (live.run(), schedule.run())]
    try:
        yield ServiceParts(before_ready=live.loaded)
    finally:
        for task in tasks:
            task.cancel()
