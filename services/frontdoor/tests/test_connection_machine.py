"""The laws of one connection: chunking changes nothing, answers keep request order, every bound holds."""

from collections.abc import Sequence
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kafscale.frontdoor.connection import (
    GROWTH,
    LARGE_GROWTH,
    BadFrame,
    Connection,
    Event,
    FrameTooLarge,
    Framing,
    Limits,
    Request,
    Slot,
)
from kafscale.wire.buffers import Buffer
from kafscale.wire.headers import RequestHeader, encode_request_header

FRAME_MAX = 4096
MUCH = 15
"""An API whose answer may be large."""


def frame(key: int = 3, version: int = 1, correlation_id: int = 7, body: bytes = b"") -> bytes:
    whole = encode_request_header(key, version, correlation_id, "client") + body
    return pack(">i", len(whole)) + whole


class Fed(Connection):
    """A machine that is given whole chunks, and shows what it holds."""

    def receive(self, data: Buffer, now_ms: int) -> list[Event]:
        events: list[Event] = []
        rest = memoryview(data)
        while len(rest) and not self._deaf:
            if self._backlog:
                self._backlog += bytes(rest)
                break
            with self.get_buffer() as room:
                count = min(len(room), len(rest))
                room[:count] = rest[:count]
            events += self.buffer_updated(count, now_ms)
            rest = rest[count:]
        return events

    @property
    def allocated_bytes(self) -> int:
        """Of a frame that is still arriving."""
        return 0 if self._frame is None else len(self._frame)

    @property
    def open_count(self) -> int:
        return len(self._open)


def machine(**limits: int) -> Fed:
    return Fed(Limits(frame_bytes_max=limits.pop("frame_bytes_max", FRAME_MAX), **limits))


def feed(connection: Fed, data: bytes, cuts: Sequence[int]) -> list[Event]:
    events: list[Event] = []
    position = 0
    for cut in [*sorted(cuts), len(data)]:
        events += connection.receive(data[position:cut], 0)
        position = max(position, cut)
    return events


def joined(buffers: Sequence[Buffer]) -> bytes:
    return b"".join(bytes(buffer) for buffer in buffers)


def shape(event: Event) -> object:
    if isinstance(event, Request):
        return event.slot, event.header, bytes(event.body), event.size
    return event


BODIES = st.lists(st.binary(max_size=200), max_size=6)


@given(
    bodies=BODIES,
    data=st.data(),
    junk=st.sampled_from([b"", pack(">i", -5), pack(">i", 1 << 30), pack(">i", 3)]),
)
def test_how_the_bytes_are_cut_changes_nothing(bodies: list[bytes], data: st.DataObject, junk: bytes) -> None:
    stream = b"".join(frame(correlation_id=i, body=body) for i, body in enumerate(bodies)) + junk
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=20))
    whole = [shape(event) for event in machine().receive(stream, 0)]
    in_pieces = [shape(event) for event in feed(machine(), stream, cuts)]
    byte_by_byte = [shape(event) for event in feed(machine(), stream, range(len(stream)))]
    assert in_pieces == whole
    assert byte_by_byte == whole
    assert len(whole) == len(bodies) + bool(junk)


def test_a_golden_frame_is_read_to_the_last_field() -> None:
    data = bytes.fromhex(
        "00000016 0003 0009 0000002a 0005 70726f6265 00 02 00 00 00 00 00 00".replace(" ", "")
    )
    (event,) = machine().receive(data[:4] + data[4:26], 12)
    assert isinstance(event, Request)
    assert event.header == RequestHeader(3, 9, 42, "probe")
    assert bytes(event.body) == bytes.fromhex("020000000000")
    assert event.arrived_ms == 12


