"""Config resources: which kinds there are, and how a change of one is carried out or only validated."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from kafscale.admin.alterations import BROKERS_READ_ONLY
from kafscale.admin.context import AdminContext
from kafscale.admin.errors import guarded
from kafscale.admin.plan import Refused
from kafscale.admin.topics import Change
from kafscale.storage.topics import TopicState
from kafscale.wire.errors import ErrorCode


class ResourceType(IntEnum):
    """Of ConfigResource; the kinds that have configs here."""

    TOPIC = 2
    BROKER = 4


class Resource(Protocol):
    """A resource as both alter calls name it."""

    resource_type: int
    resource_name: str


def unknown_topic(name: str) -> Refused:
    return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")


async def alter_resource(
    context: AdminContext, resource: Resource, change: Change, *, validate_only: bool
) -> Refused | None:
    """Why the change of this resource's configs was refused, or None when it was made."""
    if resource.resource_type == ResourceType.BROKER:
        return BROKERS_READ_ONLY
    if resource.resource_type != ResourceType.TOPIC:
        return Refused(
            ErrorCode.INVALID_REQUEST, f"Resources of type {resource.resource_type} have no configs here."
        )
    if not validate_only:
        outcome = await guarded(context.store.change(resource.resource_name, change))
        return outcome if isinstance(outcome, Refused) else None
    topic = context.topics.by_name(resource.resource_name)
    if topic is None or topic.state is not TopicState.ACTIVE:
        return unknown_topic(resource.resource_name)
    checked = change(topic)
    return checked if isinstance(checked, Refused) else None
