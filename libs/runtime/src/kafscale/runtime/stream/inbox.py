"""Reads the messages that arrive on a stream, and joins bodies that come in chunks. Pure; no clock, no queue.

A body above its bound fails its request, not the stream: the rest of it is dropped, and a frame at its end says so.
`admits` is asked with each part of a large body whether there is memory for it; after a no the rest is dropped without
a further frame. A reply whose first frame says how large its body is can be passed on while it arrives (`streams`). Its
parts then add up to that size, or the stream is closed.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

from kafscale.runtime.stream.frame import (
    BODY_BYTES_MAX,
    BODY_SIZE,
    CLIENT_TEXTS_MAX,
    CLIENTS_KNOWN,
    COMMON,
    FLAG_MORE,
    FLAG_SIZED,
    FRAME_VERSION,
    LENGTH_END,
    NULL_LENGTH,
    PAYLOAD_BYTES_MAX,
    REPLY_HEADER,
    REQUEST_FIELDS,
    REQUEST_HEADER,
    REVISION,
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
    decode_strings,
)

_FLAGS: Final = frozenset({0, FLAG_MORE, FLAG_MORE | FLAG_SIZED, FLAG_SIZED})
OPEN_BODIES_MAX: Final = 16
# A view keeps its whole message alive, so a small body from a large message is copied.
SMALL_BODY_BYTES: Final = 4 << 10
LARGE_MESSAGE_BYTES: Final = 32 << 10
# An answer may wait long for its client. So it keeps no message alive that has more than this many times its bytes.
PINNED_RATIO_MAX: Final = 4
_REQUEST, _CHUNK, _REPLY, _CANCEL, _LEAVING = map(int, FrameKind)
_STATUSES: Final = tuple(status for status in ReplyStatus if status is not ReplyStatus.LOST)

Side = Literal["service", "frontdoor"]


class _OpenBody:
    __slots__ = ("dropped", "head", "parts", "size", "streamed", "total")

    def __init__(
        self, head: "RequestMeta | tuple[int, ReplyStatus, int]", total: int | None, *, streamed: bool
    ) -> None:
        self.head = head
        self.total = total
        self.streamed = streamed
        self.parts: list[memoryview] = []
        self.size = 0
        self.dropped = False

    def drop(self) -> None:
        self.dropped = True
        self.parts.clear()


def always(_request_id: int, _size: int) -> bool:
    return True


class Inbox:
    def __init__(
        self,
        side: Side,
        *,
        body_bytes_max: int = BODY_BYTES_MAX,
        open_bodies_max: int = OPEN_BODIES_MAX,
        admits: Callable[[int, int], bool] = always,
        streams: Callable[[int], bool] = lambda _request_id: False,
    ) -> None:
        """`admits`: whether so many bytes more of a request's large body are kept. `streams`: whether the owner of a
        request takes the parts of its answer as they arrive."""
        self._admits = admits
        self._streams = streams
        self._is_service = side == "service"
        self._body_bytes_max = body_bytes_max
        self._open_bodies_max = open_bodies_max
        self._message_bytes = 0
        self._open: dict[int, _OpenBody] = {}

    def feed(self, message: bytes) -> list[Frame]:
        """The frames completed by this message. After a FrameError the stream is of no more use."""
        frames: list[Frame] = []
        view = memoryview(message)
        end = len(message)
        self._message_bytes = end
        position = 0
        while position < end:
            if end - position < COMMON.size:
                raise FrameError(f"{end - position} bytes are too few for a frame")
            version, kind, flags, status, length, request_id = COMMON.unpack_from(message, position)
            frame_end = position + LENGTH_END + length
            if version != FRAME_VERSION or flags not in _FLAGS or frame_end > end:
                raise FrameError(f"version {version}, flags {flags}, {length} bytes in a message of {end}")
            if (status or flags > FLAG_MORE) and kind != _REPLY:
                raise FrameError(f"status {status}, flags {flags} in a frame of kind {kind}")
            frame = self._frame(message, view[position:frame_end], position, kind, flags, status, request_id)
            if frame is not None:
                frames.append(frame)
            position = frame_end
        return frames

    def _frame(
        self,
        message: bytes,
        view: memoryview,
        position: int,
        kind: int,
        flags: int,
        status: int,
        request_id: int,
    ) -> Frame | None:
        if kind == _REPLY and not self._is_service:
            return self._reply(view, flags, status, request_id)
        if kind == _REQUEST and self._is_service:
            return self._request(message, view, position, flags, request_id)
        if kind == _CHUNK:
            return self._chunk(view, flags, request_id)
        if kind == _CANCEL and self._is_service:
            if flags or len(view) != COMMON.size:
                raise FrameError("a cancel has no payload")
            self._open.pop(request_id, None)
            return CancelFrame(request_id)
        if kind == _LEAVING and not self._is_service:
            if flags or len(view) != COMMON.size:
                raise FrameError("a leaving has no payload")
            return LeavingFrame()
        raise FrameError(f"a frame of kind {kind} has no place in this direction")

    def _reply(self, view: memoryview, flags: int, status: int, request_id: int) -> Frame | None:
        if len(view) < REPLY_HEADER.size:
            raise FrameError("a reply shorter than its header")
        if status >= len(_STATUSES):
            raise FrameError(f"reply status {status} is not known")
        (revision,) = REVISION.unpack_from(view, COMMON.size)
        if flags & FLAG_SIZED:
            return self._sized_reply(view, flags, (request_id, _STATUSES[status], revision))
        payload = view[REPLY_HEADER.size :]
        if flags or len(payload) > PAYLOAD_BYTES_MAX:
            return self._begin(request_id, (request_id, _STATUSES[status], revision), payload)
        return ReplyFrame(request_id, Reply(_STATUSES[status], revision, self._own_answer(payload)))

    def _sized_reply(self, view: memoryview, flags: int, head: tuple[int, ReplyStatus, int]) -> Frame | None:
        if not flags & FLAG_MORE or len(view) < REPLY_HEADER.size + BODY_SIZE.size:
            raise FrameError("only the first frame of a body in chunks says how large the body is")
        (total,) = BODY_SIZE.unpack_from(view, REPLY_HEADER.size)
        return self._begin(head[0], head, view[REPLY_HEADER.size + BODY_SIZE.size :], total)

    def _request(
        self, message: bytes, view: memoryview, position: int, flags: int, request_id: int
    ) -> Frame | None:
        if len(view) < REQUEST_HEADER.size:
            raise FrameError("a request shorter than its header")
        fields = REQUEST_FIELDS.unpack_from(view, COMMON.size)
        revision, log_start_revision, connection_id, lane_epoch, budget_ms = fields[:5]
        api_key, api_version, correlation_id, extra = fields[5:]
        texts_end = REQUEST_HEADER.size + extra
        if texts_end > len(view):
            raise FrameError("the texts of a request pass its end")
        start = position + REQUEST_HEADER.size
        listener, principal, peer, client_id, traceparent = _decode_texts(message[start : start + extra])
        meta = RequestMeta(
            connection_id=connection_id,
            api_key=api_key,
            api_version=api_version,
            correlation_id=correlation_id,
            request_id=request_id,
            lane_epoch=lane_epoch,
            age_budget_ms=budget_ms,
            revision=revision,
            log_start_revision=log_start_revision,
            listener=listener,
            principal=principal,
            peer=peer,
            client_id=client_id,
            traceparent=traceparent,
        )
        payload = view[texts_end:]
        if flags or len(payload) > PAYLOAD_BYTES_MAX:
            return self._begin(request_id, meta, payload)
        return RequestFrame(meta, self._own(payload))

    def _own(self, payload: memoryview) -> memoryview:
        if self._message_bytes > LARGE_MESSAGE_BYTES and len(payload) <= SMALL_BODY_BYTES:
            return memoryview(bytes(payload))
        return payload

    def _own_answer(self, payload: memoryview) -> memoryview:
        if self._message_bytes > max(LARGE_MESSAGE_BYTES, len(payload) * PINNED_RATIO_MAX):
            return memoryview(bytes(payload))
        return payload

    def _begin(
        self,
        request_id: int,
        head: RequestMeta | tuple[int, ReplyStatus, int],
        payload: memoryview,
        total: int | None = None,
    ) -> Frame | None:
        if not 0 < len(payload) <= PAYLOAD_BYTES_MAX:
            raise FrameError(f"{len(payload)} bytes of payload in one frame")
        if request_id in self._open:
            raise FrameError(f"request id {request_id} begins twice")
        if len(self._open) >= self._open_bodies_max:
            raise FrameError(f"more than {self._open_bodies_max} bodies are open")
        fits = total is not None and total <= self._body_bytes_max
        body = _OpenBody(head, total, streamed=fits and self._streams(request_id))
        self._open[request_id] = body
        return self._keep(request_id, body, payload, last=False)

    def _keep(self, request_id: int, body: _OpenBody, payload: memoryview, *, last: bool) -> Frame | None:
        """A part to pass on, if the body's owner takes it so."""
        body.size += len(payload)
        if body.total is not None and (body.size > body.total or last != (body.size == body.total)):
            raise FrameError(f"{body.size} bytes of a body of {body.total}")
        if body.dropped:
            return None
        if body.size > self._body_bytes_max:
            body.parts.clear()
        elif not self._admits(request_id, len(payload)):
            body.drop()
        elif not body.streamed:
            body.parts.append(payload)
        elif body.total is not None and isinstance(body.head, tuple):
            reply = Reply(body.head[1], body.head[2], self._own_answer(payload))
            return ReplyPart(request_id, reply, body.total, body.total - body.size)
        return None

    def _chunk(self, view: memoryview, flags: int, request_id: int) -> Frame | None:
        body = self._open.get(request_id)
        payload = view[COMMON.size :]
        if body is None:
            raise FrameError(f"a chunk of {request_id}, which is not open")
        if not 0 < len(payload) <= PAYLOAD_BYTES_MAX:
            raise FrameError(f"{len(payload)} bytes of payload in one frame")
        part = self._keep(request_id, body, payload, last=not flags)
        if flags:
            return part
        del self._open[request_id]
        if body.dropped or body.streamed:
            return part
        head = body.head
        if body.size > self._body_bytes_max:
            return self._too_large(request_id)
        whole = memoryview(b"".join(body.parts))
        if isinstance(head, RequestMeta):
            return RequestFrame(head, whole)
        return ReplyFrame(head[0], Reply(head[1], head[2], whole))

    def _too_large(self, request_id: int) -> Frame:
        if self._is_service:
            return TooLargeFrame(request_id)
        return ReplyFrame(request_id, Reply(ReplyStatus.TOO_LARGE, 0, memoryview(b"")))


def _decode_texts(extra: bytes) -> tuple[str | None, ...]:
    """Texts without a trace are those of a connection and come again with its next request."""
    if len(extra) > CLIENT_TEXTS_MAX or int.from_bytes(extra[-2:], "big") != NULL_LENGTH:
        return decode_strings(extra)
    return _connection_texts(extra)


_connection_texts = lru_cache(maxsize=CLIENTS_KNOWN)(decode_strings)
