"""Spans by OTLP, taken by a collector that speaks it."""

import queue
from concurrent.futures import ThreadPoolExecutor

import grpc
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.tracing import open_tracer
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)

TAKEN_WITHIN_S = 30.0


class Collector(TraceServiceServicer):
    def __init__(self) -> None:
        self.taken: queue.Queue[ExportTraceServiceRequest] = queue.Queue()

    def Export(
        self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
    ) -> ExportTraceServiceResponse:
        self.taken.put(request)
        return ExportTraceServiceResponse()


def test_a_collector_gets_spans_with_their_process_and_their_parents() -> None:
    collector, server = Collector(), grpc.server(ThreadPoolExecutor(1))
    add_TraceServiceServicer_to_server(collector, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        settings = ServiceSettings(otlp_endpoint=f"http://127.0.0.1:{port}", trace_ratio=1.0)
        tracer = open_tracer("frontdoor", "1/boot", settings)
        assert tracer is not None
        root = tracer.start_root("Produce v9")
        assert root is not None
        root.child("ask produce").end()
        root.end()
        tracer.close()
        [resource] = collector.taken.get(timeout=TAKEN_WITHIN_S).resource_spans
    finally:
        server.stop(None)
    about = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert (about["service.name"], about["service.instance.id"]) == ("kafscale-frontdoor", "1/boot")
    [asked, served] = [span for scope in resource.scope_spans for span in scope.spans]
    assert (asked.name, served.name) == ("ask produce", "Produce v9")
    assert (asked.parent_span_id, asked.trace_id) == (served.span_id, served.trace_id)
