"""One client connection, without its socket: bytes in, requests out; answers in, bytes out in request order. Pure.

Laws: the events do not depend on how the bytes were cut. The size of a frame is checked before any byte is allocated
for it. Memory grows with the bytes that have arrived, not with the announced size: a frame never holds more than
`GROWTH` times the bytes of it that have arrived. Answers leave in the order of their requests, whatever order they came
in. `reading` is false while requests, their bytes or unsent bytes are at their limits. Bytes that have already arrived
then wait here, and `resume` returns their requests. A silent request (acks=0) is in flight, but the answers behind it
do not wait for it. After a request whose answer may be large, or that changes what others read, nothing more is
parsed until that answer has gone to the socket, as Kafka does after every request. So a connection has at most one such
answer, and that answer never waits for a later request. Every request is so while a client logs in (`Framing`): what
comes after an answer is read by the rules that hold after it.
The machine raises only for our own bugs. A client's mistake is an event; after it the machine ignores all bytes.

A frame has limits of time too (`FrameTimer`): it must be whole within a time that begins with its first byte, whether
the front door reads it or not. While the front door reads it, its bytes arrive at a minimum rate, on average and after
a grace period. A frame never pauses for long, and for less time while others wait for the memory that it holds. Time in
which the front door does not read does not count against the client.
"""

from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from enum import Enum
from struct import Struct
from typing import Final, NewType

import msgspec
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import WireError
from kafscale.wire.headers import RequestHeader, answer_head, decode_request_header, response_header_version

Slot = NewType("Slot", int)

SIZE: Final = Struct(">i")
HEADER_BYTES_MIN: Final = 8
SCRATCH_BYTES: Final = 64 << 10
HEAD_BYTES_MAX: Final = 16 << 10
"""A shorter start of a frame is kept in exactly its bytes. A longer one gets a buffer with room for more."""
GROWTH: Final = 4
LARGE_BYTES: Final = 1 << 20
LARGE_GROWTH: Final = 2
STEP_BYTES_MAX: Final = 8 << 20
NOT_KAFKA: Final = {
    **dict.fromkeys((b"GET ", b"POST", b"HEAD", b"PUT "), "an HTTP request"),
    **dict.fromkeys((b"\x16\x03\x01", b"\x16\x03\x03"), "a TLS ClientHello"),
}


class Framing(Enum):
    """What a frame is, and how many may be under way."""

    PIPELINED = "requests, many at a time"
    SINGLE = "requests, one at a time"
    TOKENS = "SASL tokens without a request header, one at a time: they follow SaslHandshake 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one connection. One frame may always pass, else a large one never would."""

    frame_bytes_max: int = 100 << 20
    requests_max: int = 256
    request_bytes_max: int = 32 << 20
    unsent_bytes_max: int = 32 << 20


class Request(msgspec.Struct, frozen=True, gc=False):
    """A whole request; `body` is what follows its header. A token without a header has TOKEN_HEADER."""

    slot: Slot
    header: RequestHeader
    body: memoryview
    silent: bool
    arrived_ms: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameTooLarge:
    """The connection must be closed: the frame would not fit."""

    size: int
    size_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BadFrame:
    """The connection must be closed: these bytes are not a Kafka request."""

    reason: str


Event = Request | FrameTooLarge | BadFrame

TOKEN_HEADER: Final = RequestHeader(int(ApiKey.SASL_AUTHENTICATE), 0, 0)


@dataclass(slots=True, eq=False)
class _Open:
    """A request in flight, and what is there of its answer that has not left. `whole`: its end is there too."""

    slot: Slot
    correlation_id: int
    tagged: bool
    silent: bool
    bare: bool
    request_bytes: int
    answer: list[Buffer] | None = None
    whole: bool = False


def room_for(arrived: int) -> int:
    """The buffer size of a frame of which `arrived` bytes are here: a small frame is copied rarely, a large one is
    given little more than it has."""
    if arrived < LARGE_BYTES:
        return arrived * GROWTH
    return min(arrived * LARGE_GROWTH, arrived + STEP_BYTES_MAX)


