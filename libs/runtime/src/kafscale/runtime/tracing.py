"""Traces: one per sampled request, from the socket through gRPC to the PUT and the etcd transaction.

Laws: the front door decides which requests are traced; services follow the traceparent of the request. A span ends
once, even if the request is cancelled or lost. Without an exporter there is no tracer, OpenTelemetry is not imported,
and requests cost nothing; an unsampled request costs one comparison. Work for many requests (a segment, a transaction)
is a span of the first traced request, with links to the others.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from kafscale.runtime.stream.frame import RequestMeta
from kafscale.storage.etcd.client import TIMEOUT_S, EtcdClient, Txn, TxnResult
from kafscale.storage.system import random_source
from kafscale.wire.apis import api_label

if TYPE_CHECKING:
    from kafscale.runtime.settings import ServiceSettings
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span as OtelSpan

Kind = Literal["server", "client", "internal"]
Attributes = Mapping[str, str | int]

SAMPLED: Final = "-01"
LINKS_MAX: Final = 32
CLIENT_ID_SHOWN: Final = 256
FRONT_DOOR: Final = "frontdoor"


class Span(Protocol):
    """A part of the way of a request. Only the first `end` counts."""

    @property
    def traceparent(self) -> str:
        """What another process needs to continue the trace."""
        ...

    def child(
        self,
        name: str,
        attributes: Attributes | None = None,
        links: "Sequence[Span]" = (),
        *,
        kind: Kind = "internal",
    ) -> "Span":
        """A child span in this process; it keeps at most LINKS_MAX links."""
        ...

    def set(self, name: str, value: str | int) -> None: ...

    def event(self, name: str) -> None:
        """Something happened at this time within the span."""
        ...

    def end(self) -> None: ...


class ExportedSpan:
    """OpenTelemetry ignores later calls of `end`."""

    __slots__ = ("_span", "_tracer")

    def __init__(self, tracer: "Tracer", span: "OtelSpan") -> None:
        self._tracer = tracer
        self._span: OtelSpan = span

    @property
    def traceparent(self) -> str:
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}{SAMPLED}"

    def child(
        self,
        name: str,
        attributes: Attributes | None = None,
        links: "Sequence[Span]" = (),
        *,
        kind: Kind = "internal",
    ) -> "ExportedSpan":
        from opentelemetry.trace import Link

        exported = [other for other in links if isinstance(other, ExportedSpan)]
        others = [Link(other._span.get_span_context()) for other in exported[:LINKS_MAX]]
        return self._tracer.start(name, self._span, kind, attributes, others)

    def set(self, name: str, value: str | int) -> None:
        self._span.set_attribute(name, value)

    def event(self, name: str) -> None:
        self._span.add_event(name)

    def end(self) -> None:
        self._span.end()


CURRENT_SPAN: Final[ContextVar[Span | None]] = ContextVar("kafscale_span", default=None)
"""The span of the request that this task works for, if it is traced. Set with logs.CURRENT_REQUEST."""


def start_child(name: str, attributes: Attributes | None = None, *, kind: Kind = "internal") -> Span | None:
    """A child of the current request's span; None if the request is not traced."""
    span = CURRENT_SPAN.get()
    return None if span is None else span.child(name, attributes, kind=kind)


@contextmanager
def traced(
    name: str, attributes: Attributes | None = None, *, kind: Kind = "internal"
) -> Iterator[Span | None]:
    """A child span of the current request around a block that takes milliseconds, if the request is traced."""
    span = start_child(name, attributes, kind=kind)
    try:
        yield span
    finally:
        if span is not None:
            span.end()


@contextmanager
def served(tracer: "Tracer | None", traceparent: str | None, name: str) -> Iterator[None]:
    """The span of a call from another service, around the block that serves it, if the caller's request is traced."""
    span = None if tracer is None else tracer.start_remote(traceparent, name)
    token = CURRENT_SPAN.set(span)
    try:
        yield
    finally:
        CURRENT_SPAN.reset(token)
        if span is not None:
            span.end()


