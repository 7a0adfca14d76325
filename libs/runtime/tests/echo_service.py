"""A service of the smallest shape, run as a process by test_process.py.

Produce answers what it got; Fetch is held until the drain begins, and so shows that a drain waits for it. ListOffsets
awaits what is done, again and again, so that the event loop never turns.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog
from kafscale.runtime.process import Runtime, ServiceParts, run_service
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.stream.server import InboundRequest, task_handler


@asynccontextmanager
async def build(runtime: Runtime[ServiceSettings]) -> AsyncIterator[ServiceParts]:
    draining = asyncio.Event()
    structlog.get_logger().info("built", transactions=runtime.settings.transactions)

    def echo(request: InboundRequest) -> None:
        request.reply((b"echo:", request.body))

    async def held(_request: InboundRequest) -> tuple[bytes, ...]:
        await draining.wait()
        return (b"before we left",)

    async def spin(_request: InboundRequest) -> tuple[bytes, ...]:
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        while True:
            await done

    async def drain() -> None:
        draining.set()
        if runtime.settings.rack == "stuck":
            await asyncio.Event().wait()

    async def load() -> None:
        await runtime.topics.ready()

    tasks = {1: held, 2: spin}
    yield ServiceParts(
        bulk={0: echo, **{key: task_handler(each, runtime.task_group) for key, each in tasks.items()}},
        before_ready=load,
        drain=drain,
    )


if __name__ == "__main__":
    sys.exit(run_service("produce", ServiceSettings, build))