def test_a_large_frame_is_received_in_its_own_buffer_without_a_copy() -> None:
    body = bytes(200_000)
    data = frame(body=body)
    connection = machine(frame_bytes_max=1 << 20)
    assert connection.receive(data[:60_000], 0) == []
    room = connection.get_buffer()
    assert len(room) == len(data) - 60_000
    room[:] = data[60_000:]
    (event,) = connection.buffer_updated(len(data) - 60_000, 0)
    assert isinstance(event, Request)
    assert event.body.obj is room.obj
    assert bytes(event.body) == body


@pytest.mark.parametrize("start", [5, 1_000, 16_000, 40_000, 65_500])
def test_a_promise_of_many_bytes_allocates_only_what_arrives(start: int) -> None:
    connection = machine(frame_bytes_max=100 << 20)
    connection.receive(pack(">i", 90 << 20) + b"x" * (start - 4), 0)
    arrived = start
    assert connection.mid_frame
    for _ in range(6):
        assert arrived - 4 <= connection.held_bytes <= GROWTH * arrived
        with connection.get_buffer() as room:
            arrived += len(room)
            connection.buffer_updated(len(room), 0)
    assert arrived > 1 << 20
    assert connection.held_bytes <= LARGE_GROWTH * arrived


def test_a_frame_of_a_mebibyte_that_comes_in_full_reads_is_copied_twice() -> None:
    connection = machine(frame_bytes_max=100 << 20)
    connection.receive(pack(">i", 1 << 20) + bytes(connection.get_buffer().nbytes - 4), 0)
    reads = 0
    while connection.mid_frame:
        with connection.get_buffer() as room:
            connection.buffer_updated(len(room), 0)
        reads += 1
    assert reads <= 3


@pytest.mark.parametrize("size", [0, 7, -1, -(1 << 31)])
def test_a_size_that_holds_no_header_ends_the_connection(size: int) -> None:
    (event,) = machine().receive(pack(">i", size), 0)
    assert isinstance(event, BadFrame)


@pytest.mark.parametrize("size", [FRAME_MAX + 1, (1 << 31) - 1])
def test_a_size_past_the_limit_ends_the_connection_before_anything_is_allocated(size: int) -> None:
    connection = machine()
    assert connection.receive(pack(">i", size) + b"x" * 100, 0) == [
        FrameTooLarge(size=size, size_max=FRAME_MAX)
    ]
    assert connection.allocated_bytes == 0
    assert connection.reading is False
    assert connection.receive(frame(), 0) == []


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"), (b"\x16\x03\x01\x02\x00\x01", "a TLS ClientHello")],
)
def test_another_protocol_is_called_by_its_name(data: bytes, what: str) -> None:
    connection = Fed(Limits(frame_bytes_max=(1 << 31) - 1))
    assert connection.receive(data, 0) == [BadFrame(reason=what)]


@pytest.mark.parametrize(
    "header",
    [
        pack(">hhi", 32000, 0, 1) + b"\xff\xff",  # unknown key
        pack(">hhi", 3, 1, 1) + pack(">h", 500),  # the client id is longer than the frame
        pack(">hhi", 3, 1, 1) + pack(">h", -2),
        pack(">hhi", 3, 9, 1) + pack(">h", -1) + b"\xff\xff\xff\xff\x0f",  # 2^32-1 tags
        pack(">hhi", 3, 9, 1) + pack(">h", -1),  # flexible, without its tag count
    ],
)
def test_a_header_that_cannot_be_read_ends_the_connection(header: bytes) -> None:
    (event,) = machine().receive(pack(">i", len(header)) + header, 0)
    assert isinstance(event, BadFrame)


def test_a_client_id_may_be_null_or_as_long_as_the_format_allows() -> None:
    for name in (None, "x" * 32767):
        whole = encode_request_header(3, 1, 1, name)
        (event,) = machine(frame_bytes_max=1 << 20).receive(pack(">i", len(whole)) + whole, 0)
        assert isinstance(event, Request)
        assert event.header.client_id == name


