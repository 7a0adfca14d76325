"""Kafka's error codes as sentences: what happened, to what, and what can be done. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafscale.wire.errors import ErrorCode

_NO_TOPIC: Final = "does not exist; `kafscale topics list` shows what does"
_HAS_MEMBERS: Final = "has members now; stop its consumers first"
_KNOWN: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _NO_TOPIC,
    ErrorCode.UNKNOWN_TOPIC_ID: _NO_TOPIC,
    ErrorCode.TOPIC_ALREADY_EXISTS: "exists already; `kafscale topics alter` gives it more partitions, "
    "`kafscale configs set` other settings",
    ErrorCode.GROUP_ID_NOT_FOUND: "does not exist; `kafscale groups list` shows what does",
    ErrorCode.NON_EMPTY_GROUP: _HAS_MEMBERS,
    ErrorCode.UNKNOWN_MEMBER_ID: _HAS_MEMBERS,
}


class KafkaTrouble(Exception):
    """What was asked was not done; the text is a sentence for the person who asked."""


def refusal(what: str, code: int, message: str | None = None) -> KafkaTrouble:
    """For an error code of an answer. `what` is the subject of the sentence: "topic 'orders'"."""
    try:
        error = ErrorCode(code)
    except ValueError:
        return KafkaTrouble(f"{what}: error {code}, which Kafka does not know")
    known = _KNOWN.get(error)
    if known is not None:
        return KafkaTrouble(f"{what} {known}")
    said = (message or error.message).rstrip(".")
    again = "; try again in a moment" if error.retriable else ""
    return KafkaTrouble(f"{what}: {said} ({error.name}){again}")
