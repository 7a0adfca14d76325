"""The metrics of every service: its loop, its memory budget, its streams, its registration."""

from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from typing import Any

from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import LoopWatch
from kafscale.runtime.grpc_identity import GrpcIdentity
from kafscale.runtime.logs import WRITER
from kafscale.runtime.metric_table import EVERY_SERVICE
from kafscale.runtime.metrics import Metrics, Row
from kafscale.runtime.stream.server import StreamServer
from kafscale.runtime.tracing import Tracer
from kafscale.storage.membership.members import Registration
from kafscale.storage.system import monotonic_s, wall_s
from kafscale.storage.views import PrefixView


def watch_process(
    metrics: Metrics,
    *,
    watch: LoopWatch,
    budget: MemoryBudget,
    registration: Registration,
    streams: StreamServer,
    tracer: Tracer | None = None,
    identity: GrpcIdentity | None = None,
) -> None:
    watch_loop(metrics, watch, budget)
    installed = version("kafscale-runtime")
    metrics.watch_each("build_info", lambda: [((installed,), 1)])
    metrics.watch_each("internal_certificate_seconds", partial(certificate_seconds, identity))
    metrics.watch("registration_losses_total", lambda: registration.lost_count)
    metrics.watch("registration_age_seconds", lambda: monotonic_s() - registration.renewed_at_s)
    metrics.watch("trace_spans_lost_total", lambda: 0 if tracer is None else tracer.delivery.lost)
    metrics.watch("stream_open_requests", lambda: streams.open_requests)
    metrics.watch("stream_held_bytes", lambda: streams.held_bytes)
    for row in EVERY_SERVICE:
        if row.labels == ("kind",):
            field = row.name.removeprefix("stream_").removesuffix("_total")
            metrics.watch_each(row.name, partial(by_kind, streams, field))


def watch_loop(metrics: Metrics, watch: LoopWatch, budget: MemoryBudget) -> None:
    """The metrics of each process with an event loop, worker processes included."""
    metrics.watch("loop_lag_seconds", lambda: watch.take_lag_max_ms() / 1000)
    metrics.watch("loop_stalls_total", lambda: watch.stalls)
    metrics.watch("log_lines_dropped_total", lambda: WRITER.dropped_lines)
    metrics.watch("memory_budget_bytes", lambda: budget.bytes_max)
    metrics.watch("memory_reserved_bytes", lambda: budget.used_bytes)
    metrics.watch("memory_refusals_total", lambda: budget.refusals)


def watch_views(metrics: Metrics, **views: PrefixView[Any]) -> None:
    """The watched views of etcd, by a name for each. Every service calls this once."""
    metrics.watch_each(
        "unreadable_values", lambda: (((name,), len(view.unreadable)) for name, view in views.items())
    )


def certificate_seconds(identity: GrpcIdentity | None) -> Iterator[Row]:
    """A scrape looks at the files, so a certificate that was renewed counts before the next connection."""
    if identity is not None:
        yield (), identity.current().ends_s - wall_s()


def by_kind(streams: StreamServer, field: str) -> Iterator[Row]:
    for kind, stats in streams.stats.items():
        yield (kind,), getattr(stats, field)
