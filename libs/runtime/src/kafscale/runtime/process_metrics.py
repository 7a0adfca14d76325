"""What every service measures of itself: its loop, its memory budget, its streams, its registration."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.loopwatch import LoopWatch
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.server import StreamServer
from kafscale.runtime.stream.stats import StreamStats
from kafscale.storage.membership import Registration

STREAM_TEXTS: Final[Mapping[str, str]] = {
    "requests": "Requests received on streams.",
    "replies": "Replies given to streams.",
    "messages_in": "gRPC messages received; requests per message tell how well they are coalesced.",
    "messages_out": "gRPC messages sent.",
    "bytes_in": "Bytes received on streams.",
    "bytes_out": "Bytes sent on streams.",
    "cancelled": "Requests whose client left before the reply.",
    "expired": "Requests dropped unread because they were older than their budget.",
    "refused": "Requests refused because the service was leaving or has no such API.",
    "failed": "Requests whose handler raised.",
    "pauses": "Times a stream was not read because too much was open on it.",
}


def watch_process(
    metrics: Metrics,
    *,
    watch: LoopWatch,
    budget: MemoryBudget,
    registration: Registration,
    streams: StreamServer,
) -> None:
    metrics.watch_gauge(
        "loop_lag_seconds",
        "Worst lateness of the event loop since the last scrape.",
        lambda: watch.take_lag_max_ms() / 1000,
    )
    metrics.watch_counter(
        "loop_stalls", "Times the process stood still for over half a second.", lambda: watch.stalls
    )
    metrics.watch_gauge(
        "memory_budget_bytes", "What requests and buffers may hold.", lambda: budget.bytes_max
    )
    metrics.watch_gauge("memory_reserved_bytes", "What requests and buffers hold.", lambda: budget.used_bytes)
    metrics.watch_counter(
        "memory_refusals", "Reservations refused because the budget was used up.", lambda: budget.refusals
    )
    metrics.watch_counter(
        "registration_losses", "Times the registration in etcd ran out.", lambda: registration.lost_count
    )
    metrics.watch_gauge("stream_open_requests", "Requests not answered yet.", lambda: streams.open_requests)
    metrics.watch_gauge(
        "stream_held_bytes", "Bytes of open requests and waiting replies.", lambda: streams.held_bytes
    )
    for field in dataclasses.fields(StreamStats):
        if field.name in STREAM_TEXTS:
            metrics.watch_counters(
                f"stream_{field.name}", STREAM_TEXTS[field.name], "kind", by_kind(streams, field.name)
            )


def by_kind(streams: StreamServer, field: str) -> Callable[[], Iterator[tuple[str, float]]]:
    def read() -> Iterator[tuple[str, float]]:
        for kind, stats in streams.stats.items():
            yield kind, getattr(stats, field)

    return read