class TracedEtcd(EtcdClient):
    """Each transaction is a span of the request that waits for it, if that request is traced."""

    async def txn(self, txn: Txn, *, timeout_s: float = TIMEOUT_S) -> TxnResult:
        with traced("etcd txn"):
            return await super().txn(txn, timeout_s=timeout_s)


class Tracer:
    """Constructed only if traces are on, because OpenTelemetry is slow to import."""

    def __init__(self, *, service: str, instance: str, ratio: float, exporter: "SpanExporter") -> None:
        from kafscale.runtime.span_delivery import BoundedDelivery
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        resource = Resource.create({"service.name": f"kafscale-{service}", "service.instance.id": instance})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self.delivery = BoundedDelivery(exporter)
        self._provider.add_span_processor(self.delivery)
        self._tracer = self._provider.get_tracer("kafscale")
        self._ratio = ratio
        self._random = random_source()

    def start_root(self, name: str, attributes: Attributes | None = None) -> ExportedSpan | None:
        """A root span at the front door; None if the request is not sampled."""
        if self._random.random() >= self._ratio:
            return None
        return self.start(name, None, "server", attributes)

    def start_request(self, meta: RequestMeta) -> ExportedSpan | None:
        """In a service, a child of meta.traceparent; None if the request is not sampled."""
        name = f"{api_label(meta.api_key)} v{meta.api_version}"
        return self.start_remote(meta.traceparent, name, request_attributes(meta))

    def start_remote(
        self, traceparent: str | None, name: str, attributes: Attributes | None = None
    ) -> ExportedSpan | None:
        """A child of another process's span; None if its request is not sampled."""
        from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

        if traceparent is None or not traceparent.endswith(SAMPLED):
            return None
        trace_id, span_id = int(traceparent[3:35], 16), int(traceparent[36:52], 16)
        flags = TraceFlags(TraceFlags.SAMPLED)
        parent = NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags))
        return self.start(name, parent, "server", attributes)

    def start(
        self,
        name: str,
        parent: "OtelSpan | None",
        kind: Kind,
        attributes: Attributes | None,
        links: Any = None,
    ) -> ExportedSpan:
        """A span with exactly this parent; the current task's span is ignored."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, set_span_in_context

        context = Context() if parent is None else set_span_in_context(parent, Context())
        span = self._tracer.start_span(
            name, context=context, kind=SpanKind[kind.upper()], attributes=attributes, links=links
        )
        return ExportedSpan(self, span)

    def close(self) -> None:
        """Exports the waiting spans for at most a few seconds. Call it in a thread."""
        self.delivery.close()


def request_span(tracer: Tracer | None, meta: RequestMeta) -> Span | None:
    """In a service: the span of a request that the front door traces; None for all others."""
    return None if tracer is None else tracer.start_request(meta)


def request_attributes(meta: RequestMeta) -> dict[str, str | int]:
    """The attributes of each process's span of a request."""
    attributes: dict[str, str | int] = {
        "kafka.api": api_label(meta.api_key),
        "kafka.api_version": meta.api_version,
        "kafka.correlation_id": meta.correlation_id,
        "kafscale.connection_id": str(
            meta.connection_id
        ),  # 64 bits unsigned, which does not fit in an integer attribute
    }
    if meta.client_id is not None:
        attributes["kafka.client_id"] = meta.client_id[:CLIENT_ID_SHOWN]
    return attributes


def open_tracer(service: str, instance: str, settings: "ServiceSettings") -> Tracer | None:
    """None without an exporter, and at a front door whose ratio is 0. The ratio does not matter to other services."""
    kind, ratio = settings.trace_exporter_kind, settings.trace_ratio
    if kind is None or (service == FRONT_DOOR and ratio <= 0):
        return None
    from kafscale.runtime.span_delivery import open_exporter

    exporter = open_exporter(kind, settings.otlp_endpoint)
    return Tracer(service=service, instance=instance, ratio=ratio, exporter=exporter)
