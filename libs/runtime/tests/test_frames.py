"""The frame codec: what is put in an Outbox comes out of an Inbox, and nothing else is accepted."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafscale.runtime.stream.frame import (
    CLIENTS_KNOWN,
    FLAG_MORE,
    FLAG_SIZED,
    FRAME_VERSION,
    CancelFrame,
    Frame,
    FrameError,
    FrameKind,
    LeavingFrame,
    Reply,
    ReplyFrame,
    ReplyPart,
    ReplyStatus,
    RequestFrame,
    RequestMeta,
    TooLargeFrame,
)
from kafscale.runtime.stream.inbox import Inbox
from kafscale.runtime.stream.outbox import Outbox, cut

texts = st.none() | st.text(max_size=40)
metas = st.builds(
    RequestMeta,
    connection_id=st.integers(0, 2**64 - 1),
    api_key=st.integers(0, 100),
    api_version=st.integers(0, 20),
    correlation_id=st.integers(-(1 << 31), (1 << 31) - 1),
    lane_epoch=st.integers(0, 2**32 - 1),
    age_budget_ms=st.integers(0, 2**31),
    revision=st.integers(0, 2**63 - 1),
    log_start_revision=st.integers(0, 2**63 - 1),
    listener=texts,
    principal=texts,
    peer=texts,
    client_id=texts,
    traceparent=texts,
)
bodies = st.lists(st.binary(max_size=70), max_size=5)


def drained(outbox: Outbox) -> list[bytes]:
    messages = []
    while (message := outbox.take(0)) is not None:
        messages.append(message)
    return messages


def received(inbox: Inbox, messages: list[bytes]) -> list[Frame]:
    return [frame for message in messages for frame in inbox.feed(message)]


def request_message(body: bytes = b"body", **fields: object) -> bytes:
    outbox = Outbox()
    meta = RequestMeta(**{"connection_id": 1, "api_key": 0, "api_version": 9, **fields})  # type: ignore[arg-type]
    outbox.put_request(7, meta, (body,), lane=0, expires_ms=0)
    message = outbox.take(0)
    assert message is not None
    return message


def test_the_bytes_of_a_request_are_those_of_the_proto_file() -> None:
    outbox = Outbox()
    meta = RequestMeta(
        connection_id=0x0102030405060708,
        api_key=1,
        api_version=13,
        correlation_id=-2,
        lane_epoch=5,
        revision=99,
        log_start_revision=98,
        listener="L",
        principal=None,
        peer="p:1",
        client_id="",
        traceparent=None,
    )
    outbox.put_request(0x1112131415161718, meta, (b"xy", b"z"), lane=0, expires_ms=30_000)
    assert outbox.take(10_000) == bytes.fromhex(
        "03 01 00 00 00000043 1112131415161718 0000000000000063 0000000000000062 0102030405060708"
        "00000005 00004e20"
        "0001 000d fffffffe 000e 0001 4c ffff 0003 703a31 0000 ffff 78797a"
    )


def test_the_bytes_of_a_reply_a_cancel_and_a_leaving_are_those_of_the_proto_file() -> None:
    outbox = Outbox()
    outbox.put_reply(3, ReplyStatus.NOT_OWNER, 77, (b"ok",))
    outbox.put_cancel(4)
    outbox.put_leaving()
    assert outbox.take(0) == bytes.fromhex(
        "03 03 00 01 00000012 0000000000000003 000000000000004d 6f6b  03 04 00 00 00000008 0000000000000004"
        "03 05 00 00 00000008 0000000000000000"
    )


@given(st.lists(st.tuples(metas, bodies), max_size=20))
def test_every_request_comes_out_as_it_was_put_in(requests: list[tuple[RequestMeta, list[bytes]]]) -> None:
    outbox = Outbox(message_bytes_max=400)
    for number, (meta, body) in enumerate(requests):
        outbox.put_request(number, meta, body, lane=0, expires_ms=meta.age_budget_ms)
    frames = received(Inbox("service"), drained(outbox))
    assert len(frames) == len(requests)
    for number, (frame, (meta, body)) in enumerate(zip(frames, requests, strict=True)):
        assert isinstance(frame, RequestFrame)
        expected = {name: getattr(meta, name) for name in meta.__struct_fields__} | {"request_id": number}
        assert frame.meta == RequestMeta(**expected)
        assert frame.body == b"".join(body)
    assert outbox.waiting_bytes == 0


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 90), max_size=4)), max_size=25),
    st.integers(1, 30),
)
def test_lanes_keep_their_order_whatever_is_chunked(
    frames: list[tuple[int, list[int]]], payload: int
) -> None:
    outbox = Outbox(message_bytes_max=64, payload_bytes_max=payload)
    expected: dict[int, list[bytes]] = {}
    for number, (lane, sizes) in enumerate(frames):
        body = [bytes([number]) * size for size in sizes]
        meta = RequestMeta(connection_id=lane, api_key=0, api_version=0)
        outbox.put_request(number, meta, body, lane=lane, expires_ms=0)
        expected.setdefault(lane, []).append(b"".join(body))
    got: dict[int, list[bytes]] = {}
    for frame in received(Inbox("service"), drained(outbox)):
        assert isinstance(frame, RequestFrame)
        got.setdefault(frame.meta.connection_id, []).append(bytes(frame.body))
    assert got == expected
    assert outbox.waiting_bytes == 0


@given(st.lists(st.binary(max_size=50), max_size=6), st.integers(1, 60))
def test_a_cut_body_is_whole_and_every_piece_but_the_last_is_full(body: list[bytes], size: int) -> None:
    pieces = [b"".join(piece) for piece in cut(body, size)]
    assert b"".join(pieces) == b"".join(body)
    assert all(len(piece) == size for piece in pieces[:-1])
    assert len(pieces[-1]) <= size
    assert pieces[-1] or not b"".join(body)


def test_everything_that_waits_leaves_in_one_message_up_to_the_limit() -> None:
    outbox = Outbox()
    for number in range(100):
        outbox.put_reply(number, 0, 0, (b"x" * 1000,))
    assert len(drained(outbox)) == 1
    for number in range(3900):
        outbox.put_reply(number, 0, 0, (b"x" * 1000,))
    messages = drained(outbox)
    assert len(messages) == 4
    assert max(map(len, messages)) <= 1 << 20


def test_small_frames_pass_between_the_chunks_of_a_large_body() -> None:
    outbox = Outbox()
    meta = RequestMeta(connection_id=1, api_key=0, api_version=9)
    outbox.put_request(1, meta, (b"l" * (5 << 20),), lane=1, expires_ms=0)
    outbox.put_request(2, meta, (b"s",), lane=2, expires_ms=0)
    frames = received(Inbox("service"), drained(outbox))
    assert [frame.meta.request_id for frame in frames if isinstance(frame, RequestFrame)] == [2, 1]


def test_a_later_frame_of_the_same_lane_waits_for_the_large_body() -> None:
    outbox = Outbox()
    meta = RequestMeta(connection_id=1, api_key=0, api_version=9)
    outbox.put_request(1, meta, (b"l" * (5 << 20),), lane=1, expires_ms=0)
    outbox.put_request(2, meta, (b"s",), lane=1, expires_ms=0)
    frames = received(Inbox("service"), drained(outbox))
    assert [frame.meta.request_id for frame in frames if isinstance(frame, RequestFrame)] == [1, 2]


def test_many_large_bodies_never_open_more_than_a_receiver_allows() -> None:
    outbox = Outbox()
    for number in range(40):
        outbox.put_reply(number, 0, 0, (bytes([number]) * (1 << 20), b"tail"))
    frames = received(Inbox("frontdoor"), drained(outbox))
    assert sorted(frame.request_id for frame in frames if isinstance(frame, ReplyFrame)) == list(range(40))


def test_a_body_without_room_keeps_nothing_and_is_not_spoken_of() -> None:
    outbox = Outbox()
    for number in (1, 2):
        outbox.put_reply(number, 0, 0, (bytes(4 << 20),))
    asked: list[tuple[int, int]] = []

    def admits(request_id: int, size: int) -> bool:
        asked.append((request_id, size))
        return request_id == 2 or len(asked) < 4

    inbox = Inbox("frontdoor", admits=admits)
    frames = received(inbox, drained(outbox))
    assert [frame.request_id for frame in frames if isinstance(frame, ReplyFrame)] == [2]
    assert sorted(asked) == [(1, 1 << 20)] * 3 + [(2, 1 << 20)] * 4
    assert not inbox._open


def test_a_dropped_frame_never_leaves_and_frees_its_lane() -> None:
    outbox = Outbox()
    meta = RequestMeta(connection_id=1, api_key=0, api_version=9)
    large = outbox.put_request(1, meta, (b"l" * (3 << 20),), lane=1, expires_ms=0)
    outbox.put_request(2, meta, (b"s",), lane=1, expires_ms=0)
    inbox = Inbox("service")
    first = outbox.take(0)
    assert first is not None
    assert inbox.feed(first) == []
    assert large.taken
    outbox.drop(large)
    outbox.put_cancel(1)
    frames = received(inbox, drained(outbox))
    assert [type(frame) for frame in frames] == [RequestFrame, CancelFrame]
    assert not inbox._open
    assert outbox.waiting_bytes == 0


def test_what_is_dropped_before_it_left_was_never_sent() -> None:
    outbox = Outbox()
    meta = RequestMeta(connection_id=1, api_key=0, api_version=9)
    waiting = outbox.put_request(1, meta, (b"s",), lane=1, expires_ms=0)
    outbox.drop(waiting)
    outbox.drop(waiting)
    assert outbox.take(0) is None
    assert not waiting.taken
    assert outbox.waiting_bytes == 0


def test_time_in_the_queue_is_taken_off_the_age_budget() -> None:
    outbox = Outbox()
    meta = RequestMeta(connection_id=1, api_key=0, api_version=9, age_budget_ms=1000)
    for expires_ms in (1000, 500, 0):
        outbox.put_request(expires_ms, meta, (), lane=1, expires_ms=expires_ms)
    message = outbox.take(600)
    assert message is not None
    budgets = [f.meta.age_budget_ms for f in Inbox("service").feed(message) if isinstance(f, RequestFrame)]
    assert budgets == [400, 1, 0]


def test_a_text_too_long_for_the_header_is_refused_and_nothing_waits() -> None:
    outbox = Outbox()
    for client_id in ("c" * 65_535, "c" * 65_530):
        meta = RequestMeta(connection_id=1, api_key=0, api_version=9, client_id=client_id)
        with pytest.raises(FrameError):
            outbox.put_request(1, meta, (), lane=0, expires_ms=0)
    assert outbox.take(0) is None
    assert outbox.waiting_bytes == 0


def leaving(payload: bytes = b"") -> bytes:
    return struct.pack(">BBBBIQ", FRAME_VERSION, FrameKind.LEAVING, 0, 0, 8 + len(payload), 0) + payload


GOOD = request_message()


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"\x01" + GOOD[1:], "another version"),
        (GOOD[:1] + b"\x09" + GOOD[2:], "an unknown kind"),
        (GOOD[:2] + b"\x04" + GOOD[3:], "an unknown flag"),
        (GOOD[:2] + b"\x02" + GOOD[3:], "a size in a request"),
        (GOOD[:3] + b"\x01" + GOOD[4:], "a status in a request"),
        (GOOD[:-1], "cut short"),
        (GOOD + b"\x01", "a byte too many"),
        (GOOD[:4] + struct.pack(">I", 8) + GOOD[8:16], "shorter than its header"),
        (GOOD[:56] + struct.pack(">H", 999) + GOOD[58:], "texts past the end"),
        (GOOD[:56] + struct.pack(">H", 9) + GOOD[58:], "texts that do not fill their field"),
        (GOOD[:58] + b"\x00\x01\xff" + GOOD[61:], "a text that is not UTF-8"),
        (GOOD[:1] + bytes([FrameKind.CHUNK]) + GOOD[2:], "a chunk of nothing"),
        (GOOD[:1] + bytes([FrameKind.REPLY]) + GOOD[2:], "a reply to a service"),
        (GOOD[:1] + bytes([FrameKind.CANCEL]) + GOOD[2:], "a cancel with a payload"),
        (leaving(), "a leaving to a service"),
    ],
)
def test_a_frame_that_does_not_follow_the_layout_is_refused(bad: bytes, why: str) -> None:
    with pytest.raises(FrameError):
        Inbox("service").feed(bad)
    assert Inbox("service").feed(GOOD), why


def test_a_front_door_takes_replies_and_a_leaving_only() -> None:
    with pytest.raises(FrameError):
        Inbox("frontdoor").feed(GOOD)
    unknown_status = struct.pack(">BBBBIQQ", FRAME_VERSION, FrameKind.REPLY, 0, 9, 16, 1, 0)
    with pytest.raises(FrameError):
        Inbox("frontdoor").feed(unknown_status)
    assert Inbox("frontdoor").feed(leaving()) == [LeavingFrame()]
    with pytest.raises(FrameError):
        Inbox("frontdoor").feed(leaving(b"a payload"))


def chunked(request_id: int, pieces: int, size: int) -> list[bytes]:
    outbox = Outbox(payload_bytes_max=size)
    meta = RequestMeta(connection_id=1, api_key=0, api_version=9)
    outbox.put_request(request_id, meta, (b"x" * (size * pieces),), lane=request_id, expires_ms=0)
    return [message for message in iter(lambda: outbox.take(0), None) if message is not None]


def test_a_body_over_the_bound_fails_its_request_and_not_the_stream() -> None:
    def message() -> list[bytes]:
        outbox = Outbox()
        outbox.put_reply(1, 0, 0, (b"x" * (5 << 20),))
        return drained(outbox)

    assert received(Inbox("frontdoor", body_bytes_max=5 << 20), message())
    inbox = Inbox("frontdoor", body_bytes_max=(5 << 20) - 1)
    (frame,) = received(inbox, message())
    assert frame == ReplyFrame(1, Reply(ReplyStatus.TOO_LARGE, 0, memoryview(b"")))
    assert received(inbox, drained(small_reply()))
    requests = [request_part(7), *chunked(7, 6, 1 << 20)[1:]]
    assert received(Inbox("service", body_bytes_max=2 << 20), requests) == [TooLargeFrame(7)]


def small_reply() -> Outbox:
    outbox = Outbox()
    outbox.put_reply(2, 0, 0, (b"x",))
    return outbox


def test_more_open_bodies_than_the_bound_are_refused() -> None:
    inbox = Inbox("service", open_bodies_max=2)
    first = [request_part(number) for number in range(3)]
    assert inbox.feed(first[0]) == []
    assert inbox.feed(first[1]) == []
    with pytest.raises(FrameError):
        inbox.feed(first[2])


def request_part(request_id: int) -> bytes:
    """The first part of a body that never ends."""
    message = bytearray(request_message())
    message[2] = 1
    message[8:16] = request_id.to_bytes(8, "big")
    return bytes(message)


def test_a_body_that_begins_twice_and_an_endless_row_of_empty_chunks_are_refused() -> None:
    inbox = Inbox("service")
    inbox.feed(request_part(1))
    with pytest.raises(FrameError):
        inbox.feed(request_part(1))
    empty = struct.pack(">BBBBIQ", FRAME_VERSION, FrameKind.CHUNK, 1, 0, 8, 1)
    with pytest.raises(FrameError):
        inbox.feed(empty)


def test_a_trace_is_kept_though_the_texts_of_a_connection_are_cached() -> None:
    outbox = Outbox()
    inbox = Inbox("service")
    traces = [None, "00-a-b-01", None, "00-c-d-01"]
    for trace in traces:
        meta = RequestMeta(connection_id=1, api_key=0, api_version=9, client_id="me", traceparent=trace)
        outbox.put_request(1, meta, (), lane=0, expires_ms=0)
    frames = received(inbox, drained(outbox))
    assert [f.meta.traceparent for f in frames if isinstance(f, RequestFrame)] == traces
    assert {f.meta.client_id for f in frames if isinstance(f, RequestFrame)} == {"me"}


def test_texts_of_connections_that_come_and_go_take_bounded_memory_at_both_ends() -> None:
    outbox, inbox = Outbox(), Inbox("service")

    def talk(number: int, client_id: str) -> None:
        meta = RequestMeta(
            connection_id=number, api_key=0, api_version=9, peer=f"h:{number}", client_id=client_id
        )
        outbox.put_request(number, meta, (), lane=0, expires_ms=0)
        received(inbox, drained(outbox))

    long = "long" * 4_000
    tracemalloc.start()
    try:
        for number in range(8 * CLIENTS_KNOWN):
            talk(number, long if number % 2 else "short")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 4 << 20


@given(st.binary(max_size=120), st.sampled_from(["service", "frontdoor"]))
def test_no_bytes_at_all_raise_anything_but_a_frame_error(noise: bytes, side: str) -> None:
    inbox = Inbox("service" if side == "service" else "frontdoor")
    for message in (noise, GOOD[:1] + noise, GOOD[:8] + noise):
        try:
            inbox.feed(message)
        except FrameError:
            continue


def test_a_reply_is_a_view_of_the_message_and_not_a_copy() -> None:
    outbox = Outbox()
    outbox.put_reply(1, 0, 5, (b"abc",))
    message = outbox.take(0)
    assert message is not None
    (frame,) = Inbox("frontdoor").feed(message)
    assert frame == ReplyFrame(1, Reply(ReplyStatus.FINAL, 5, memoryview(b"abc")))
    assert isinstance(frame, ReplyFrame)
    assert frame.reply.body.obj is message


def test_a_small_body_does_not_keep_a_large_message_alive() -> None:
    outbox = Outbox()
    outbox.put_reply(1, 0, 0, (b"s" * 100,))
    outbox.put_reply(2, 0, 0, (b"l" * 200_000,))
    message = outbox.take(0)
    assert message is not None
    small, large = Inbox("frontdoor").feed(message)
    assert isinstance(small, ReplyFrame)
    assert isinstance(large, ReplyFrame)
    assert small.reply.body.obj is not message
    assert small.reply.body == b"s" * 100
    assert large.reply.body.obj is message


def test_an_answer_does_not_keep_a_message_of_more_than_four_times_its_size_alive() -> None:
    outbox = Outbox()
    for number, size in enumerate((40_000, 200_000, 400_000)):
        outbox.put_reply(number, 0, 0, (b"x" * size,))
    message = outbox.take(0)
    assert message is not None
    frames = [frame for frame in Inbox("frontdoor").feed(message) if isinstance(frame, ReplyFrame)]
    assert [frame.reply.body.obj is message for frame in frames] == [False, True, True]
    assert [len(frame.reply.body) for frame in frames] == [40_000, 200_000, 400_000]


@given(body=st.binary(min_size=1, max_size=300), chunk=st.integers(1, 80), revision=st.integers(0, 2**63 - 1))
def test_the_parts_of_an_answer_are_the_answer(body: bytes, chunk: int, revision: int) -> None:
    outbox = Outbox(payload_bytes_max=chunk, sizes=True)
    outbox.put_reply(1, 0, revision, (body[:40], memoryview(body)[40:]))
    outbox.put_reply(2, 0, 0, (b"other",))
    frames = received(Inbox("frontdoor", streams=lambda number: number == 1), drained(outbox))
    parts = [frame for frame in frames if isinstance(frame, ReplyPart)]
    assert len(parts) == (len(frames) - 1 if len(body) > chunk else 0)
    if not parts:
        return
    left = len(body)
    for part in parts:
        left -= len(part.reply.body)
        assert (part.request_id, part.size, part.left_bytes) == (1, len(body), left)
        assert (part.reply.status, part.reply.revision) == (ReplyStatus.FINAL, revision)
    assert b"".join(part.reply.body for part in parts) == body
    assert left == 0


@given(body=st.binary(min_size=1, max_size=300), chunk=st.integers(1, 80), sizes=st.booleans())
def test_who_takes_no_parts_gets_the_same_whole_answer_with_and_without_sizes(
    body: bytes, chunk: int, sizes: bool
) -> None:
    outbox = Outbox(payload_bytes_max=chunk, sizes=sizes)
    outbox.put_reply(1, 0, 3, (body,))
    (frame,) = received(Inbox("frontdoor"), drained(outbox))
    assert frame == ReplyFrame(1, Reply(ReplyStatus.FINAL, 3, memoryview(body)))


def test_a_peer_that_reads_no_sizes_gets_the_frames_of_old() -> None:
    outbox = Outbox(payload_bytes_max=2)
    reply, chunk = FrameKind.REPLY, FrameKind.CHUNK
    old = struct.pack(">BBBBIQQ", FRAME_VERSION, reply, FLAG_MORE, 0, 18, 1, 5) + b"ab"
    old += struct.pack(">BBBBIQ", FRAME_VERSION, chunk, 0, 0, 9, 1) + b"c"
    outbox.put_reply(1, 0, 5, (b"abc",))
    assert b"".join(drained(outbox)) == old


def sized(total: int, *payloads: bytes, more: bool = False) -> bytes:
    """A reply of chunks whose first frame says `total`. `more`: the last chunk is not the end."""
    first, *rest = payloads
    flags = FLAG_MORE | FLAG_SIZED
    message = struct.pack(">BBBBIQQQ", FRAME_VERSION, FrameKind.REPLY, flags, 0, 24 + len(first), 1, 0, total)
    message += first
    for number, payload in enumerate(rest, start=1):
        flags = FLAG_MORE if more or number < len(rest) else 0
        message += struct.pack(">BBBBIQ", FRAME_VERSION, FrameKind.CHUNK, flags, 0, 8 + len(payload), 1)
        message += payload
    return message


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("total", "payloads", "more"),
    [
        (3, (b"ab", b"cd"), False),  # more than it said
        (5, (b"ab", b"cd"), False),  # less
        (4, (b"ab", b"cd"), True),  # all, and then more to come
        (2, (b"ab",), False),  # all of it in the first frame, but chunks to come
        (0, (b"ab",), False),
    ],
)
def test_parts_that_do_not_add_up_end_the_stream(
    total: int, payloads: tuple[bytes, ...], more: bool, streams: bool
) -> None:
    with pytest.raises(FrameError):
        Inbox("frontdoor", streams=lambda _: streams).feed(sized(total, *payloads, more=more))
    assert Inbox("frontdoor", streams=lambda _: streams).feed(sized(4, b"ab", b"cd"))


def test_a_size_belongs_to_the_first_frame_of_an_answer_in_chunks() -> None:
    alone = struct.pack(">BBBBIQQQ", FRAME_VERSION, FrameKind.REPLY, FLAG_SIZED, 0, 26, 1, 0, 2) + b"ab"
    cut_short = struct.pack(">BBBBIQQ", FRAME_VERSION, FrameKind.REPLY, FLAG_MORE | FLAG_SIZED, 0, 16, 1, 0)
    for wrong in (alone, cut_short):
        with pytest.raises(FrameError):
            Inbox("frontdoor").feed(wrong)


def test_a_streamed_answer_over_the_bound_fails_whole_and_one_nobody_waits_for_is_dropped() -> None:
    inbox = Inbox("frontdoor", body_bytes_max=3, streams=lambda _: True)
    assert inbox.feed(sized(4, b"ab", b"cd")) == [ReplyFrame(1, Reply(ReplyStatus.TOO_LARGE))]
    inbox = Inbox("frontdoor", admits=lambda _number, _size: False, streams=lambda _: True)
    assert inbox.feed(sized(4, b"ab", b"cd")) == []
    assert not inbox._open
