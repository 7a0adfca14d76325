"""A segment's spans belong to the first traced request inside, with links to the others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, cast

from kafscale.produce.joins import Answer, Joins
from kafscale.produce.log.model import Part
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.requests import RequestSpans
from kafscale.produce.transactions import Transaction
from kafscale.rpc.v1.transactions_pb2 import JoinReply, JoinRequest
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.span_delivery import span_line
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.tracing import CURRENT_SPAN, Span, Tracer
from kafscale.storage.keys import TopicId
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

META = RequestMeta(
    connection_id=1,
    api_key=0,
    api_version=9,
    traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
)


def flight(base: int, end: int, *tokens: int) -> Any:
    waiters = SimpleNamespace(items=[SimpleNamespace(token=token) for token in tokens])
    return SimpleNamespace(base=base, end=end, waiters=waiters)


def writer(*flights: Any) -> Any:
    return SimpleNamespace(flights=lambda: iter(flights))


def put(base: int, part: Part = Part.SEGMENT) -> Any:
    return SimpleNamespace(base=base, part=part, key=f"{base}.kfs")


def commit(next_: int) -> Any:
    return SimpleNamespace(head=SimpleNamespace(next=next_))


def traced_requests(*tokens: int) -> tuple[Tracer, InMemorySpanExporter, RequestSpans, dict[int, Span]]:
    exporter = InMemorySpanExporter()
    tracer = Tracer(service="produce", instance="1/a", ratio=1, exporter=exporter)
    spans, requests = RequestSpans(), {}
    for token in tokens:
        requests[token] = cast(Span, tracer.start_request(META))
        spans.waits(token, requests[token])
    return tracer, exporter, spans, requests


def ids(*spans: Span) -> list[str]:
    return [span.traceparent[36:52] for span in spans]


def ended(tracer: Tracer, exporter: InMemorySpanExporter) -> Sequence[dict[str, Any]]:
    tracer.close()
    return [json.loads(span_line(span)) for span in exporter.get_finished_spans()]


def test_a_put_is_a_span_of_the_first_traced_request_of_its_segment() -> None:
    tracer, exporter, spans, requests = traced_requests(2, 4, 7)
    flights = writer(flight(0, 10, 1, 2, 3, 4), flight(10, 20, 7))
    with spans.put(flights, put(0)), spans.put(flights, put(10, Part.INDEX)):
        pass
    index, segment = ended(tracer, exporter)
    assert (segment["name"], [segment["parent_id"]], segment["links"]) == (
        "PUT segment",
        ids(requests[2]),
        ids(requests[4]),
    )
    assert (index["name"], [index["parent_id"]], index["links"]) == ("PUT index", ids(requests[7]), [])


def test_a_transaction_is_of_the_segments_that_it_commits() -> None:
    tracer, exporter, spans, requests = traced_requests(2, 7)
    flights = writer(flight(0, 10, 1), flight(10, 20, 2), flight(20, 30, 7))
    span = spans.commit(flights, commit(20))
    assert span is not None
    span.end()
    (line,) = ended(tracer, exporter)
    assert (line["name"], [line["parent_id"]], line["links"]) == ("commit txn", ids(requests[2]), [])
    assert line["attributes"] == {"kafscale.segments": 2}


def test_a_segment_without_traced_requests_has_no_span() -> None:
    tracer, exporter, spans, _ = traced_requests(2)
    flights = writer(flight(0, 10, 1), flight(10, 20, 2))
    with spans.put(flights, put(0)):
        pass
    assert spans.commit(flights, commit(10)) is None
    spans.answered(2)
    assert spans.commit(flights, commit(20)) is None
    assert ended(tracer, exporter) == []


async def test_a_join_is_of_the_first_traced_request_that_asks() -> None:
    tracer, _, _, requests = traced_requests(1, 2)
    seen: list[Span | None] = []

    class Calls:
        async def join(self, request: JoinRequest, *, timeout_s: float) -> JoinReply:
            seen.append(CURRENT_SPAN.get())
            return JoinReply(number=4)

    class Waits:
        def __init__(self, partition: int) -> None:
            self.key = (TopicId(b"t" * 16), partition)
            self.answered = asyncio.Event()

        def joined(self, asked: Transaction, answer: Answer) -> None:
            self.answered.set()

    async with asyncio.TaskGroup() as tasks:
        joins = Joins(
            Calls(), metrics=ProduceMetrics(Metrics("produce")), begin=lambda work: _begin(tasks, work)
        )
        waiting = [Waits(partition) for partition in range(4)]
        together = Transaction("id", 7, 0, adds=True)
        for each, span in zip(waiting, (None, requests[1], requests[2]), strict=False):
            joins.ask(together, each, span)
        joins.ask(Transaction("id", 7, 1, adds=True), waiting[3])
        for each in waiting:
            await each.answered.wait()
    assert seen == [requests[1], None]
    assert CURRENT_SPAN.get() is None
    tracer.close()


def _begin(tasks: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
    tasks.create_task(work)