class Connection:
    def __init__(
        self,
        limits: Limits,
        *,
        scratch: memoryview | None = None,
        silent: Callable[[RequestHeader, memoryview], bool] = lambda _header, _body: False,
        alone: Container[int] = (),
    ) -> None:
        """`scratch` may be shared by all connections of one event loop: nothing stays in it between calls.
        `alone`: the API keys of the requests behind which nothing is parsed before they are answered."""
        self._limits = limits
        self.reframe(Framing.PIPELINED, limits.frame_bytes_max)
        self._scratch = memoryview(bytearray(SCRATCH_BYTES)) if scratch is None else scratch
        self._silent = silent
        self._alone_keys = alone
        self._alone: _Open | None = None
        self._head = b""  # the first bytes of a frame whose size is not known yet
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._filled = 0
        self._backlog = b""
        self._deaf = False
        self._fresh = True
        self._next_slot = 0
        self._open: dict[Slot, _Open] = {}
        self._order: deque[_Open] = deque()
        self._request_bytes = 0
        self._unsent_bytes = 0
        self._writable = True
        self.muted = False

    def reframe(self, framing: Framing, frame_bytes_max: int) -> None:
        """The rules for the next frame. Call it before the first one, or while a request is unanswered that was parsed
        alone."""
        self._framing = framing
        self._frame_bytes_max = frame_bytes_max
        self._frame_bytes_min = 0 if framing is Framing.TOKENS else HEADER_BYTES_MIN

    # ---- bytes in

    @property
    def reading(self) -> bool:
        """Whether the socket may be read now."""
        return not self._backlog and not self._deaf and self._admits()

    def _admits(self) -> bool:
        limits = self._limits
        return (
            len(self._open) < limits.requests_max
            and len(self._order) < limits.requests_max
            and self._request_bytes < limits.request_bytes_max
            and self._unsent_bytes < limits.unsent_bytes_max
            and self._alone is None
            and self._writable
            and not self.muted
        )

    @property
    def held_bytes(self) -> int:
        """Everything that the client's bytes occupy here."""
        arriving = len(self._head) if self._frame is None else len(self._frame)
        return self._request_bytes + arriving + len(self._backlog)

    @property
    def unsent_bytes(self) -> int:
        """Answers that wait for their turn or for the socket."""
        return self._unsent_bytes

    @property
    def next_slot(self) -> Slot:
        """The first one whose answer has not been given to the socket."""
        return self._order[0].slot if self._order else Slot(self._next_slot)

    @property
    def arrived_bytes(self) -> int:
        """The bytes that have arrived of the frame that is under way."""
        return len(self._head) if self._frame is None else self._filled

    @property
    def mid_frame(self) -> bool:
        """Some of a frame has arrived and some has not."""
        return self._frame is not None or bool(self._head)

    def get_buffer(self) -> memoryview:
        """The memory for the next bytes: the shared scratch, or inside a frame the frame's buffer."""
        if self._frame is None:
            head = len(self._head)
            self._scratch[:head] = self._head
            return self._scratch[head:]
        if self._filled == len(self._frame):
            self._grow(self._frame)
        return memoryview(self._frame)[self._filled :]

    def _grow(self, frame: bytearray) -> None:
        more = min(self._frame_size - self._filled, room_for(self._filled) - self._filled)
        try:
            frame += bytes(more)
        except BufferError:
            # The event loop still holds the view that we gave it last: it stays as it is.
            self._frame = frame + bytes(more)

    def buffer_updated(self, count: int, now_ms: int) -> list[Event]:
        """`count` bytes were put at the start of what get_buffer gave."""
        if self._deaf:
            return []
        if self._frame is None:
            end = len(self._head) + count
            self._head = b""
            return self._scan(self._scratch[:end], now_ms)
        self._filled += count
        if self._filled < self._frame_size:
            return []
        frame, self._frame = memoryview(self._frame), None
        return [self._complete(frame, now_ms)]

    def resume(self, now_ms: int) -> list[Event]:
        """Requests that arrived while a limit was reached. Call it after answers."""
        if not self._backlog or not self._admits() or self._deaf:
            return []
        backlog, self._backlog = self._backlog, b""
        return self._scan(memoryview(backlog), now_ms)

    def _scan(self, data: memoryview, now_ms: int) -> list[Event]:
        events: list[Event] = []
        position, end = 0, len(data)
        size_min, size_max = self._frame_bytes_min, self._frame_bytes_max
        while end - position >= SIZE.size:
            if not self._admits():
                self._backlog = bytes(data[position:])
                return events
            (size,) = SIZE.unpack_from(data, position)
            if self._fresh or not size_min <= size <= size_max:
                wrong = self._judge(size, data[position : position + SIZE.size])
                if wrong is not None:
                    events.append(self._refuse(wrong))
                    return events
            position += SIZE.size
            if end - position < size:
                self._begin(size, data[position - SIZE.size :])
                return events
            events.append(self._complete(memoryview(bytes(data[position : position + size])), now_ms))
            if self._deaf:
                return events
            position += size
        self._head = bytes(data[position:])
        return events

    def _judge(self, size: int, prefix: memoryview) -> FrameTooLarge | BadFrame | None:
        if self._fresh:
            self._fresh = False
            first = bytes(prefix)
            for start, what in NOT_KAFKA.items():
                if first.startswith(start):
                    return BadFrame(reason=what)
        if size > self._frame_bytes_max:
            return FrameTooLarge(size=size, size_max=self._frame_bytes_max)
        if size < self._frame_bytes_min:
            return BadFrame(reason=f"a frame of {size} bytes")
        return None

    def _begin(self, size: int, start: memoryview) -> None:
        """`start`: the bytes of the frame that have arrived, with its length field."""
        if len(start) < HEAD_BYTES_MAX:
            self._head = bytes(start)
            return
        start = start[SIZE.size :]
        self._frame = bytearray(min(size, room_for(len(start))))
        self._frame[: len(start)] = start
        self._frame_size = size
        self._filled = len(start)

    def _complete(self, frame: memoryview, now_ms: int) -> Event:
        header, offset = TOKEN_HEADER, 0
        bare = self._framing is Framing.TOKENS
        if not bare:
            try:
                header, offset = decode_request_header(frame)
            except WireError as error:
                return self._refuse(BadFrame(reason=str(error)))
        body = frame[offset:]
        single = self._framing is not Framing.PIPELINED
        silent = not single and self._silent(header, body)
        slot = Slot(self._next_slot)
        self._next_slot += 1
        tagged = response_header_version(header.api_key, header.api_version) == 1
        opened = _Open(slot, header.correlation_id, tagged, silent, bare, len(frame))
        self._open[slot] = opened
        if not silent:
            self._order.append(opened)
            if single or header.api_key in self._alone_keys:
                self._alone = opened
        self._request_bytes += len(frame)
        return Request(slot, header, body, silent, now_ms, len(frame))

    def _refuse(self, wrong: FrameTooLarge | BadFrame) -> FrameTooLarge | BadFrame:
        self._deaf = True
        self._backlog = self._head = b""
        return wrong

    def mute(self, yes: bool) -> None:
        """Whether the client is over a quota. Meanwhile nothing is parsed; what is under way is answered. Call `resume`
        afterwards."""
        self.muted = yes

    # ---- answers out

    def respond(self, slot: Slot, body: Sequence[Buffer]) -> None:
        """The answer of a request without its header, once for each that is not silent."""
        self.respond_part(slot, body, size=sum(map(len, body)), last=True)

    def respond_part(self, slot: Slot, part: Sequence[Buffer], *, size: int, last: bool) -> None:
        """Some of an answer of `size` bytes, in place of `respond`. It may leave before the last part is there."""
        opened = self._open[slot]
        assert not opened.silent, "a request with acks=0 has no answer"
        if opened.answer is None:
            head = SIZE.pack(size)
            if not opened.bare:
                head = answer_head(size, opened.correlation_id, tagged=opened.tagged)
            opened.answer = [head]
            self._unsent_bytes += len(head)
        opened.answer += part
        self._unsent_bytes += sum(map(len, part))
        if last:
            opened.whole = True
            self._take(slot)

    def finish(self, slot: Slot) -> None:
        """A silent request is done."""
        assert self._take(slot).silent, "a request that is not silent must be answered"

    def _take(self, slot: Slot) -> _Open:
        opened = self._open.pop(slot)
        self._request_bytes -= opened.request_bytes
        return opened

    def to_send(self) -> list[Buffer]:
        """The answers that are next in order, up to one that is not whole; none while the socket's buffer is full."""
        order = self._order
        if not self._writable or not order or order[0].answer is None:
            return []
        buffers: list[Buffer] = []
        while order and (answer := order[0].answer) is not None:
            buffers += answer
            if not order[0].whole:
                order[0].answer = []
                break
            if order.popleft() is self._alone:
                self._alone = None
        self._unsent_bytes -= sum(map(len, buffers))
        return buffers

    def writable(self, yes: bool) -> None:
        """Whether the socket's buffer takes more."""
        self._writable = yes

    # ---- the end

    @property
    def drained(self) -> bool:
        """Nothing is in flight and nothing waits to be sent or parsed."""
        return not self._open and not self._order and not self._backlog

    @property
    def idle(self) -> bool:
        """Drained, and the client may send."""
        return self.drained and not self.muted

    def closed(self) -> list[Slot]:
        """The connection has ended. Returns the requests whose answers no client reads any more."""
        self._deaf = True
        self._frame = None
        self._backlog = self._head = b""
        abandoned = list(self._open)
        self._open.clear()
        self._order.clear()
        self._request_bytes = self._unsent_bytes = 0
        return abandoned


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameTimeouts:
    frame_ms_max: int = 600_000
    quiet_ms_max: int = 60_000
    pressed_quiet_ms_max: int = 10_000
    grace_ms: int = 30_000
    bytes_per_s_min: int = 32 << 10


