"""Traces: the front door decides which requests are traced; services follow the traceparent they are given.

Without a ratio and a collector there is no tracer at all, and no request pays for one: a span costs
more than a small request. Each process makes one span of a request at most.
"""

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafscale.runtime.stream.frame import RequestMeta

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span as OtelSpan

SAMPLED = "-01"


class Span:
    """Ended exactly once."""

    __slots__ = ("_span",)

    def __init__(self, span: "OtelSpan") -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}{SAMPLED}"

    def set(self, name: str, value: str | int) -> None:
        self._span.set_attribute(name, value)

    def end(self) -> None:
        self._span.end()


class Tracer:
    """Imported libraries are heavy: made only when traces are asked for."""

    def __init__(self, *, service: str, instance: str, ratio: float, exporter: "SpanExporter") -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create({"service.name": f"kafscale-{service}", "service.instance.id": instance})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("kafscale")
        self._ratio = ratio
        self._random = random.Random()  # noqa: S311  (chooses what to look at, hides nothing)

    def start_root(self, name: str, attributes: Mapping[str, str | int] | None = None) -> Span | None:
        """At the front door; None for a request that is not sampled."""
        from opentelemetry.trace import SpanKind

        if self._random.random() >= self._ratio:
            return None
        return Span(self._tracer.start_span(name, kind=SpanKind.SERVER, attributes=attributes))

    def start_request(self, meta: RequestMeta) -> Span | None:
        """In a service: a child of meta.traceparent; None when that is not sampled."""
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        if meta.traceparent is None or not meta.traceparent.endswith(SAMPLED):
            return None
        attributes: dict[str, str | int] = {
            "kafka.api_key": meta.api_key,
            "kafka.api_version": meta.api_version,
        }
        parent = extract({"traceparent": meta.traceparent})
        name = f"api {meta.api_key}"
        return Span(
            self._tracer.start_span(name, context=parent, kind=SpanKind.SERVER, attributes=attributes)
        )

    def close(self) -> None:
        """Sends what is left; may take seconds: call it in a thread."""
        self._provider.shutdown()


def open_tracer(*, service: str, instance: str, ratio: float, endpoint: str | None) -> Tracer | None:
    """Services follow what the front door sampled, so that an endpoint suffices for them."""
    if endpoint is None or ratio <= 0:
        return None
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(endpoint, insecure=not endpoint.startswith("https"))
    return Tracer(service=service, instance=instance, ratio=ratio, exporter=exporter)
