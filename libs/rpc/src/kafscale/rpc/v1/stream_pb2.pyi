from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class FrameKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FRAME_KIND_UNSPECIFIED: _ClassVar[FrameKind]
    REQUEST: _ClassVar[FrameKind]
    CHUNK: _ClassVar[FrameKind]
    REPLY: _ClassVar[FrameKind]
    CANCEL: _ClassVar[FrameKind]

class ReplyStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINAL: _ClassVar[ReplyStatus]
    NOT_OWNER: _ClassVar[ReplyStatus]
    NO_REPLY: _ClassVar[ReplyStatus]
    FAILED: _ClassVar[ReplyStatus]
    EXPIRED: _ClassVar[ReplyStatus]
    REFUSED: _ClassVar[ReplyStatus]
    TOO_LARGE: _ClassVar[ReplyStatus]
FRAME_KIND_UNSPECIFIED: FrameKind
REQUEST: FrameKind
CHUNK: FrameKind
REPLY: FrameKind
CANCEL: FrameKind
FINAL: ReplyStatus
NOT_OWNER: ReplyStatus
NO_REPLY: ReplyStatus
FAILED: ReplyStatus
EXPIRED: ReplyStatus
REFUSED: ReplyStatus
TOO_LARGE: ReplyStatus

class RawFrames(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: bytes
    def __init__(self, frames: _Optional[bytes] = ...) -> None: ...