def test_api_versions_is_answered_with_the_old_header_in_every_version() -> None:
    connection = machine()
    (event,) = connection.receive(frame(18, 3, 9), 0)
    assert isinstance(event, Request)
    connection.respond(event.slot, [b"ab"])
    assert joined(connection.to_send()) == pack(">ii", 6, 9) + b"ab"


def test_a_flexible_answer_has_its_tag_count_behind_the_correlation_id() -> None:
    connection = machine()
    (event,) = connection.receive(frame(3, 9, 9), 0)
    assert isinstance(event, Request)
    connection.respond(event.slot, [b"a", memoryview(b"bc")])
    assert joined(connection.to_send()) == pack(">iiB", 8, 9, 0) + b"abc"


def test_a_silent_request_holds_nothing_up_but_counts_as_in_flight() -> None:
    connection = Fed(Limits(requests_max=2), silent=lambda header, _: header.api_key == 0)
    quiet, loud = connection.receive(frame(0, 3, 1) + frame(3, 1, 2), 0)
    assert isinstance(quiet, Request)
    assert isinstance(loud, Request)
    assert (quiet.silent, loud.silent) == (True, False)
    assert connection.reading is False
    connection.respond(loud.slot, [])
    assert joined(connection.to_send()) == pack(">ii", 4, 2)
    assert connection.open_count == 1
    connection.finish(quiet.slot)
    assert connection.drained


def test_nothing_is_sent_while_the_socket_is_full_and_reading_stops() -> None:
    connection = machine()
    (event,) = connection.receive(frame(), 0)
    assert isinstance(event, Request)
    connection.writable(False)
    connection.respond(event.slot, [b"x"])
    assert connection.to_send() == []
    assert connection.reading is False
    connection.writable(True)
    assert connection.reading is True
    assert len(joined(connection.to_send())) == 9


def test_answers_that_wait_for_an_earlier_one_count_against_the_limit_of_requests() -> None:
    connection = machine(requests_max=3)
    events = connection.receive(frame() * 3, 0)
    for event in events[1:]:
        assert isinstance(event, Request)
        connection.respond(event.slot, [])
    assert connection.open_count == 1
    assert connection.reading is False


def test_a_closed_connection_names_what_to_abandon() -> None:
    connection = machine()
    events = connection.receive(frame() * 3, 0)
    connection.respond(Slot(1), [b""])
    assert connection.closed() == [Slot(0), Slot(2)]
    assert connection.drained
    assert len(events) == 3


def test_after_a_request_with_a_large_answer_nothing_is_parsed_until_the_answer_has_gone() -> None:
    connection = Fed(Limits(), alone=(MUCH,))
    first, much = connection.receive(frame(3, 1, 1) + frame(MUCH, 1, 2) + frame(3, 1, 3), 0)
    assert isinstance(first, Request)
    assert isinstance(much, Request)
    assert connection.reading is False
    connection.respond(much.slot, [b"much"])
    assert connection.resume(0) == [], "its answer waits behind another one"
    connection.respond(first.slot, [])
    connection.to_send()
    connection.writable(False)
    assert connection.resume(0) == [], "and then for its client to take it"
    connection.writable(True)
    (last,) = connection.resume(0)
    assert isinstance(last, Request)
    assert last.header.correlation_id == 3
    assert connection.reading is True


@given(
    bodies=st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5),
    part_bytes=st.integers(1, 15),
    data=st.data(),
)
def test_answers_in_parts_are_the_bytes_of_whole_answers_in_whatever_order_the_parts_come(
    bodies: list[bytes], part_bytes: int, data: st.DataObject
) -> None:
    keys = [(3, 1), (3, 9), (18, 3)]
    requests = [frame(*keys[i % 3], correlation_id=i) for i in range(len(bodies))]
    whole, parted = machine(), machine()
    for event, body in zip(whole.receive(b"".join(requests), 0), bodies, strict=True):
        assert isinstance(event, Request)
        whole.respond(event.slot, [body])
    expected = joined(whole.to_send())
    events = parted.receive(b"".join(requests), 0)
    left = [(event.slot, 0) for event in events if isinstance(event, Request)]
    out = b""
    while left:
        slot, start = left.pop(data.draw(st.integers(0, len(left) - 1)))
        body, end = bodies[slot], start + part_bytes
        last = end >= len(body)
        parted.respond_part(slot, [memoryview(body)[start:end]], size=len(body), last=last)
        if not last:
            left.append((slot, end))
        if data.draw(st.booleans()):
            out += joined(parted.to_send())
        assert expected.startswith(out)
        assert len(out) + parted.unsent_bytes <= len(expected)
    out += joined(parted.to_send())
    assert out == expected
    assert parted.drained
    assert parted.unsent_bytes == 0


