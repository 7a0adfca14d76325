"""Exports spans: to a collector by OTLP, or as lines to standard error. Imported only if traces are on.

Laws: an ended span waits in a queue of QUEUE_SPANS_MAX; beyond that, spans are dropped and counted. No request waits
for a collector. An unresponsive collector is logged once, and again when it recovers.
"""

import logging
import sys
import threading
from collections.abc import Sequence
from typing import Final, Literal

import orjson
import structlog
from kafscale.runtime.redaction import redact
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

log = structlog.get_logger("kafscale.traces")

QUEUE_SPANS_MAX: Final = 2_048
BATCH_SPANS_MAX: Final = 512
DELAY_MS: Final = 1_000
EXPORT_TIMEOUT_S: Final = 5
CLOSE_TIMEOUT_S: Final = 3.0


class BoundedDelivery(SpanProcessor):
    def __init__(self, exporter: SpanExporter) -> None:
        # OpenTelemetry would log each failed batch and each retry; _Counted logs one line.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._dropped = 0
        self.counted = _Counted(exporter)
        self._batches = BatchSpanProcessor(
            self.counted,
            max_queue_size=QUEUE_SPANS_MAX + BATCH_SPANS_MAX,
            schedule_delay_millis=DELAY_MS,
            max_export_batch_size=BATCH_SPANS_MAX,
        )

    @property
    def lost(self) -> int:
        """Spans dropped by the full queue, and spans of batches that the collector did not accept."""
        return self._dropped + self.counted.lost

    def on_end(self, span: ReadableSpan) -> None:
        if self.counted.waiting >= QUEUE_SPANS_MAX:
            self._dropped += 1
            return
        self.counted.add()
        self._batches.on_end(span)

    def close(self) -> None:
        """Exports the waiting spans for at most CLOSE_TIMEOUT_S; the rest are lost."""
        closing = threading.Thread(target=self._batches.shutdown, name="close-traces", daemon=True)
        closing.start()
        closing.join(CLOSE_TIMEOUT_S)


class _Counted(SpanExporter):
    """Counts waiting and lost spans. The batch processor's thread calls `export`."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._lock = threading.Lock()
        self._refused = 0  # spans since the last accepted batch
        self.lost = 0
        self.waiting = 0

    def add(self) -> None:
        with self._lock:
            self.waiting += 1

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:  # the batch processor's thread catches exceptions
            with self._lock:
                self.waiting -= len(spans)
            self._log_change(result is SpanExportResult.SUCCESS, len(spans))
        return result

    def _log_change(self, taken: bool, spans: int) -> None:
        if taken and self._refused:
            log.info("trace collector available", lost_spans=self._refused)
            self._refused = 0
        elif not taken:
            if not self._refused:
                log.warning("trace collector unavailable")
            self._refused += spans
            self.lost += spans

    def shutdown(self) -> None:
        self._exporter.shutdown()


class LineExporter(SpanExporter):
    """Writes one JSON object per span and line to standard error, at every log level."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        out = sys.stderr.buffer
        out.write(b"".join(map(span_line, spans)))
        out.flush()
        return SpanExportResult.SUCCESS


def span_line(span: ReadableSpan) -> bytes:
    """Ids in hexadecimal; `start_ns` in nanoseconds of Unix time; `duration_ms` is a fraction; events by name, with
    their milliseconds since the start."""
    context, parent = span.context, span.parent
    assert context is not None, "a span that ended has a context"
    start_ns, end_ns = span.start_time or 0, span.end_time or 0
    resource = span.resource.attributes
    fields = {
        "event": "span",
        "service": str(resource["service.name"]).removeprefix("kafscale-"),
        "instance": resource["service.instance.id"],
        "name": span.name,
        "kind": span.kind.name.lower(),
        "trace_id": f"{context.trace_id:032x}",
        "span_id": f"{context.span_id:016x}",
        "parent_id": None if parent is None else f"{parent.span_id:016x}",
        "start_ns": start_ns,
        "duration_ms": round((end_ns - start_ns) / 1e6, 3),
        "attributes": redact(dict(span.attributes or {})),
        "links": [f"{link.context.span_id:016x}" for link in span.links],
        "events": {event.name: round((event.timestamp - start_ns) / 1e6, 3) for event in span.events},
    }
    return orjson.dumps(fields) + b"\n"


def open_exporter(kind: Literal["otlp", "console"], endpoint: str | None) -> SpanExporter:
    if kind == "console":
        return LineExporter()
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    assert endpoint is not None, "the settings say where"
    insecure = not endpoint.startswith("https")
    return OTLPSpanExporter(endpoint=endpoint, insecure=insecure, timeout=EXPORT_TIMEOUT_S)
