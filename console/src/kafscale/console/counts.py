"""What the console counts, and the server of its probes and metrics.

Law: a label has the path of a route's row, never that of a request, so nobody can fill memory with names, and /metrics
shows no name of a topic or a group.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from kafscale.console.routes import API
from kafscale.runtime.metric_table import CONSOLE
from kafscale.runtime.metrics import Metrics

PAGE: Final = "page"
"""The page and its files."""
LEFT: Final = "left"
"""The status of a request whose browser left before the end of its answer."""


class Counts:
    def __init__(self) -> None:
        self.metrics = Metrics("console", CONSOLE)
        self._requests = self.metrics.counters("requests_total")
        self._seconds = self.metrics.histograms("request_seconds")

    def watch(
        self,
        *,
        connections: Callable[[], int],
        sessions: Callable[[], int],
        calls: Callable[[], int],
        tails: Callable[[], int],
        decoded: Mapping[tuple[str, str], int],
    ) -> None:
        """`decoded`: by format and outcome."""
        self.metrics.watch("tails", tails)
        self.metrics.watch_each("records_decoded_total", lambda: list(decoded.items()))
        self.metrics.watch("connections", connections)
        self.metrics.watch("sessions", sessions)
        self.metrics.watch("requests_in_progress", calls)

    def ended(self, request: web.Request, status: int | str, took_s: float) -> None:
        route = route_of(request)
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(took_s)


def route_of(request: web.Request) -> str:
    """`GET /topics/{topic}`; PAGE for what is no row of the table."""
    resource = request.match_info.route.resource
    path = "" if resource is None else resource.canonical
    return f"{request.method} {path.removeprefix(API)}" if path.startswith(f"{API}/") else PAGE


@asynccontextmanager
async def probed(counts: Counts, address: str) -> AsyncIterator[str]:
    """Answers /livez, /readyz and /metrics, as each service does. Yields where. Raises OSError."""
    from kafscale.runtime.clock import (
        LoopWatch,
        SystemClock,
    )  # an idle console on a laptop has no use for these
    from kafscale.runtime.health import Health, Phase
    from kafscale.runtime.http import HttpFace, serving

    clock = SystemClock()
    watch, health = LoopWatch(clock), Health("console")
    face = HttpFace(health=health, watch=watch, clock=clock, metrics=counts.metrics)
    watch.start()
    try:
        async with serving(face, address) as bound:
            await health.enter(Phase.READY)
            yield bound
    finally:
        watch.stop()
