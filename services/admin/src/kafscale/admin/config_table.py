"""The configs of one type of resource: a row per key, and its valid values. Pure.

DescribeConfigs, the alter calls, CreateTopics and the docs read such a table. `kept` normalizes a value before it is
stored, so that a record in etcd does not contain the blanks around a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from kafscale.admin.config_values import Check, ConfigSource, ConfigType

VALUE_CHARS_MAX = 4_096
"""Of one value. Every service has all values in memory."""


class Effect(Enum):
    """When a change of a key takes effect."""

    AT_ONCE = "within a second"
    IN_RUNS = "at the next run of retention or compaction"
    WITHOUT_EFFECT = "kept and shown, without effect"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: str
    doc: str
    check: Check
    effect: Effect
    broker_name: str | None = None  # the broker config whose default this one inherits, shown as synonym
    default_source: ConfigSource = ConfigSource.DEFAULT

    def kept(self, value: str) -> str:
        """A valid value as it is stored, normalized as Kafka's ConfigDef reads it."""
        text = value.strip()
        return text.lower() if self.type is ConfigType.BOOLEAN else text


def config_key(
    effect: Effect,
    name: str,
    kind: ConfigType,
    default: object,
    check: Check,
    doc: str,
    broker_name: str | None = None,
) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=kind,
        default=str(default),
        doc=doc,
        broker_name=broker_name,
        check=check,
        effect=effect,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigTable:
    """`kind`: its name in errors. `source`: the config source of a set value. `clash`: why valid values exclude
    each other.
    """

    kind: str
    keys: Mapping[str, ConfigKey]
    source: ConfigSource
    clash: Callable[[Mapping[str, str]], str | None]

    def invalid_value(self, name: str, value: str | None) -> str | None:
        """Why the config `name` cannot be `value`, naming the key; None when it can."""
        key = self.keys.get(name)
        if key is None:
            return f"Unknown {self.kind} config name: {name}"
        if value is None:
            return f"Null value is not allowed for config {name}"
        if len(value) > VALUE_CHARS_MAX:
            return f"The value of config {name} has {len(value)} characters, {VALUE_CHARS_MAX} at most"
        reason = key.check(value)
        return None if reason is None else f"Invalid value for config {name}: {reason}"

    def invalid(self, configs: Mapping[str, str | None]) -> str | None:
        """The first reason why these cannot be all the configs of a resource, or None."""
        chosen: dict[str, str] = {}
        for name, value in configs.items():
            reason = self.invalid_value(name, value)
            if reason is not None:
                return reason
            chosen[name] = value or ""
        return self.clash(chosen)

    def kept(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        """Valid configs as they are stored."""
        return {name: self.keys[name].kept(value) for name, value in configs.items() if value is not None}


def by_name(*keys: ConfigKey) -> Mapping[str, ConfigKey]:
    return {key.name: key for key in sorted(keys, key=lambda key: key.name)}
