"""The composition root of a front door with several worker processes: the parent serves no client itself."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from kafscale.frontdoor.server import Door
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.frontdoor.workers import KILL_AFTER_S, Workers
from kafscale.runtime.process import Runtime, ServiceParts


@asynccontextmanager
async def build_workers(
    runtime: Runtime[FrontdoorSettings], *, doors: Sequence[Sequence[Door]], argv: Sequence[str]
) -> AsyncIterator[ServiceParts]:
    workers = Workers(
        instance=runtime.registration.instance.id,
        sockets=[[(door.name, door.host, door.socket.fileno()) for door in own] for own in doors],
        argv=argv,
        metrics=runtime.metrics,
    )

    async def before_ready() -> None:
        await workers.start(runtime.task_group)

    async def drain() -> None:
        await workers.stop(runtime.settings.drain_timeout_ms / 1000 + KILL_AFTER_S)

    try:
        yield ServiceParts(before_ready=before_ready, drain=drain, worker_metrics=workers.expositions)
    finally:
        await workers.close()
