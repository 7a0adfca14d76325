"""The new configs of a resource after AlterConfigs or IncrementalAlterConfigs. Pure.

AlterConfigs replaces all configs: a key that it does not name returns to its default. IncrementalAlterConfigs changes
only the named keys (KIP-339). If one key of a change is refused, the whole change is refused. A null value and a key
that is named twice are INVALID_REQUEST, and every other mistake is INVALID_CONFIG, as in ConfigurationControlManager.

Brokers have no dynamic configs here (`of_broker`). What changes nothing is accepted: no keys, or keys that are reset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

from kafscale.admin.config_table import ConfigTable
from kafscale.admin.config_values import ConfigSource, ConfigType, items_of
from kafscale.admin.plan import Refused
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.incremental_alter_configs import (
    IncrementalAlterConfigsRequestAlterableConfig as NamedOperation,
)

BROKER_CONFIGS = ConfigTable(kind="broker", keys={}, source=ConfigSource.DYNAMIC_BROKER, clash=lambda _: None)
"""Of the dynamic configs of brokers, of which there are none."""
BROKERS_READ_ONLY = Refused(
    ErrorCode.INVALID_CONFIG, "Broker configs are read-only in KafScale; set KAFSCALE_* instead."
)
NAMED_TWICE = Refused(ErrorCode.INVALID_REQUEST, "A config is named more than once.")


class Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS = frozenset(map(int, Operation))


def replaced(
    table: ConfigTable, held: Mapping[str, str], configs: Sequence[tuple[str, str | None]]
) -> dict[str, str] | Refused:
    chosen = dict(configs)
    if len(chosen) != len(configs):
        return NAMED_TWICE
    for name, value in configs:
        if value is None:
            return _null(name)
    return _checked(table, chosen, held)


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
    return _checked(table, chosen, configs)


def of_broker(changed: dict[str, str] | Refused) -> Refused | None:
    """The refusal of a change of a broker, from what `BROKER_CONFIGS` makes of it."""
    if isinstance(changed, Refused) and changed.error is ErrorCode.INVALID_CONFIG:
        return BROKERS_READ_ONLY
    return changed if isinstance(changed, Refused) else None


def _null(name: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")


def _checked(
    table: ConfigTable, configs: Mapping[str, str | None], held: Mapping[str, str]
) -> dict[str, str] | Refused:
    """Checks the configs together too: two valid values may exclude each other."""
    reason = table.invalid(configs, held)
    return table.kept(configs) if reason is None else Refused(ErrorCode.INVALID_CONFIG, reason)


def _apply(table: ConfigTable, configs: dict[str, str | None], operation: NamedOperation) -> Refused | None:
    """Applies one operation. The caller checks the resulting values."""
    name = operation.name
    if operation.config_operation == Operation.DELETE:
        configs.pop(name, None)  # as in Kafka, deleting an unknown key is not an error
        return None
    if operation.config_operation not in _OPERATIONS:
        return Refused(
            ErrorCode.INVALID_REQUEST, f"Unknown operation {operation.config_operation} on {name}."
        )
    value = operation.value
    if value is None:
        return _null(name)
    if operation.config_operation in (Operation.APPEND, Operation.SUBTRACT):
        key = table.keys.get(name)
        if key is None:
            return Refused(ErrorCode.INVALID_CONFIG, f"Unknown {table.kind} config name: {name}")
        if key.type is not ConfigType.LIST:
            return Refused(
                ErrorCode.INVALID_CONFIG,
                f"Config value append and subtract are only allowed for lists, and {name} is not a list.",
            )
        held = configs.get(name)
        value = _edited(key.default if held is None else held, value, operation.config_operation)
    configs[name] = value
    return None


def _edited(current: str, items: str, operation: int) -> str:
    """As Kafka does it: blanks around a named item are part of it, and commas at the end are ignored."""
    held = items_of(current)
    for item in [] if items and not items.strip(",") else items.rstrip(",").split(","):
        if operation == Operation.APPEND and item not in held:
            held.append(item)
        elif operation == Operation.SUBTRACT and item in held:
            held.remove(item)
    return ",".join(held)
