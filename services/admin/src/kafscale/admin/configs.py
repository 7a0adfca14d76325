"""Topic configs: one row per key. DescribeConfigs, the alter calls, CreateTopics and the docs read this table.

The keys are those of Kafka 4 (https://kafka.apache.org/documentation/#topicconfigs), because Connect,
Streams and the Java tools read them, and one of ours. A key that has no `check` cannot be set: it is shown
with the value that KafScale works by, or with Kafka's where nothing here depends on it, and setting it to
anything else is INVALID_CONFIG. Defaults that the services read stand in `storage.topics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial

from kafscale.admin.config_values import (
    INT32_MAX,
    INT64_MAX,
    Check,
    ConfigType,
    fraction,
    one_of,
    some_of,
    whole_number,
)
from kafscale.storage import topics as kept

LINGER_MS_MAX = 60_000
MESSAGE_BYTES_MAX = 64 << 20
"""What a partition takes at once, unless the produce service is set to less."""
MAX_COMPACTION_LAG = "max.compaction.lag.ms"
MIN_COMPACTION_LAG = "min.compaction.lag.ms"


class Acts(Enum):
    """When a change of a key is felt."""

    AT_ONCE = "within a second"
    IN_RUNS = "at the next run of retention or compaction"
    NEVER = "cannot be set"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    name: str
    type: ConfigType
    default: str
    doc: str
    broker_name: str | None = None  # the broker config whose default this one inherits, shown as synonym
    check: Check | None = None
    acts: Acts = Acts.NEVER

    @property
    def read_only(self) -> bool:
        return self.check is None


def _settable(
    acts: Acts,
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
        acts=acts,
    )


_at_once = partial(_settable, Acts.AT_ONCE)
_in_runs = partial(_settable, Acts.IN_RUNS)


def _fixed(name: str, kind: ConfigType, value: object, doc: str, broker_name: str | None = None) -> ConfigKey:
    return ConfigKey(name=name, type=kind, default=str(value), doc=doc, broker_name=broker_name)


_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST
_NOT_COMPRESSED = "Batches are never compressed here, so that no level is used."
_NOT_TIERED = "There is one tier, the object store: nothing is local and nothing remote."
_NO_REPLICAS = "The object store is the replication: there are no replicas to throttle."

_SETTABLE = (
    _at_once(
        "cleanup.policy",
        _LIST,
        kept.DEFAULT_CLEANUP_POLICY,
        some_of(kept.COMPACT, "delete"),
        "What becomes of old records: delete, compact or both. With compact, records without a key are refused.",
        "log.cleanup.policy",
    ),
    _at_once(
        "compression.type",
        _STRING,
        "producer",
        one_of("producer"),
        "Batches are kept as the producer compressed them; producer is the only value.",
        "compression.type",
    ),
    _in_runs(
        "delete.retention.ms",
        _LONG,
        kept.DEFAULT_DELETE_RETENTION_MS,
        whole_number(0, INT64_MAX),
        "How long compaction keeps a record that deletes its key, in milliseconds.",
        "log.cleaner.delete.retention.ms",
    ),
    _at_once(
        "kafscale.linger.ms",
        _LONG,
        kept.DEFAULT_LINGER_MS,
        whole_number(-1, LINGER_MS_MAX),
        "How long a partition waits for more records before it writes a segment, in milliseconds, and at most "
        "KAFSCALE_FLUSH_INTERVAL_MS; -1 is what the produce service is set to, which ends early once everybody "
        "is back whom the last commit answered.",
    ),
    _in_runs(
        MAX_COMPACTION_LAG,
        _LONG,
        kept.DEFAULT_MAX_COMPACTION_LAG_MS,
        whole_number(1, INT64_MAX),
        "The longest time that a record may wait for compaction, in milliseconds.",
        "log.cleaner.max.compaction.lag.ms",
    ),
    _at_once(
        "max.message.bytes",
        _INT,
        kept.DEFAULT_MAX_MESSAGE_BYTES,
        whole_number(0, MESSAGE_BYTES_MAX),
        "The largest record batch that is accepted, in bytes after compression. At most 64 MiB, and at most "
        "KAFSCALE_PRODUCE_PARTITION_BYTES.",
        "message.max.bytes",
    ),
    _at_once(
        "message.timestamp.type",
        _STRING,
        kept.DEFAULT_TIMESTAMP_TYPE,
        one_of(kept.DEFAULT_TIMESTAMP_TYPE, kept.LOG_APPEND_TIME),
        "CreateTime: records keep the time that the producer gave them. LogAppendTime: the time of their append.",
        "log.message.timestamp.type",
    ),
    _in_runs(
        "min.cleanable.dirty.ratio",
        _DOUBLE,
        kept.DEFAULT_DIRTY_RATIO_MIN,
        fraction,
        "The share of a log that must be uncompacted before it is compacted again.",
        "log.cleaner.min.cleanable.ratio",
    ),
    _in_runs(
        MIN_COMPACTION_LAG,
        _LONG,
        kept.DEFAULT_MIN_COMPACTION_LAG_MS,
        whole_number(0, INT64_MAX),
        "The shortest time that a record stays uncompacted, in milliseconds.",
        "log.cleaner.min.compaction.lag.ms",
    ),
    _in_runs(
        "retention.bytes",
        _LONG,
        kept.DEFAULT_RETENTION_BYTES,
        whole_number(-1, INT64_MAX),
        "Bytes kept per partition before the oldest segments are deleted; -1 is no limit.",
        "log.retention.bytes",
    ),
    _in_runs(
        "retention.ms",
        _LONG,
        kept.DEFAULT_RETENTION_MS,
        whole_number(-1, INT64_MAX),
        "How long records are kept, in milliseconds; -1 is for ever.",
        "log.retention.ms",
    ),
    _at_once(
        "segment.bytes",
        _INT,
        kept.DEFAULT_SEGMENT_BYTES,
        whole_number(1, INT32_MAX),
        "A segment is sealed when it has this size, and at KAFSCALE_SEGMENT_BYTES at the latest.",
        "log.segment.bytes",
    ),
)

_SHOWN = (
    _fixed("compression.gzip.level", _INT, -1, _NOT_COMPRESSED, "compression.gzip.level"),
    _fixed("compression.lz4.level", _INT, 9, _NOT_COMPRESSED, "compression.lz4.level"),
    _fixed("compression.zstd.level", _INT, 3, _NOT_COMPRESSED, "compression.zstd.level"),
    _fixed(
        "file.delete.delay.ms",
        _LONG,
        0,
        "Objects are deleted without delay.",
        "log.segment.delete.delay.ms",
    ),
    _fixed(
        "flush.messages",
        _LONG,
        1,
        "Every record is in the object store before it is acknowledged.",
        "log.flush.interval.messages",
    ),
    _fixed(
        "flush.ms",
        _LONG,
        0,
        "Every record is in the object store before it is acknowledged.",
        "log.flush.interval.ms",
    ),
    _fixed("follower.replication.throttled.replicas", _LIST, "", _NO_REPLICAS),
    _fixed(
        "index.interval.bytes",
        _INT,
        4_096,
        "An index has an entry for the first batch a hundred records after the last one, whatever this says.",
        "log.index.interval.bytes",
    ),
    _fixed("leader.replication.throttled.replicas", _LIST, "", _NO_REPLICAS),
    _fixed("local.retention.bytes", _LONG, -2, _NOT_TIERED, "log.local.retention.bytes"),
    _fixed("local.retention.ms", _LONG, -2, _NOT_TIERED, "log.local.retention.ms"),
    _fixed(
        "message.timestamp.after.max.ms",
        _LONG,
        INT64_MAX,
        "Records may have any time in the future.",
        "log.message.timestamp.after.max.ms",
    ),
    _fixed(
        "message.timestamp.before.max.ms",
        _LONG,
        INT64_MAX,
        "Records may have any time in the past.",
        "log.message.timestamp.before.max.ms",
    ),
    _fixed(
        "min.insync.replicas",
        _INT,
        1,
        "A record is acknowledged when the object store holds it, whatever this says.",
        "min.insync.replicas",
    ),
    _fixed("preallocate", _BOOLEAN, "false", "Objects are written whole.", "log.preallocate"),
    _fixed("remote.log.copy.disable", _BOOLEAN, "false", _NOT_TIERED),
    _fixed("remote.log.delete.on.disable", _BOOLEAN, "false", _NOT_TIERED),
    _fixed("remote.storage.enable", _BOOLEAN, "false", _NOT_TIERED),
    _fixed(
        "segment.index.bytes",
        _INT,
        10_485_760,
        "An index is as large as its segment needs, whatever this says.",
        "log.index.size.max.bytes",
    ),
    _fixed(
        "segment.jitter.ms",
        _LONG,
        0,
        "Segments are sealed when they are due.",
        "log.roll.jitter.ms",
    ),
    _fixed(
        "segment.ms",
        _LONG,
        604_800_000,
        "A segment is sealed within seconds, whatever this says; see KAFSCALE_FLUSH_INTERVAL_MS.",
        "log.roll.ms",
    ),
    _fixed(
        "unclean.leader.election.enable",
        _BOOLEAN,
        "false",
        "Any owner has every record that was acknowledged: no election is unclean.",
        "unclean.leader.election.enable",
    ),
)

TOPIC_CONFIGS: Mapping[str, ConfigKey] = {
    key.name: key for key in sorted(_SETTABLE + _SHOWN, key=lambda key: key.name)
}


def invalid_value(name: str, value: str | None) -> str | None:
    """Why a topic's config `name` cannot be `value`, naming the key; None when it can."""
    key = TOPIC_CONFIGS.get(name)
    if key is None:
        return f"Unknown topic config name: {name}"
    if value is None:
        return f"Null value is not allowed for config {name}"
    if key.check is None:
        if value.strip() == key.default:
            return None
        return f"{name} cannot be set in KafScale, where it is {key.default!r}: {key.doc}"
    reason = key.check(value)
    return None if reason is None else f"Invalid value for config {name}: {reason}"


def invalid_configs(configs: Mapping[str, str | None]) -> str | None:
    """The first reason why these cannot be all the configs of a topic, or None."""
    for name, value in configs.items():
        reason = invalid_value(name, value)
        if reason is not None:
            return reason
    least, most = (
        int(configs.get(name) or TOPIC_CONFIGS[name].default)
        for name in (MIN_COMPACTION_LAG, MAX_COMPACTION_LAG)
    )
    if least > most:
        return f"{MIN_COMPACTION_LAG} ({least}) is greater than {MAX_COMPACTION_LAG} ({most})"
    return None
