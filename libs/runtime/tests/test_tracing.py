"""Spans: who samples, whose child each is, that each ends once, and that a dead collector costs nothing."""

import json
import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest
import structlog
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.settings_load import BadSettings, read_settings
from kafscale.runtime.span_delivery import QUEUE_SPANS_MAX, span_line
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.tracing import CURRENT_SPAN, LINKS_MAX, Span, Tracer, open_tracer, start_child, traced
from kafscale.storage.task_groups import OwnTasks
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def tracer(ratio: float = 1.0) -> tuple[Tracer, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    return Tracer(service="fetch", instance="1/boot", ratio=ratio, exporter=exporter), exporter


def printed(tracer: Tracer, exporter: InMemorySpanExporter) -> list[dict[str, object]]:
    """What ended, as lines, in the order of its ends."""
    tracer.close()
    return [json.loads(span_line(span)) for span in exporter.get_finished_spans()]


def meta(traceparent: str | None = TRACEPARENT, client_id: str = "me") -> RequestMeta:
    return RequestMeta(
        connection_id=2**64 - 1,
        api_key=1,
        api_version=4,
        correlation_id=-3,
        client_id=client_id,
        traceparent=traceparent,
    )


def request_span(tracer: Tracer) -> Span:
    span = tracer.start_request(meta())
    assert span is not None
    return span


def test_a_service_s_span_is_a_child_of_the_front_door_s_and_says_what_was_asked() -> None:
    door, door_spans = tracer()
    service, service_spans = tracer()
    root = door.start_root("Fetch v4")
    assert root is not None
    child = service.start_request(meta(root.traceparent, "c" * 1_000))
    assert child is not None
    child.set("kafscale.bytes", 7)
    child.end()
    root.end()
    (parent,), (span,) = printed(door, door_spans), printed(service, service_spans)
    assert (span["trace_id"], span["parent_id"]) == (parent["trace_id"], parent["span_id"])
    assert (span["name"], span["kind"], span["service"]) == ("Fetch v4", "server", "fetch")
    assert span["attributes"] == {
        "kafka.api": "Fetch",
        "kafka.api_version": 4,
        "kafka.correlation_id": -3,
        "kafscale.connection_id": str(2**64 - 1),
        "kafka.client_id": "c" * 256,
        "kafscale.bytes": 7,
    }


@pytest.mark.parametrize("traceparent", [None, TRACEPARENT[:-1] + "0"])
def test_a_service_traces_only_what_the_front_door_sampled(traceparent: str | None) -> None:
    service, spans = tracer()
    assert service.start_request(meta(traceparent)) is None
    assert printed(service, spans) == []


def test_a_span_ends_once_and_says_nothing_after_it() -> None:
    service, spans = tracer()
    span = request_span(service)
    span.end()
    span.set("kafscale.late", 1)
    span.end()
    (line,) = printed(service, spans)
    assert "kafscale.late" not in str(line)


def test_what_many_requests_share_is_a_span_of_the_first_with_links_to_the_others() -> None:
    service, spans = tracer()
    first, *others = (request_span(service) for _ in range(LINKS_MAX + 5))
    first.child("PUT segment", links=others).end()
    (line,) = printed(service, spans)
    assert line["parent_id"] == first.traceparent[36:52]
    assert line["links"] == [other.traceparent[36:52] for other in others[:LINKS_MAX]]


def test_a_span_names_what_happened_within_it() -> None:
    service, spans = tracer()
    span = request_span(service)
    span.event("admitted")
    span.end()
    (line,) = printed(service, spans)
    assert list(line["events"]) == ["admitted"]  # type: ignore[call-overload]
    assert 0 <= line["events"]["admitted"] <= line["duration_ms"]  # type: ignore[index,operator]


async def test_a_child_belongs_to_the_request_of_the_task_and_to_no_other() -> None:
    service, spans = tracer()
    span = request_span(service)
    token = CURRENT_SPAN.set(span)

    async def of_process() -> Span | None:
        return start_child("watch")

    async with OwnTasks() as tasks:
        process_task = tasks.create_task(of_process())
    with pytest.raises(KeyError), traced("etcd txn"):
        raise KeyError
    CURRENT_SPAN.reset(token)
    with traced("etcd txn"):
        pass
    assert process_task.result() is None
    (line,) = printed(service, spans)
    assert (line["name"], line["parent_id"]) == ("etcd txn", span.traceparent[36:52])


class DeadCollector(SpanExporter):
    """Holds the thread of the batches until it may go on, and takes nothing."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.may_go_on = threading.Event()
        self.alive = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.asked.set()
        assert self.may_go_on.wait(60)
        return SpanExportResult.SUCCESS if self.alive else SpanExportResult.FAILURE


def test_a_collector_that_does_not_answer_bounds_the_spans_that_wait() -> None:
    collector = DeadCollector()
    service = Tracer(service="fetch", instance="1/boot", ratio=1.0, exporter=collector)
    for _ in range(QUEUE_SPANS_MAX + 100):
        request_span(service).end()
    assert collector.asked.wait(60)
    assert service.delivery.lost == 100
    collector.may_go_on.set()
    service.close()


def test_a_dead_collector_is_told_of_once_and_once_more_when_it_is_back() -> None:
    collector = DeadCollector()
    collector.may_go_on.set()
    counted = Tracer(service="fetch", instance="1/boot", ratio=1.0, exporter=collector).delivery.counted
    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            counted.export([ReadableSpan("Fetch v4")])
        collector.alive = True
        counted.export([ReadableSpan("Fetch v4")])
        counted.export([ReadableSpan("Fetch v4")])
    assert [line["event"] for line in logs] == [
        "trace collector unavailable",
        "trace collector available",
    ]
    assert counted.lost == 5


def test_without_an_exporter_or_a_ratio_at_the_front_door_there_is_no_tracer() -> None:
    assert open_tracer("fetch", "1/b", ServiceSettings(trace_ratio=1)) is None
    console = ServiceSettings(trace_exporter="console", trace_ratio=0)
    assert open_tracer("frontdoor", "1/b", console) is None
    follower = open_tracer("fetch", "1/b", console)
    assert follower is not None
    assert follower.start_root("Fetch v4") is None
    follower.close()


def test_an_endpoint_alone_says_otlp_and_otlp_alone_is_a_mistake() -> None:
    assert ServiceSettings(otlp_endpoint="http://collector:4317").trace_exporter_kind == "otlp"
    assert ServiceSettings().trace_exporter_kind is None
    none = ServiceSettings(trace_exporter="none", otlp_endpoint="http://collector:4317")
    assert none.trace_exporter_kind is None
    with pytest.raises(BadSettings, match="KAFSCALE_OTLP_ENDPOINT"):
        read_settings(ServiceSettings, {"trace_exporter": "otlp"})
    with pytest.raises(BadSettings, match="KAFSCALE_OTLP_ENDPOINT"):
        read_settings(ServiceSettings, {"otlp_endpoint": "collector:4317/v1/traces"})


def test_nothing_of_opentelemetry_is_imported_while_traces_are_off() -> None:
    code = (
        "import sys; import kafscale.runtime.process; from kafscale.runtime.tracing import open_tracer;"
        "from kafscale.runtime.settings import ServiceSettings;"
        "open_tracer('frontdoor', '1/b', ServiceSettings());"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
