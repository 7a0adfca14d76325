"""The methods of the calls: their messages, which roles may call them, and their limits.

With certificates of the processes each method takes the roles of its row and no other: a process that could end
transactions of others would decide in place of their coordinator. Without certificates anybody may call, as with the
request streams.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message
from kafscale.rpc.v1.transactions_pb2 import (
    EndReply,
    EndRequest,
    JoinReply,
    JoinRequest,
    OverReply,
    OverRequest,
    ParticipantSet,
)
from kafscale.storage.keys import TOPIC_ID_BYTES

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

COORDINATOR: Final = "kafscale.rpc.v1.TransactionCoordinator"
PARTICIPANTS: Final = "kafscale.rpc.v1.TransactionParticipants"
TRACEPARENT: Final = "traceparent"
"""The metadata of a call that a traced request makes."""
CALL_BYTES_MAX: Final = 2 << 20
"""Of a request and of an answer. A thousand ends of groups whose ids are as long as possible take 1.1 MB."""


class MalformedMessage(Exception):
    """The bytes are no such message. The text says why."""


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, A]):
    """`at_once_max`: calls that a process serves at the same time. `longest_s`: a call ends after it at the latest."""

    service: str
    name: str
    request: type[Q]
    reply: type[A]
    callers: frozenset[str]
    at_once_max: int
    longest_s: float

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.name}"

    def decode_request(self, data: bytes) -> Q:
        """Raises MalformedMessage."""
        return _decoded(self.request, data)

    def decode_reply(self, data: bytes) -> A:
        """Raises MalformedMessage."""
        return _decoded(self.reply, data)


JOIN: Final = Method(
    COORDINATOR,
    "Join",
    JoinRequest,
    JoinReply,
    callers=frozenset({"produce", "coordinator"}),
    at_once_max=4_096,
    longest_s=5.0,
)
OVER: Final = Method(
    COORDINATOR,
    "Over",
    OverRequest,
    OverReply,
    callers=frozenset({"produce"}),
    at_once_max=64,
    longest_s=10.0,
)
END: Final = Method(
    PARTICIPANTS,
    "End",
    EndRequest,
    EndReply,
    callers=frozenset({"coordinator"}),
    at_once_max=256,
    longest_s=5.0,
)


def _decoded(kind: type[A], data: bytes) -> A:
    try:
        message = kind.FromString(data)
    except DecodeError as error:
        raise MalformedMessage(f"no {kind.DESCRIPTOR.name}: {error}") from error
    for participants in _participants_in(message):
        for topic in participants.partitions:
            if len(topic.topic_id) != TOPIC_ID_BYTES:
                raise MalformedMessage(f"{topic.topic_id!r} is no topic id")
    return message


def _participants_in(message: Message) -> Iterable[ParticipantSet]:
    match message:
        case JoinRequest():
            yield message.participants
        case JoinReply():
            yield message.ended.participants
        case EndRequest():
            yield from (end.participants for end in message.ends)
        case EndReply():
            yield from (done.participants for done in message.done)
        case _:
            pass  # the messages of Over name none