def test_a_part_leaves_at_once_and_nothing_leaves_behind_it_before_its_end() -> None:
    connection = machine()
    first, second = connection.receive(frame(3, 1, 1) + frame(3, 1, 2), 0)
    assert isinstance(first, Request)
    assert isinstance(second, Request)
    connection.respond(second.slot, [b"second"])
    connection.respond_part(first.slot, [b"fi"], size=5, last=False)
    assert joined(connection.to_send()) == pack(">ii", 9, 1) + b"fi"
    assert connection.to_send() == []
    assert connection.next_slot == first.slot
    assert not connection.drained
    connection.respond_part(first.slot, [b"rst"], size=5, last=True)
    assert joined(connection.to_send()) == b"rst" + pack(">ii", 10, 2) + b"second"


def answer(connection: Fed, event: Event, body: bytes = b"ok") -> bytes:
    assert isinstance(event, Request)
    connection.respond(event.slot, [body])
    return joined(connection.to_send())


@given(bodies=BODIES, data=st.data(), framing=st.sampled_from([Framing.SINGLE, Framing.TOKENS]))
def test_one_at_a_time_nothing_is_parsed_before_the_answer_however_the_bytes_are_cut(
    bodies: list[bytes], data: st.DataObject, framing: Framing
) -> None:
    bare = framing is Framing.TOKENS
    frames = [pack(">i", len(body)) + body if bare else frame(body=body) for body in bodies]
    stream = b"".join(frames)
    connection, events, taken = machine(), [], []
    connection.reframe(framing, FRAME_MAX)
    start = 0
    for cut in [*sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20))), len(stream)]:
        events += connection.receive(stream[start:cut], 0)
        start = cut
        while len(events) > len(taken):
            assert len(events) == len(taken) + 1
            assert connection.reading is False
            taken.append(answer(connection, events[-1]))
            events += connection.resume(0)
    assert [bytes(event.body) for event in events if isinstance(event, Request)] == bodies
    assert set(taken) <= {pack(">i", 2) + b"ok" if bare else pack(">ii", 6, 7) + b"ok"}


def test_a_silent_request_is_not_silent_where_one_request_is_read_at_a_time() -> None:
    connection = Fed(Limits(), silent=lambda *_: True)
    connection.reframe(Framing.SINGLE, FRAME_MAX)
    (event,) = connection.receive(frame() * 2, 0)
    assert isinstance(event, Request)
    assert not event.silent


def test_the_bound_of_a_frame_changes_with_the_framing() -> None:
    connection = machine()
    connection.reframe(Framing.SINGLE, 100)
    (refused,) = connection.receive(pack(">i", 101), 0)
    assert refused == FrameTooLarge(size=101, size_max=100)
    connection = machine()
    connection.reframe(Framing.TOKENS, 100)
    (token,) = connection.receive(pack(">i", 0), 0)
    assert isinstance(token, Request)
    assert (token.header.api_key, bytes(token.body)) == (36, b"")
    connection.reframe(Framing.PIPELINED, FRAME_MAX)
    assert answer(connection, token, b"") == pack(">i", 0), "it is answered as it came"
    (request,) = connection.receive(frame(body=bytes(200)), 0)
    assert isinstance(request, Request)


