"""Errors of a heartbeat that do not depend on the group (Kafka's throwIfConsumerGroupHeartbeatRequestIsInvalid), and
the bounds on a member's fields.
"""

from __future__ import annotations

from typing import NamedTuple

from kafscale.coordinator.consumer import subscriptions
from kafscale.coordinator.consumer.model import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    UNCHANGED,
    Assignor,
    Heartbeat,
    Rules,
)
from kafscale.wire.errors import ErrorCode

CLIENT_ID_VERSION = 1
"""Since this version clients create their member ids (KIP-1082)."""
ASSIGNORS = tuple(assignor.value for assignor in Assignor)


class Refusal(NamedTuple):
    """Why a request is refused. Both fields go to the client."""

    error: ErrorCode
    message: str


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)


def refusal_of(group_id: str, request: Heartbeat, rules: Rules) -> Refusal | None:
    """The first error of the request, if it has one."""
    found = _wrong_text(group_id, request, rules) or _wrong_for_its_epoch(request)
    if found is not None:
        return found
    if request.rebalance_timeout_ms < 1 and request.rebalance_timeout_ms != UNCHANGED:
        return _invalid("RebalanceTimeoutMs must be positive.")
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        return Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(ASSIGNORS)}.",
        )
    return None


def _wrong_text(group_id: str, request: Heartbeat, rules: Rules) -> Refusal | None:
    needs_id = request.version >= CLIENT_ID_VERSION or request.member_epoch > JOIN_EPOCH
    if not request.member_id and (needs_id or request.member_epoch == LEAVE_EPOCH):
        return _invalid("MemberId can't be empty.")
    for name, text in (
        ("GroupId", group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text == "":
            return _invalid(f"{name} can't be empty.")
    for name, text in (
        ("MemberId", request.member_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and _bytes(text) > rules.text_bytes_max:
            return _invalid(f"{name} is longer than {rules.text_bytes_max} bytes.")
    if request.subscribed_names is not None and len(request.subscribed_names) > rules.topic_names_max:
        return _invalid(f"SubscribedTopicNames has more than {rules.topic_names_max} names.")
    if any(_bytes(name) > rules.text_bytes_max for name in request.subscribed_names or ()):
        return _invalid(f"A name in SubscribedTopicNames is longer than {rules.text_bytes_max} bytes.")
    if request.subscribed_regex is not None and _bytes(request.subscribed_regex) > rules.regex_bytes_max:
        return _invalid(f"SubscribedTopicRegex is longer than {rules.regex_bytes_max} bytes.")
    return None


def _wrong_for_its_epoch(request: Heartbeat) -> Refusal | None:
    if request.member_epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == UNCHANGED:
            return _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.owned is None or request.owned:
            return _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_names is None and request.subscribed_regex is None:
            return _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif request.member_epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            return _invalid("InstanceId can't be null.")
    elif request.member_epoch < STATIC_LEAVE_EPOCH:
        return _invalid("MemberEpoch is invalid.")
    return None


def bad_expression(expression: str | None) -> Refusal | None:
    if not expression or subscriptions.is_valid(expression):
        return None
    return Refusal(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{expression}` is not a valid regular expression.",
    )


def cut(text: str, bytes_max: int) -> str:
    """`text`, truncated; for fields that are only displayed."""
    return text.encode(errors="replace")[:bytes_max].decode(errors="ignore")


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))
