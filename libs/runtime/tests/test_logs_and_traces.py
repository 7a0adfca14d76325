"""What a request leaves behind: log lines with its ids, and at most one span per process."""

import json
import os
import subprocess
import sys

import pytest
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.tracing import Tracer, open_tracer
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

LOGGING = """
import logging, sys
from kafscale.runtime.logs import CURRENT_REQUEST, configure_logs
from kafscale.runtime.stream.frame import RequestMeta
import structlog
ids = configure_logs(level="info", form=sys.argv[1], service="fetch")
ids["instance"] = "1/boot"
log = structlog.get_logger("x")
log.debug("too small")
log.info("outside")
CURRENT_REQUEST.set(RequestMeta(connection_id=5, correlation_id=8, api_key=1, api_version=4, client_id="me",
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
try:
    1 / 0
except ZeroDivisionError:
    log.exception("inside")
logging.getLogger("library").warning("its own %s", "way")
"""


def logged(form: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOGGING, form],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    assert done.stdout == ""
    return done.stderr.splitlines()


def test_each_json_line_names_the_process_and_the_request_at_hand() -> None:
    outside, inside, library = map(json.loads, logged("json"))
    assert (outside["event"], outside["service"], outside["instance"]) == ("outside", "fetch", "1/boot")
    assert "connection_id" not in outside
    assert (inside["connection_id"], inside["correlation_id"], inside["client_id"]) == (5, 8, "me")
    assert (inside["api_key"], inside["api"], inside["api_version"]) == (1, "Fetch", 4)
    assert inside["logger"] == "x"
    assert inside["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert "ZeroDivisionError" in inside["exception"]
    assert (library["event"], library["level"], library["service"]) == ("its own way", "warning", "fetch")


def test_plain_lines_are_for_people() -> None:
    lines = logged("plain")
    assert "outside" in lines[0]
    assert "service=fetch" in lines[0]
    assert not any("too small" in line for line in lines)


def tracer(ratio: float) -> tuple[Tracer, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    return Tracer(service="fetch", instance="1/boot", ratio=ratio, exporter=exporter), exporter


def test_a_service_s_span_is_a_child_of_the_front_door_s() -> None:
    door, door_spans = tracer(1.0)
    service, service_spans = tracer(1.0)
    root = door.start_root("Fetch", {"kafka.client_id": "me"})
    assert root is not None
    meta = RequestMeta(connection_id=1, api_key=1, api_version=4, traceparent=root.traceparent)
    child = service.start_request(meta)
    assert child is not None
    child.set("kafscale.bytes", 7)
    child.end()
    root.end()
    door.close()
    service.close()
    (parent,), (span,) = door_spans.get_finished_spans(), service_spans.get_finished_spans()
    assert parent.context is not None
    assert span.context is not None
    assert span.parent is not None
    assert span.context.trace_id == parent.context.trace_id
    assert span.parent.span_id == parent.context.span_id
    assert span.attributes is not None
    assert span.attributes["kafscale.bytes"] == 7


@pytest.mark.parametrize("traceparent", [None, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"])
def test_a_service_traces_only_what_the_front_door_sampled(traceparent: str | None) -> None:
    service, spans = tracer(1.0)
    meta = RequestMeta(connection_id=1, api_key=1, api_version=4, traceparent=traceparent)
    assert service.start_request(meta) is None
    service.close()
    assert spans.get_finished_spans() == ()


def test_without_a_ratio_and_a_collector_there_is_no_tracer() -> None:
    assert open_tracer(service="x", instance="1/b", ratio=0.0, endpoint="http://127.0.0.1:4317") is None
    assert open_tracer(service="x", instance="1/b", ratio=0.5, endpoint=None) is None
    never, _ = tracer(0.0)
    assert never.start_root("Fetch") is None
    never.close()
