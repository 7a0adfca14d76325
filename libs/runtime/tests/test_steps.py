"""Step times: what one process notes, and how the report of a service travels with its reply."""

import json
import struct

import pytest
from kafscale.runtime.steps import REPORT_BYTES_MAX, STEPS_MAX, StepSpan, machine
from kafscale.runtime.stream.frame import (
    COMMON,
    FLAG_MORE,
    FLAG_REPORT,
    FRAME_VERSION,
    PAYLOAD_BYTES_MAX,
    FrameError,
    FrameKind,
    Reply,
    ReplyFrame,
    ReplyStatus,
)
from kafscale.runtime.stream.inbound import InboundRequest
from kafscale.runtime.stream.inbox import Inbox
from kafscale.runtime.stream.outbox import Outbox
from kafscale.runtime.tracing import request_span
from stream_harness import PRODUCE, SLOW, client_of, echo, meta, on_uvloop, running

ASKING = StepSpan("request").traceparent


def names(report: bytes) -> list[object]:
    """The steps, and a list for each report in it."""
    steps = json.loads(report)["steps"]
    return [each[0] if isinstance(each, list) else names(json.dumps(each).encode()) for each in steps]


def test_steps_are_in_the_order_in_which_they_happened_with_the_service_s_own_after_its_reply() -> None:
    service = StepSpan("request")
    service.event("admitted")
    door = StepSpan("request")
    asked = door.child("ask produce")
    asked.event("sent")
    asked.replied(service.report())
    report = door.report()
    assert names(report) == [
        "request begun",
        "ask produce begun",
        "ask produce sent",
        "ask produce ended",
        ["request begun", "request admitted", "request ended"],
        "request ended",
    ]
    times = [each[1] for each in json.loads(report)["steps"] if isinstance(each, list)]
    assert times == sorted(times)
    assert json.loads(report)["machine"] == machine()


def test_a_span_ends_once() -> None:
    span = StepSpan("request")
    span.end()
    span.end()
    assert names(span.report()) == ["request begun", "request ended"]


def test_a_request_with_many_steps_notes_the_first_ones() -> None:
    span = StepSpan("request")
    for number in range(2 * STEPS_MAX):
        span.event(str(number))
    assert len(names(span.report())) == STEPS_MAX


def test_a_report_that_is_too_large_is_left_out() -> None:
    span = StepSpan("request")
    span.child("ask produce").replied(b"[" + b"1," * REPORT_BYTES_MAX + b"1]")
    assert names(span.report()) == [
        "request begun",
        "ask produce begun",
        "ask produce ended",
        "request ended",
    ]


def test_only_a_request_that_asks_is_timed() -> None:
    sampled = ASKING[:-2] + "01"
    assert isinstance(request_span(None, meta(traceparent=ASKING)), StepSpan)
    assert request_span(None, meta(traceparent=sampled)) is None
    assert request_span(None, meta()) is None


@on_uvloop
async def test_the_reply_to_a_request_that_asks_has_a_report_and_no_other_has() -> None:
    large = b"x" * PAYLOAD_BYTES_MAX

    def much(request: InboundRequest) -> None:
        request.reply((large,))

    async with running({PRODUCE: echo, SLOW: much}) as service, client_of(service.target) as client:
        asked = await client.send(meta(traceparent=ASKING), (b"a",)).future
        assert (bytes(asked.body), names(asked.report)) == (b"echo:a", ["request begun", "request ended"])
        plain = await client.send(meta(), (b"b",)).future
        assert (bytes(plain.body), plain.report) == (b"echo:b", b"")
        whole = await client.send(meta(SLOW, traceparent=ASKING), ()).future
        assert (len(whole.body), whole.report) == (len(large), b"")


def reply_with(report: bytes, body: bytes) -> bytes:
    outbox = Outbox()
    outbox.put_reply(7, ReplyStatus.FINAL, 3, (body,), report)
    message = outbox.take(0)
    assert message is not None
    return message


def test_a_report_stands_before_the_body_of_its_reply() -> None:
    (frame,) = Inbox("frontdoor").feed(reply_with(b"report", b"body"))
    assert frame == ReplyFrame(7, Reply(ReplyStatus.FINAL, 3, memoryview(b"body"), report=b"report"))


@pytest.mark.parametrize("length", [0, 3, 5, 1 << 31])
def test_a_report_that_is_longer_than_its_payload_is_a_bad_frame(length: int) -> None:
    message = bytearray(reply_with(b"", b"") + struct.pack(">I", length))
    message[2] = FLAG_REPORT
    struct.pack_into(">I", message, 4, len(message) - 8)
    inbox = Inbox("frontdoor")
    if not length:
        assert len(inbox.feed(bytes(message))) == 1
        return
    with pytest.raises(FrameError):
        inbox.feed(bytes(message))


@pytest.mark.parametrize("side", ["service", "frontdoor"])
@pytest.mark.parametrize("kind", [FrameKind.REQUEST, FrameKind.CHUNK, FrameKind.CANCEL])
def test_only_a_whole_reply_has_a_report(side: str, kind: FrameKind) -> None:
    message = COMMON.pack(FRAME_VERSION, kind, FLAG_REPORT, 0, 8, 7)
    with pytest.raises(FrameError):
        Inbox(side).feed(message)  # type: ignore[arg-type]
    cut = bytearray(reply_with(b"report", b"body"))
    cut[2] |= FLAG_MORE
    with pytest.raises(FrameError):
        Inbox("frontdoor").feed(bytes(cut))
