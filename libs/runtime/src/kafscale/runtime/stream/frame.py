"""The frames of a stream: their layout and their values. Pure.

The layout is in proto/kafscale/rpc/v1/stream.proto; both ends follow it. A frame that does not follow it exactly, or
that its side of the stream may not receive, is a FrameError, and its stream is closed: bytes after a frame of the wrong
length can only be misread. `outbox.py` writes frames, `inbox.py` reads them.
"""

import enum
import struct
from collections.abc import Sequence
from typing import Final, Self

import msgspec
from kafscale.wire.buffers import Buffer


class RequestMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What accompanies a request from the front door to a service: its ids, its limits and its sender. The body travels
    separately. StreamClient sets request_id."""

    connection_id: int
    api_key: int
    api_version: int
    correlation_id: int = 0
    request_id: int = 0
    lane_epoch: int = 0
    age_budget_ms: int = 0  # 0: no limit
    revision: int = 0
    log_start_revision: int = 0
    listener: str | None = None
    principal: str | None = None
    peer: str | None = None
    client_id: str | None = None
    traceparent: str | None = None


FRAME_VERSION: Final = 3
FLAG_MORE: Final = 1
FLAG_SIZED: Final = 2
PAYLOAD_BYTES_MAX: Final = 1 << 20
MESSAGE_BYTES_MAX: Final = 1 << 20
BODY_BYTES_MAX: Final = 128 << 20
"""Of a request or a reply. A larger one is never sent: it is the failure of its request alone."""
NULL_LENGTH: Final = 0xFFFF
STRINGS: Final = 5
EMPTY_BODY: Final = memoryview(b"")
CLIENTS_KNOWN: Final = 2_048
"""The texts of so many connections are remembered by a process, and not coded anew with each request."""
CLIENT_TEXTS_MAX: Final = 256
"""Longer ones, such as a client id of 32 KiB, are coded each time: memory must not grow with them."""

COMMON: Final = struct.Struct(">BBBBIQ")
REPLY_HEADER: Final = struct.Struct(">BBBBIQQ")
REQUEST_HEADER: Final = struct.Struct(">BBBBIQQQQIIHHiH")
REQUEST_FIELDS: Final = struct.Struct(">QQQIIHHiH")
REVISION: Final = struct.Struct(">Q")
BODY_SIZE: Final = struct.Struct(">Q")
# The length field counts the bytes behind itself: a frame is this much longer than it says.
LENGTH_END: Final = 8


class FrameKind(enum.IntEnum):
    REQUEST = 1
    CHUNK = 2
    REPLY = 3
    CANCEL = 4
    LEAVING = 5


class Outcome(enum.Enum):
    """What the sender of a request knows once its reply is there. Only NOT_EXECUTED proves that nothing was done."""

    ANSWERED = enum.auto()  # the body is the service's answer
    NOT_EXECUTED = enum.auto()  # certainly not executed
    UNKNOWN = enum.auto()  # perhaps executed
    TOO_LARGE = enum.auto()  # the request, or the answer to it, does not fit: the same request fails again


class ReplyStatus(enum.IntEnum):
    """What became of a request, and the outcome that follows from it. Every sender takes the outcome from here."""

    outcome: Outcome

    def __new__(cls, value: int, outcome: Outcome = Outcome.UNKNOWN) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.outcome = outcome
        return member

    FINAL = 0, Outcome.ANSWERED
    NOT_OWNER = 1, Outcome.ANSWERED  # some partition has error 6: not appended, may be sent to its owner
    NO_REPLY = 2, Outcome.UNKNOWN  # acks=0: accepted, and there is no answer
    FAILED = 3, Outcome.UNKNOWN  # the handler raised, or the front door had no memory for the answer; no body
    EXPIRED = 4, Outcome.NOT_EXECUTED  # older than its age budget, so the service dropped it unread
    REFUSED = 5, Outcome.NOT_EXECUTED  # not sent, or the service is leaving: may be sent to another instance
    TOO_LARGE = 6, Outcome.TOO_LARGE
    LOST = 7, Outcome.UNKNOWN  # never on the wire: the stream was lost, or no reply came in time


class FrameError(Exception):
    """The bytes do not follow the layout, or a value does not fit in it. The text says why."""


class Reply(msgspec.Struct, frozen=True):
    """The body is a view of the received message: hold it no longer than needed.

    `reason`: for people, why the stream itself ended the request; empty for what a service answered.
    """

    status: ReplyStatus
    revision: int = 0
    body: memoryview = EMPTY_BODY
    reason: str = ""


class RequestFrame(msgspec.Struct, frozen=True):
    meta: RequestMeta
    body: memoryview


class ReplyFrame(msgspec.Struct, frozen=True):
    request_id: int
    reply: Reply


class ReplyPart(msgspec.Struct, frozen=True):
    """Some of an answer that is passed on while it arrives. `reply.body` is this part of it."""

    request_id: int
    reply: Reply
    size: int  # of the whole body
    left_bytes: int  # of it, behind this part


class CancelFrame(msgspec.Struct, frozen=True):
    request_id: int


class LeavingFrame(msgspec.Struct, frozen=True):
    """The service ends this stream once the front door has closed its side: a request sent after this is wasted."""


class TooLargeFrame(msgspec.Struct, frozen=True):
    """A request whose body passed the bound. Its bytes are dropped, and the sender gets an error."""

    request_id: int


Frame = RequestFrame | ReplyFrame | ReplyPart | CancelFrame | LeavingFrame | TooLargeFrame


def encode_string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    if len(raw) >= NULL_LENGTH:
        raise FrameError(f"a text of {len(raw)} bytes does not fit in a frame header")
    return len(raw).to_bytes(2, "big") + raw


def decode_strings(extra: bytes) -> tuple[str | None, ...]:
    """Exactly five texts, and not a byte more."""
    texts: list[str | None] = []
    position = 0
    for _ in range(STRINGS):
        length = int.from_bytes(extra[position : position + 2], "big")
        position += 2
        if length == NULL_LENGTH:
            texts.append(None)
            continue
        raw = extra[position : position + length]
        position += length
        try:
            texts.append(raw.decode())
        except UnicodeDecodeError as error:
            raise FrameError("a text in the frame header is not UTF-8") from error
    if position != len(extra):
        raise FrameError(f"the texts of the frame header need {position} bytes of {len(extra)}")
    return tuple(texts)


def body_size(body: Sequence[Buffer]) -> int:
    return sum(map(len, body))