class Pipelined(RuleBasedStateMachine):
    """A client pipelines, answers come in any order: the wire shows them in order and no bound is passed."""

    REQUESTS_MAX = 4
    BYTES_MAX = 300
    UNSENT_MAX = 120

    def __init__(self) -> None:
        super().__init__()
        self.connection = Fed(
            Limits(
                frame_bytes_max=FRAME_MAX,
                requests_max=self.REQUESTS_MAX,
                request_bytes_max=self.BYTES_MAX,
                unsent_bytes_max=self.UNSENT_MAX,
            ),
            silent=lambda header, _: header.api_key == 0,
            alone=(MUCH,),
        )
        self.sent = 0
        self.much: list[int] = []
        self.open: dict[int, Request] = {}
        self.answers: dict[int, bytes] = {}
        self.loud: list[int] = []
        self.seen: list[int] = []
        self.wire = b""
        self.writable = True

    def take(self, events: list[Event]) -> None:
        for event in events:
            assert isinstance(event, Request)
            assert event.header.correlation_id == len(self.seen), "requests come out in order"
            self.seen.append(event.header.correlation_id)
            self.open[event.header.correlation_id] = event
            if not event.silent:
                self.loud.append(event.header.correlation_id)

    @rule(count=st.integers(1, 6), size=st.integers(0, 100), silent=st.booleans())
    def client_sends(self, count: int, size: int, silent: bool) -> None:
        data = b"".join(
            frame(0 if silent else 3, 3 if silent else 1, self.sent + i, bytes(size)) for i in range(count)
        )
        self.sent += count
        self.take(self.connection.receive(data, 0))

    @rule()
    def client_asks_for_much(self) -> None:
        self.much.append(self.sent)
        self.sent += 1
        self.take(self.connection.receive(frame(MUCH, 1, self.much[-1]), 0))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), size=st.integers(0, 60))
    def service_answers(self, data: st.DataObject, size: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.open)))
        request = self.open.pop(number)
        if request.silent:
            self.connection.finish(request.slot)
        else:
            self.answers[number] = bytes(size)
            self.connection.respond(request.slot, [bytes(size)])
        self.take(self.connection.resume(0))

    @rule(yes=st.booleans())
    def socket_takes_more(self, yes: bool) -> None:
        self.writable = yes
        self.connection.writable(yes)
        self.take(self.connection.resume(0))

    @rule()
    def flush(self) -> None:
        out = self.connection.to_send()
        assert self.writable or not out
        self.wire += joined(out)
        self.take(self.connection.resume(0))

    @invariant()
    def wire_is_the_finished_prefix(self) -> None:
        expected = b""
        whole = True
        for number in self.loud:
            if number not in self.answers:
                whole = False
                break
            expected += pack(">ii", 4 + len(self.answers[number]), number) + self.answers[number]
        assert expected.startswith(self.wire)
        unsent = sum(8 + len(a) for a in self.answers.values()) - len(self.wire)
        if whole and not self.open and unsent == 0 and self.writable:
            assert self.connection.reading

    @invariant()
    def nothing_passes_what_may_be_large(self) -> None:
        on_the_wire = 0
        for number in self.loud:
            on_the_wire += 8 + len(self.answers.get(number, b""))
            if number in self.much and (number not in self.answers or on_the_wire > len(self.wire)):
                assert self.seen[-1] == number
                return

    @invariant()
    def bounds_hold(self) -> None:
        assert len(self.open) <= self.REQUESTS_MAX
        held = [request.size for request in self.open.values()]
        assert sum(held) < self.BYTES_MAX + max(held, default=0)


TestPipelined = Pipelined.TestCase
TestPipelined.settings = settings(max_examples=60, stateful_step_count=40, derandomize=True)


@pytest.mark.deep
@pytest.mark.timeout(3_600)
def test_no_pipeline_breaks_a_connection_in_a_long_search() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Pipelined, settings=settings(max_examples=5_000, stateful_step_count=100)
    )
