"""The new configs of a resource after AlterConfigs or IncrementalAlterConfigs. Pure.

AlterConfigs replaces all configs: a key that it does not name returns to its default. IncrementalAlterConfigs changes
only the named keys (KIP-339). If one key of a change is refused, the whole change is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from kafscale.admin.config_table import ConfigTable
from kafscale.admin.config_values import ConfigType, items_of
from kafscale.admin.plan import Refused
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.incremental_alter_configs import (
    IncrementalAlterConfigsRequestAlterableConfig as NamedOperation,
)

BROKERS_READ_ONLY = Refused(
    ErrorCode.INVALID_CONFIG, "Broker configs are read-only in KafScale; set KAFSCALE_* instead."
)
NAMED_TWICE = Refused(ErrorCode.INVALID_REQUEST, "A config is named more than once.")


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def replaced(table: ConfigTable, configs: Sequence[tuple[str, str | None]]) -> dict[str, str] | Refused:
    chosen = dict(configs)
    if len(chosen) != len(configs):
        return NAMED_TWICE
    return _checked(table, chosen)


def changed(
    table: ConfigTable, configs: Mapping[str, str], operations: Sequence[NamedOperation]
) -> dict[str, str] | Refused:
    names = [operation.name for operation in operations]
    if len(names) != len(set(names)):
        return NAMED_TWICE
    chosen: dict[str, str | None] = dict(configs)
    for operation in operations:
        refused = _apply(table, chosen, operation)
        if refused is not None:
            return refused
    return _checked(table, chosen)


def _checked(table: ConfigTable, configs: Mapping[str, str | None]) -> dict[str, str] | Refused:
    """Checks the configs together too: two valid values may exclude each other."""
    reason = table.invalid(configs)
    return table.kept(configs) if reason is None else Refused(ErrorCode.INVALID_CONFIG, reason)


def _apply(table: ConfigTable, configs: dict[str, str | None], operation: NamedOperation) -> Refused | None:
    """Applies one operation. The caller checks the resulting values."""
    name = operation.name
    if operation.config_operation == Operation.DELETE:
        configs.pop(name, None)  # as in Kafka, deleting an unknown key is not an error
        return None
    value = operation.value
    if operation.config_operation in (Operation.APPEND, Operation.SUBTRACT):
        key = table.keys.get(name)
        if key is None:
            return Refused(ErrorCode.INVALID_CONFIG, f"Unknown {table.kind} config name: {name}")
        if key.type is not ConfigType.LIST:
            return Refused(
                ErrorCode.INVALID_CONFIG,
                f"Config value append and subtract are only allowed for lists, and {name} is not a list.",
            )
        value = _edited(configs.get(name) or key.default, value or "", operation.config_operation)
    elif operation.config_operation != Operation.SET:
        return Refused(
            ErrorCode.INVALID_REQUEST, f"Unknown operation {operation.config_operation} on {name}."
        )
    configs[name] = value
    return None


def _edited(current: str, items: str, operation: int) -> str:
    held, named = items_of(current), items_of(items)
    if operation == Operation.APPEND:
        held += [item for item in named if item not in held]
    else:
        held = [item for item in held if item not in named]
    return ",".join(held)
