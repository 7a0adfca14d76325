"""Config resources: which kinds there are, and how a change of one is carried out or only validated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from typing import Protocol, TypeVar

from kafscale.admin.alterations import BROKERS_READ_ONLY
from kafscale.admin.context import AdminContext
from kafscale.admin.errors import guarded
from kafscale.admin.plan import Refused
from kafscale.admin.topics import Change
from kafscale.storage.topics import Topic, TopicState
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


REPEATED = Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")

R = TypeVar("R", bound=Resource)


async def alter_each(
    context: AdminContext,
    resources: Sequence[R],
    change: Callable[[R, Topic], Topic | Refused],
    *,
    validate_only: bool,
) -> list[tuple[R, Refused | None]]:
    """Each resource, with why its change was refused; None when it was made."""
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    outcomes: list[tuple[R, Refused | None]] = []
    for resource in resources:
        if times[resource.resource_type, resource.resource_name] > 1:
            outcomes.append((resource, REPEATED))
            continue
        refused = await _alter(context, resource, partial(change, resource), validate_only=validate_only)
        outcomes.append((resource, refused))
    return outcomes


async def _alter(
    context: AdminContext, resource: Resource, change: Change, *, validate_only: bool
) -> Refused | None:
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
