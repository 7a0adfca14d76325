"""The HTTP side of a service: /livez (the loop runs), /readyz (send me requests), /metrics."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from kafscale.runtime.clock import Clock
from kafscale.runtime.exposition import CONTENT_TYPE, expose, merge_expositions
from kafscale.runtime.health import Health
from kafscale.runtime.loopwatch import LoopWatch
from kafscale.runtime.metrics import Metrics

OWN: Final = "main"
WorkerMetrics = Callable[[], Awaitable[Mapping[str, bytes]]]


class HttpFace:
    def __init__(self, *, health: Health, watch: LoopWatch, clock: Clock, metrics: Metrics) -> None:
        self._health = health
        self._watch = watch
        self._clock = clock
        self._metrics = metrics
        self.worker_metrics: WorkerMetrics | None = None

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics_text)
        return app

    async def _livez(self, _request: web.Request) -> web.Response:
        if self._watch.alive(self._clock.now_ms()):
            return web.Response(text="ok\n")
        return web.Response(status=503, text="the event loop stood still\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        status = 200 if self._health.is_ready else 503
        return web.Response(status=status, text=self._health.reason + "\n")

    async def _metrics_text(self, _request: web.Request) -> web.Response:
        text = await asyncio.to_thread(expose, self._metrics.registry)
        if self.worker_metrics is not None:
            texts = {OWN: text, **await self.worker_metrics()}
            text = await asyncio.to_thread(merge_expositions, texts)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


def split_address(address: str) -> tuple[str, int]:
    """`host:port`; an IPv6 host stands in brackets. ValueError otherwise."""
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not host:port")
    return host.strip("[]"), int(port)


@asynccontextmanager
async def serving(face: HttpFace, address: str) -> AsyncIterator[str]:
    """The address that it listens on. OSError when it cannot."""
    host, port = split_address(address)
    runner = web.AppRunner(face.app(), access_log=None, handle_signals=False)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, shutdown_timeout=1)
        await site.start()
        bound_host, bound_port = runner.addresses[0][:2]
        yield f"[{bound_host}]:{bound_port}" if ":" in bound_host else f"{bound_host}:{bound_port}"
    finally:
        await runner.cleanup()
