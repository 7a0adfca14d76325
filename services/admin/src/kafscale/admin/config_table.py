"""The configs of one type of resource: a row per key, and its valid values. Pure.

DescribeConfigs, the alter calls, CreateTopics and the docs read such a table. A value is stored as Kafka shows it: a
number without blanks and signs that say nothing, a list without blanks (`config_values.parsed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

from kafscale.admin.config_values import BLANKS, Check, ConfigSource, ConfigType, items_of, parsed

VALUE_CHARS_MAX = 4_096
"""Of one value. Every service has all values in memory."""
NOTHING: Mapping[str, str] = MappingProxyType({})


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
    distinct: bool = False  # a list in which an item that is repeated counts once
    internal: bool = False  # for tests: shown only where it is set, and not documented

    def kept(self, value: str) -> str:
        """A valid value as it is stored and shown."""
        text = parsed(self.type, value)
        return ",".join(dict.fromkeys(items_of(text))) if self.distinct else text


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
        if value is None:
            return f"Null value not supported for {self.kind} configs: {name}"
        if key is None:
            return f"Unknown {self.kind} config name: {name}"
        if len(value) > VALUE_CHARS_MAX:
            return f"The value of config {name} has {len(value)} characters, {VALUE_CHARS_MAX} at most"
        reason = key.check(value.strip(BLANKS))
        return None if reason is None else f"Invalid value for config {name}: {reason}"

    def invalid(self, configs: Mapping[str, str | None], held: Mapping[str, str] = NOTHING) -> str | None:
        """The first reason why these cannot be all the configs of a resource, or None.

        A value that the resource holds already (`held`) was valid when it was set. It is not checked again, so that a
        bound that is narrower now does not stop changes of other keys.
        """
        chosen: dict[str, str] = {}
        for name, value in configs.items():
            reason = None if name in held and held[name] == value else self.invalid_value(name, value)
            if reason is not None:
                return reason
            chosen[name] = value or ""
        return self.clash(chosen)

    def shown(self, chosen: Mapping[str, str]) -> Iterator[ConfigKey]:
        """The keys of a resource with these configs."""
        return (key for key in self.keys.values() if not key.internal or key.name in chosen)

    def kept(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        """Valid configs as they are stored. What is stored of a key that another version knew is left out."""
        return {
            name: self.keys[name].kept(value)
            for name, value in configs.items()
            if value is not None and name in self.keys
        }


def by_name(*keys: ConfigKey) -> Mapping[str, ConfigKey]:
    return {key.name: key for key in sorted(keys, key=lambda key: key.name)}