@dataclass(slots=True, eq=False)
class FrameTimer:
    """Of one connection: the frame that is under way, if there is one."""

    first_ms: int | None = None  # of the frame's first byte; None: no frame is under way
    _began_ms: int = 0  # the first byte, later by the time in which nothing was read
    _quiet_from_ms: int = 0
    _unread_from_ms: int | None = None

    def arrived(self, now_ms: int, *, new_frame: bool, under_way: bool) -> None:
        """Bytes arrived. `new_frame`: they completed a request, so a frame that is under way began with them."""
        if not under_way:
            self.first_ms = None
            return
        if self.first_ms is None or new_frame:
            self.first_ms = self._began_ms = now_ms
        self._quiet_from_ms = now_ms

    def reading(self, yes: bool, now_ms: int) -> None:
        """Whether the socket is read from now on."""
        if not yes:
            self._unread_from_ms = now_ms
        elif self._unread_from_ms is not None:
            unread_ms = now_ms - max(self._unread_from_ms, self.first_ms or 0)
            self._unread_from_ms = None
            self._began_ms += unread_ms
            self._quiet_from_ms = min(now_ms, self._quiet_from_ms + unread_ms)

    def wrong(self, limits: FrameTimeouts, now_ms: int, *, arrived_bytes: int, pressed: bool) -> str | None:
        """Why the connection must close; None while the frame is in time."""
        if self.first_ms is None:
            return None
        if now_ms - self.first_ms > limits.frame_ms_max:
            return "a request that is not whole in time"
        read_until_ms = now_ms if self._unread_from_ms is None else self._unread_from_ms
        quiet_ms = read_until_ms - self._quiet_from_ms
        if quiet_ms > (limits.pressed_quiet_ms_max if pressed else limits.quiet_ms_max):
            return "half a request"
        slow_ms = read_until_ms - self._began_ms - limits.grace_ms
        if slow_ms > 0 and arrived_bytes * 1000 < slow_ms * limits.bytes_per_s_min:
            return "a request that comes too slowly"
        return None
