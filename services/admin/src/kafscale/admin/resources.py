"""Config resources: which types there are, what a client needs for each, and how a change of one is made or only
validated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Protocol, TypeVar

from kafscale.access.rules import Need, When
from kafscale.admin.alterations import BROKER_CONFIGS, of_broker
from kafscale.admin.config_table import ConfigTable
from kafscale.admin.configs import TOPIC_CONFIGS
from kafscale.admin.context import AdminContext
from kafscale.admin.errors import guarded, unauthorized
from kafscale.admin.group_config_store import ChangeValues, invalid_name
from kafscale.admin.plan import Refused, invalid_topic_name, with_configs
from kafscale.runtime.authorization import Asker
from kafscale.storage.topics import Topic, TopicState
from kafscale.wire.errors import ErrorCode


class ResourceType(IntEnum):
    """Kafka's ConfigResource types that have configs here."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


NODE_ID_DIGITS_MAX = 10
DEFAULT_TOPIC = Refused(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
BROKER_LOGGER, CLIENT_METRICS = 8, 16
"""Types of Kafka that have no configs here. A client needs the same rights for them as in Kafka."""


class Resource(Protocol):
    """A resource as both alter calls name it."""

    resource_type: int
    resource_name: str


def unknown_topic(name: str) -> Refused:
    return Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist.")


def illegal_topic(name: str) -> Refused | None:
    """The refusal of a name that no topic can have."""
    reason = invalid_topic_name(name)
    return (
        None
        if reason is None
        else Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}.")
    )


def unknown_broker(context: AdminContext, name: str) -> Refused | None:
    """The refusal of a resource that names no front door. "" names all of them."""
    if not name:
        return None
    known = name.isascii() and name.isdecimal() and len(name) <= NODE_ID_DIGITS_MAX
    if known and context.front_doors.by_node(int(name)) is not None:
        return None
    return Refused(ErrorCode.INVALID_REQUEST, f"There is no broker '{name}'.")


def damaged_topic(name: str) -> Refused:
    return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"The record of topic '{name}' cannot be read.")


def unknown_type(resource_type: int) -> Refused:
    return Refused(
        ErrorCode.INVALID_REQUEST, f"Resources of type {resource_type} have no configs in KafScale."
    )


CASES: Mapping[int, When] = {
    ResourceType.TOPIC: When.TOPIC_CONFIGS,
    ResourceType.GROUP: When.GROUP_CONFIGS,
    ResourceType.BROKER: When.CLUSTER_CONFIGS,
    BROKER_LOGGER: When.CLUSTER_CONFIGS,
    CLIENT_METRICS: When.CLUSTER_CONFIGS,
}
"""By type of resource."""


def denial(
    asker: Asker, needs: Sequence[Need], resource: Resource, cases: Mapping[int, When] = CASES
) -> Refused | None:
    """The refusal of a resource whose configs the client may not use. `needs`: of the API. `cases`: of its types."""
    case = cases.get(resource.resource_type)
    for need in needs:
        if need.when is case and not asker.allows(need, resource.resource_name):
            return unauthorized(need)
    return None


REPEATED = Refused(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")

R = TypeVar("R", bound=Resource)
A = TypeVar("A")
ChangeOf = Callable[[R, ConfigTable, Mapping[str, str]], dict[str, str] | Refused]
"""From a resource of the request, the config table of its type and its present configs: its new configs."""


async def alter_each(
    context: AdminContext,
    resources: Sequence[R],
    change: ChangeOf[R],
    answer: Callable[..., A],
    asker: Asker,
    needs: Sequence[Need],
    *,
    validate_only: bool,
    cases: Mapping[int, When] = CASES,
) -> list[A]:
    """Makes or validates the change of each resource. `needs`: what is asked before, for the types in `cases`.

    `answer` is the response's struct of one resource. AlterConfigs and IncrementalAlterConfigs name its fields alike.
    """
    times = Counter((each.resource_type, each.resource_name) for each in resources)
    answers = []
    for resource in resources:
        name, kind = resource.resource_name, resource.resource_type
        refused: Refused | None = REPEATED
        if times[kind, name] == 1:
            refused = denial(asker, needs, resource, cases) or await _alter(
                context, resource, change, validate_only=validate_only
            )
        answers.append(
            answer(
                error_code=refused.error if refused else 0,
                error_message=refused.message if refused else None,
                resource_type=kind,
                resource_name=name,
            )
        )
    return answers


async def _alter(
    context: AdminContext, resource: R, change: ChangeOf[R], *, validate_only: bool
) -> Refused | None:
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            apply = partial(change, resource, TOPIC_CONFIGS)
            return await _alter_topic(context, name, apply, validate_only=validate_only)
        case ResourceType.GROUP:
            apply = partial(change, resource, context.group_config_table)
            return await _alter_group(context, name, apply, validate_only=validate_only)
        case ResourceType.BROKER:
            return unknown_broker(context, name) or of_broker(change(resource, BROKER_CONFIGS, {}))
        case resource_type:
            return unknown_type(resource_type)


async def _alter_topic(
    context: AdminContext, name: str, apply: ChangeValues, *, validate_only: bool
) -> Refused | None:
    refused = await _alter_known(context, name, apply, validate_only=validate_only)
    if refused is None or refused.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return refused
    # Kafka looks at the name and at the change first.
    mistaken = DEFAULT_TOPIC if not name else illegal_topic(name) or apply({})
    return mistaken if isinstance(mistaken, Refused) else refused


async def _alter_known(
    context: AdminContext, name: str, apply: ChangeValues, *, validate_only: bool
) -> Refused | None:
    def change(topic: Topic) -> Topic | Refused:
        configs = apply(topic.configs)
        return configs if isinstance(configs, Refused) else with_configs(topic, configs)

    if not validate_only:
        outcome = await guarded(context.store.change(name, change))
        return outcome if isinstance(outcome, Refused) else None
    topic = context.topics.by_name(name)
    if topic is None or topic.state is not TopicState.ACTIVE:
        return unknown_topic(name)
    checked = change(topic)
    return checked if isinstance(checked, Refused) else None


async def _alter_group(
    context: AdminContext, name: str, apply: ChangeValues, *, validate_only: bool
) -> Refused | None:
    refused = invalid_name(name)
    if refused is not None:
        return refused
    if not validate_only:
        outcome = await guarded(context.group_config_store.change(name, apply))
        return outcome if isinstance(outcome, Refused) else None
    held = await guarded(context.group_config_store.read(name))
    checked = held if isinstance(held, Refused) else apply(held.values)
    return checked if isinstance(checked, Refused) else None
