"""Frames that wait to be sent, and the messages they leave in. Pure: take() is called by a shell that writes.

One message carries every waiting frame up to 1 MiB, so that the cost of a message is shared; it
never waits for more. A body over 1 MiB leaves in chunks, and after each chunk everything else that
waits has its turn, except later frames of the same lane: they must not be whole before it is.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from kafscale.runtime.stream.frame import (
    BODY_SIZE,
    CLIENT_TEXTS_MAX,
    CLIENTS_KNOWN,
    COMMON,
    FLAG_MORE,
    FLAG_SIZED,
    FRAME_VERSION,
    LENGTH_END,
    MESSAGE_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    REPLY_HEADER,
    REQUEST_HEADER,
    FrameError,
    FrameKind,
    RequestMeta,
    body_size,
    encode_string,
)
from kafscale.wire.buffers import Buffer

TEXTS_BYTES_MAX: Final = 0xFFFF
# What a frame costs to hold beside its body, so that a queue of empty bodies is bounded too.
FRAME_COST_BYTES: Final = 256
OPEN_BODIES_MAX: Final = 8
AGE_BUDGET_MAX_MS: Final = 0xFFFFFFFF
NULL_TEXT: Final = b"\xff\xff"
_REQUEST, _CHUNK, _REPLY, _CANCEL, _LEAVING = map(int, FrameKind)


@dataclass(slots=True, eq=False)
class Waiting:
    """One request, reply or cancel on its way out. `taken`: whether any byte of it has left.

    `on_taken`: called once, when its first bytes leave.
    """

    kind: int
    request_id: int
    body: Sequence[Buffer]
    left_bytes: int
    status: int = 0
    revision: int = 0
    meta: RequestMeta | None = None
    extra: bytes = b""
    lane: Hashable = None
    expires_ms: int = 0
    cost_bytes: int = 0
    taken: bool = False
    dropped: bool = False
    chunks: Iterator[list[Buffer]] | None = None
    on_taken: Callable[[], None] | None = None


class Outbox:
    def __init__(
        self,
        *,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        payload_bytes_max: int = PAYLOAD_BYTES_MAX,
        sizes: bool = False,
    ) -> None:
        """`sizes`: the peer reads the size of a reply in chunks from its first frame."""
        self._sizes = sizes
        self._message_bytes_max = message_bytes_max
        self._payload_bytes_max = payload_bytes_max
        self._queue: deque[Waiting] = deque()
        # Lane -> the frames that wait behind its chunked body.
        self._held: dict[Hashable, deque[Waiting]] = {}
        self._open_bodies = 0
        self._large: deque[Waiting] = deque()
        self.waiting_bytes = 0

    def put_request(
        self, request_id: int, meta: RequestMeta, body: Sequence[Buffer], *, lane: Hashable, expires_ms: int
    ) -> Waiting:
        """Raises FrameError, and queues nothing, when a text does not fit."""
        extra, size = self._encode_texts(meta), body_size(body)
        waiting = Waiting(
            _REQUEST, request_id, body, size, meta=meta, extra=extra, lane=lane, expires_ms=expires_ms
        )
        self._enqueue(waiting)
        return waiting

    def put_reply(self, request_id: int, status: int, revision: int, body: Sequence[Buffer]) -> None:
        self._enqueue(Waiting(_REPLY, request_id, body, body_size(body), status, revision))

    def put_cancel(self, request_id: int) -> None:
        self._enqueue(Waiting(_CANCEL, request_id, (), 0))

    def put_leaving(self) -> None:
        self._enqueue(Waiting(_LEAVING, 0, (), 0))

    def drop(self, waiting: Waiting) -> None:
        """Drops what has not left. A cancel must follow if part of it has left (`taken`)."""
        if waiting.dropped:
            return
        waiting.dropped = True
        self.waiting_bytes -= waiting.cost_bytes
        waiting.cost_bytes = 0
        waiting.left_bytes = 0
        waiting.body = ()
        if waiting.chunks is not None:
            waiting.chunks = None
            self._body_ended(waiting)

    def __bool__(self) -> bool:
        return bool(self._queue)

    def take(self, now_ms: int) -> bytes | None:
        """The next message, or None when nothing waits."""
        parts: list[Buffer] = []
        size = 0
        queue = self._queue
        while queue:
            waiting = queue[0]
            if waiting.dropped:
                queue.popleft()
                continue
            payload_bytes = min(waiting.left_bytes, self._payload_bytes_max)
            if (
                parts
                and size + payload_bytes + len(waiting.extra) + REQUEST_HEADER.size > self._message_bytes_max
            ):
                break
            queue.popleft()
            size += self._take_frame(waiting, payload_bytes, now_ms, parts)
        return b"".join(parts) if parts else None

    def _enqueue(self, waiting: Waiting) -> None:
        waiting.cost_bytes = waiting.left_bytes + FRAME_COST_BYTES
        self.waiting_bytes += waiting.cost_bytes
        if self._held and waiting.lane in self._held and waiting.lane is not None:
            self._held[waiting.lane].append(waiting)
        elif waiting.left_bytes > self._payload_bytes_max:
            self._enqueue_large(waiting)
        else:
            self._queue.append(waiting)

    def _enqueue_large(self, waiting: Waiting) -> None:
        if waiting.lane is not None:
            self._held[waiting.lane] = deque()
        if self._open_bodies >= OPEN_BODIES_MAX:
            self._large.append(waiting)
            return
        self._open_bodies += 1
        waiting.chunks = cut(waiting.body, self._payload_bytes_max)
        self._queue.append(waiting)

    def _body_ended(self, waiting: Waiting) -> None:
        """The lane behind a large body goes on, and the next large body may start."""
        self._open_bodies -= 1
        for held in self._held.pop(waiting.lane, ()):
            self.waiting_bytes -= held.cost_bytes
            if not held.dropped:
                self._enqueue(held)
        while self._large and self._open_bodies < OPEN_BODIES_MAX:
            large = self._large.popleft()
            self._open_bodies += 1
            if large.dropped:
                self._body_ended(large)
                continue
            large.chunks = cut(large.body, self._payload_bytes_max)
            self._queue.append(large)

    def _take_frame(self, waiting: Waiting, payload_bytes: int, now_ms: int, parts: list[Buffer]) -> int:
        flags = FLAG_MORE if waiting.left_bytes > payload_bytes else 0
        parts.append(self._header(waiting, flags, payload_bytes, now_ms))
        if waiting.on_taken is not None:
            waiting.on_taken()
            waiting.on_taken = None
        waiting.taken = True
        waiting.left_bytes -= payload_bytes
        self.waiting_bytes -= waiting.cost_bytes - waiting.left_bytes
        waiting.cost_bytes = waiting.left_bytes
        if waiting.chunks is None:
            parts.extend(waiting.body)
            waiting.body = ()
        else:
            parts.extend(next(waiting.chunks))
            waiting.kind = _CHUNK
            if flags:
                self._queue.append(waiting)
            else:
                waiting.chunks = None
                waiting.body = ()
                self._body_ended(waiting)
        return REQUEST_HEADER.size + len(waiting.extra) + payload_bytes

    def _header(self, waiting: Waiting, flags: int, payload_bytes: int, now_ms: int) -> bytes:
        kind = waiting.kind
        if kind == _REPLY:
            size = BODY_SIZE.pack(waiting.left_bytes) if flags & FLAG_MORE and self._sizes else b""
            flags |= FLAG_SIZED if size else 0
            length = REPLY_HEADER.size - LENGTH_END + len(size) + payload_bytes
            status, request_id, revision = waiting.status, waiting.request_id, waiting.revision
            header = REPLY_HEADER.pack(FRAME_VERSION, kind, flags, status, length, request_id, revision)
            return header + size
        if kind != _REQUEST:
            length = COMMON.size - LENGTH_END + payload_bytes
            return COMMON.pack(FRAME_VERSION, kind, flags, 0, length, waiting.request_id)
        meta = waiting.meta
        assert meta is not None, "a request has its meta"
        extra = waiting.extra
        return (
            REQUEST_HEADER.pack(
                FRAME_VERSION,
                kind,
                flags,
                0,
                REQUEST_HEADER.size - LENGTH_END + len(extra) + payload_bytes,
                waiting.request_id,
                meta.revision,
                meta.log_start_revision,
                meta.connection_id,
                meta.lane_epoch,
                age_left_ms(waiting.expires_ms, now_ms),
                meta.api_key,
                meta.api_version,
                meta.correlation_id,
                len(extra),
            )
            + extra
        )

    @staticmethod
    def _encode_texts(meta: RequestMeta) -> bytes:
        """The four texts of a connection are the same in each of its requests; the trace is not."""
        client_id = meta.client_id
        long = client_id is not None and len(client_id) > CLIENT_TEXTS_MAX
        encode = _connection_texts.__wrapped__ if long else _connection_texts
        texts = encode(meta.listener, meta.principal, meta.peer, client_id)
        trace = meta.traceparent
        texts += NULL_TEXT if trace is None else encode_string(trace)
        if len(texts) > TEXTS_BYTES_MAX:
            raise FrameError(f"{len(texts)} bytes of texts do not fit in a frame header")
        return texts


@lru_cache(maxsize=CLIENTS_KNOWN)
def _connection_texts(*texts: str | None) -> bytes:
    return b"".join(map(encode_string, texts))


def age_left_ms(expires_ms: int, now_ms: int) -> int:
    """What is left of the budget when the request leaves; 0 would mean no limit."""
    if not expires_ms:
        return 0
    return min(max(1, expires_ms - now_ms), AGE_BUDGET_MAX_MS)


def cut(body: Sequence[Buffer], size: int) -> Iterator[list[Buffer]]:
    """The body in pieces of exactly `size` bytes, the last one shorter, without copying any."""
    piece: list[Buffer] = []
    room = size
    for buffer in body:
        view = memoryview(buffer)
        while len(view) > room:
            piece.append(view[:room])
            yield piece
            view = view[room:]
            piece = []
            room = size
        piece.append(view)
        room -= len(view)
    yield piece
