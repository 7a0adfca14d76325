"""What AlterConfigs and IncrementalAlterConfigs do to a topic's configs. Pure.

AlterConfigs replaces the whole set, so that a key which is not named goes back to its default;
IncrementalAlterConfigs changes the named keys alone (KIP-339). Both refuse a change as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Protocol

from kafscale.admin.configs import TOPIC_CONFIGS, ConfigType, invalid_configs
from kafscale.admin.plan import Refused, with_configs
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode

BROKERS_READ_ONLY = Refused(
    ErrorCode.INVALID_CONFIG, "Broker configs are read-only in KafScale; set KAFSCALE_* instead."
)


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


def replaced(topic: Topic, configs: Mapping[str, str | None]) -> Topic | Refused:
    reason = invalid_configs(configs)
    if reason is not None:
        return Refused(ErrorCode.INVALID_CONFIG, reason)
    return with_configs(topic, {name: value for name, value in configs.items() if value is not None})


def changed(topic: Topic, operations: Sequence[NamedOperation]) -> Topic | Refused:
    names = [operation.name for operation in operations]
    if len(names) != len(set(names)):
        return Refused(ErrorCode.INVALID_REQUEST, "A config is named more than once.")
    configs: dict[str, str] = dict(topic.configs)
    for operation in operations:
        refused = _apply(configs, operation)
        if refused is not None:
            return refused
    return with_configs(topic, configs)


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
    reason = invalid_configs({name: value})
    if reason is not None or value is None:
        return Refused(ErrorCode.INVALID_CONFIG, reason or f"Null value is not allowed for config {name}")
    configs[name] = value
    return None


def _edited(current: str, items: str, operation: int) -> str:
    held = [item for item in current.split(",") if item]
    named = [item for item in items.split(",") if item]
    if operation == Operation.APPEND:
        held += [item for item in named if item not in held]
    else:
        held = [item for item in held if item not in named]
    return ",".join(held)
