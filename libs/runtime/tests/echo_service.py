"""A service of the smallest shape, run as a process by test_process.py.

Produce answers what it got; Fetch is held until the drain begins, and so shows that a drain waits for it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kafscale.runtime.process import Runtime, ServiceParts, run_service
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.stream.server import InboundRequest, task_handler


@asynccontextmanager
async def build(runtime: Runtime[ServiceSettings]) -> AsyncIterator[ServiceParts]:
    draining = asyncio.Event()

    def echo(request: InboundRequest) -> None:
        request.reply((b"echo:", request.body))

    async def held(_request: InboundRequest) -> tuple[bytes, ...]:
        await draining.wait()
        return (b"before we left",)

    async def drain() -> None:
        draining.set()
        if runtime.settings.rack == "stuck":
            await asyncio.Event().wait()

    async def load() -> None:
        await runtime.topics.ready()

    yield ServiceParts(
        bulk={0: echo, 1: task_handler(held, runtime.task_group)}, before_ready=load, drain=drain
    )


if __name__ == "__main__":
    sys.exit(run_service("produce", ServiceSettings, build))
