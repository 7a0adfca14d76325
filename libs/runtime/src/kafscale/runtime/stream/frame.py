"""One frame of the stream: values to bytes and back. Pure; knows no stream, no clock, no queue.

The layout stands in proto/kafscale/rpc/v1/stream.proto and is what both ends were built from.
A frame that does not follow it to the letter is a FrameError, and its stream is closed: bytes
after a frame of the wrong length can only be misread.
"""

import enum
import struct
from collections.abc import Sequence
from typing import Final, NewType

import msgspec
from kafscale.runtime.request_meta import RequestMeta as RequestMeta

Buffer = bytes | bytearray | memoryview
RequestId = NewType("RequestId", int)

FRAME_VERSION: Final = 3
FLAG_MORE: Final = 1
PAYLOAD_BYTES_MAX: Final = 1 << 20
MESSAGE_BYTES_MAX: Final = 1 << 20
BODY_BYTES_MAX: Final = 128 << 20
"""Of a request or a reply. A larger one is never sent: it is the failure of its request alone."""
NULL_LENGTH: Final = 0xFFFF
STRINGS: Final = 5
CLIENTS_KNOWN: Final = 2_048
"""The texts of so many connections are remembered by a process, and not coded anew with each request."""
CLIENT_TEXTS_MAX: Final = 256
"""Longer ones, such as a client id of 32 KiB, are coded each time: memory must not grow with them."""

COMMON: Final = struct.Struct(">BBBBIQ")
REPLY_HEADER: Final = struct.Struct(">BBBBIQQ")
REQUEST_HEADER: Final = struct.Struct(">BBBBIQQQQIIHHiH")
REQUEST_FIELDS: Final = struct.Struct(">QQQIIHHiH")
REVISION: Final = struct.Struct(">Q")
# The length field counts the bytes behind itself: a frame is this much longer than it says.
LENGTH_END: Final = 8


class FrameKind(enum.IntEnum):
    REQUEST = 1
    CHUNK = 2
    REPLY = 3
    CANCEL = 4


class ReplyStatus(enum.IntEnum):
    FINAL = 0  # pass it on
    NOT_OWNER = 1  # some partition has error 6, definitely not appended: may be routed again
    NO_REPLY = 2  # acks=0: accepted, nothing goes to the client
    FAILED = 3  # the handler died: the outcome is unknown; empty payload
    EXPIRED = 4  # dropped unread, its age was over the budget: definitely not executed
    REFUSED = 5  # the service is leaving: definitely not executed, may be routed again
    TOO_LARGE = (
        6  # the request, or the answer to it, is larger than a stream carries: the same again fails again
    )


class FrameError(Exception):
    """The bytes do not follow the layout, or a value does not fit in it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Reply(msgspec.Struct, frozen=True):
    """The body is a view of the received message: hold it no longer than needed."""

    status: ReplyStatus
    revision: int
    body: memoryview


class RequestFrame(msgspec.Struct, frozen=True):
    meta: RequestMeta
    body: memoryview


class ReplyFrame(msgspec.Struct, frozen=True):
    request_id: int
    reply: Reply


class CancelFrame(msgspec.Struct, frozen=True):
    request_id: int


class TooLargeFrame(msgspec.Struct, frozen=True):
    """A request whose body passed the bound. What came of it is thrown away; its sender must hear."""

    request_id: int


Frame = RequestFrame | ReplyFrame | CancelFrame | TooLargeFrame


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
