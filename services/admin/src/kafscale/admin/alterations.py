"""What AlterConfigs and IncrementalAlterConfigs do to a topic's configs. Pure.

AlterConfigs replaces the whole set, so that a key which is not named goes back to its default;
IncrementalAlterConfigs changes the named keys alone (KIP-339). Both refuse a change as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from kafscale.admin.config_values import ConfigType, items_of
from kafscale.admin.configs import TOPIC_CONFIGS, invalid_configs, invalid_value
from kafscale.admin.plan import Refused, with_configs
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode

BROKERS_READ_ONLY = Refused(
    ErrorCode.INVALID_CONFIG, "Broker configs are read-only in KafScale; set KAFSCALE_* instead."
)
NAMED_TWICE = Refused(ErrorCode.INVALID_REQUEST, "A config is named more than once.")


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class NamedOperation(Protocol):
    """One entry of an IncrementalAlterConfigs resource."""

    name: str
    config_operation: int
    value: str | None


def replaced(topic: Topic, configs: Sequence[tuple[str, str | None]]) -> Topic | Refused:
    chosen = dict(configs)
    if len(chosen) != len(configs):
        return NAMED_TWICE
    reason = invalid_configs(chosen)
    if reason is not None:
        return Refused(ErrorCode.INVALID_CONFIG, reason)
    return with_configs(topic, {name: value for name, value in chosen.items() if value is not None})


def changed(topic: Topic, operations: Sequence[NamedOperation]) -> Topic | Refused:
    names = [operation.name for operation in operations]
    if len(names) != len(set(names)):
        return NAMED_TWICE
    configs: dict[str, str] = dict(topic.configs)
    for operation in operations:
        refused = _apply(configs, operation)
        if refused is not None:
            return refused
    reason = invalid_configs(configs)  # two keys that do not go together
    return with_configs(topic, configs) if reason is None else Refused(ErrorCode.INVALID_CONFIG, reason)


def _apply(configs: dict[str, str], operation: NamedOperation) -> Refused | None:
    name = operation.name
    key = TOPIC_CONFIGS.get(name)
    if key is None:
        return Refused(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    if operation.config_operation == Operation.DELETE:
        configs.pop(name, None)
        return None
    value = operation.value
    if operation.config_operation in (Operation.APPEND, Operation.SUBTRACT):
        if key.type is not ConfigType.LIST:
            return Refused(
                ErrorCode.INVALID_CONFIG,
                f"Config value append and subtract are only for lists, and {name} is none.",
            )
        value = _edited(configs.get(name, key.default), value or "", operation.config_operation)
    elif operation.config_operation != Operation.SET:
        return Refused(
            ErrorCode.INVALID_REQUEST, f"Unknown operation {operation.config_operation} on {name}."
        )
    reason = invalid_value(name, value)
    if reason is not None or value is None:
        return Refused(ErrorCode.INVALID_CONFIG, reason or f"Null value is not allowed for config {name}")
    configs[name] = value
    return None


def _edited(current: str, items: str, operation: int) -> str:
    held, named = items_of(current), items_of(items)
    if operation == Operation.APPEND:
        held += [item for item in named if item not in held]
    else:
        held = [item for item in held if item not in named]
    return ",".join(held)
