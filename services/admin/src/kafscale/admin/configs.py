"""Topic configs: one row per key. DescribeConfigs, the alter calls and CreateTopics read this table.

A key that is not `alterable` is shown with the value that KafScale works by, because Connect,
Streams and the Java tools read it; setting it to anything else is INVALID_CONFIG.
Defaults are Kafka's (https://kafka.apache.org/documentation/#topicconfigs).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class ConfigType(IntEnum):
    """The `config_type` of DescribeConfigs v3+ (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The `config_source` of DescribeConfigs v1+."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: str
    doc: str
    broker_name: str | None = None  # the broker config whose default this one inherits, shown as synonym
    check: Callable[[str], str | None] | None = None  # why a value is refused; None: the key cannot be set


def _whole_number(low: int, high: int) -> Callable[[str], str | None]:
    def check(value: str) -> str | None:
        try:
            number = int(value)
        except ValueError:
            return f"{value!r} is not a whole number"
        return None if low <= number <= high else f"{number} is not between {low} and {high}"

    return check


TOPIC_CONFIGS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            name="cleanup.policy",
            type=ConfigType.LIST,
            default="delete",
            doc="Old records are deleted by time and size.",
            broker_name="log.cleanup.policy",
        ),
        ConfigKey(
            name="compression.type",
            type=ConfigType.STRING,
            default="producer",
            doc="Batches are kept as the producer compressed them.",
            broker_name="compression.type",
        ),
        ConfigKey(
            name="max.message.bytes",
            type=ConfigType.INT,
            default="1048588",
            doc="The largest record batch that is accepted, after compression.",
            broker_name="message.max.bytes",
        ),
        ConfigKey(
            name="message.timestamp.type",
            type=ConfigType.STRING,
            default="CreateTime",
            doc="Records keep the time that the producer gave them.",
            broker_name="log.message.timestamp.type",
        ),
        ConfigKey(
            name="min.insync.replicas",
            type=ConfigType.INT,
            default="1",
            doc="A record is acknowledged when the object store holds it, whatever this says.",
            broker_name="min.insync.replicas",
        ),
        ConfigKey(
            name="retention.bytes",
            type=ConfigType.LONG,
            default="-1",
            doc="Bytes kept per partition before the oldest segments are deleted; -1 is no limit.",
            broker_name="log.retention.bytes",
            check=_whole_number(-1, INT64_MAX),
        ),
        ConfigKey(
            name="retention.ms",
            type=ConfigType.LONG,
            default="604800000",
            doc="How long records are kept, in milliseconds; -1 is for ever.",
            broker_name="log.retention.ms",
            check=_whole_number(-1, INT64_MAX),
        ),
        ConfigKey(
            name="segment.bytes",
            type=ConfigType.INT,
            default="1073741824",
            doc="Upper bound of a segment's size; segments are sealed at 4 MiB or before.",
            broker_name="log.segment.bytes",
            check=_whole_number(1, INT32_MAX),
        ),
    )
}


def invalid_value(name: str, value: str | None) -> str | None:
    """Why a topic's config `name` cannot be `value`, naming the key; None when it can."""
    key = TOPIC_CONFIGS.get(name)
    if key is None:
        return f"Unknown topic config name: {name}"
    if value is None:
        return f"Null value is not allowed for config {name}"
    if key.check is None:
        return (
            None
            if value == key.default
            else f"{name} is {key.default} in KafScale and cannot be set to {value}"
        )
    reason = key.check(value)
    return None if reason is None else f"Invalid value for config {name}: {reason}"


def invalid_configs(configs: Mapping[str, str | None]) -> str | None:
    """The first reason why these configs cannot be set on a topic, or None."""
    return next((reason for name, value in configs.items() if (reason := invalid_value(name, value))), None)
