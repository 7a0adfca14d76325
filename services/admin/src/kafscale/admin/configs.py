"""Topic configs: one row per key. DescribeConfigs, the alter calls, CreateTopics and the docs read this table.

The keys are those of Kafka 4 (https://kafka.apache.org/documentation/#topicconfigs), because Connect, Streams,
MirrorMaker and the Java tools read and set them, and two keys of KafScale. A config without effect here is checked as
in Kafka, stored and shown: if it were refused, a program would lose all other configs of its topic too. Defaults that
the services read are in `storage.topics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from kafscale.admin.config_table import ConfigTable, Effect, by_name, config_key
from kafscale.admin.config_values import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    ConfigSource,
    ConfigType,
    boolean,
    fraction,
    gzip_level,
    one_of,
    only_false,
    replicas,
    some_of,
    whole_number,
)
from kafscale.storage import topics as kept

LINGER_MS_MAX = 60_000
MESSAGE_BYTES_MAX = 64 << 20
"""The largest batch that a partition accepts, unless the settings of the produce service allow less."""
SEGMENT_BYTES_MIN = 1 << 20
MAX_COMPACTION_LAG = "max.compaction.lag.ms"
MIN_COMPACTION_LAG = "min.compaction.lag.ms"


_at_once = partial(config_key, Effect.AT_ONCE)
_in_runs = partial(config_key, Effect.IN_RUNS)
_kept = partial(config_key, Effect.WITHOUT_EFFECT)


_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST
_NOT_TIERED = "There is one tier, the object store, and no local or remote tier."
_FLUSHED = "Every record is in the object store before it is acknowledged."
_NO_REPLICAS = "The object store replicates the records, so there are no replicas to throttle."

_SETTABLE = (
    replace(
        _at_once(
            "cleanup.policy",
            _LIST,
            kept.DEFAULT_CLEANUP_POLICY,
            some_of(kept.COMPACT, kept.DELETE),
            "The cleanup of old records: delete, compact, both, or nothing (an empty list). With compact, records "
            "without a key are refused. With nothing, only DeleteRecords removes records.",
            "log.cleanup.policy",
        ),
        distinct=True,
    ),
    _at_once(
        "compression.gzip.level",
        _INT,
        kept.DEFAULT_COMPRESSION_LEVELS["gzip"],
        gzip_level,
        "The compression level if compression.type is gzip: 1 to 9, or -1 for the codec's default.",
        "compression.gzip.level",
    ),
    _at_once(
        "compression.lz4.level",
        _INT,
        kept.DEFAULT_COMPRESSION_LEVELS["lz4"],
        whole_number(1, 17),
        "The compression level if compression.type is lz4; 9 is the fast compressor, as in Kafka.",
        "compression.lz4.level",
    ),
    _at_once(
        "compression.type",
        _STRING,
        kept.DEFAULT_COMPRESSION_TYPE,
        one_of(*kept.COMPRESSION_TYPES),
        "The codec of stored batches. producer keeps the producer's codec. With another value, a batch of a different "
        "codec is compressed again before the append, and max.message.bytes applies before and after.",
        "compression.type",
    ),
    _at_once(
        "compression.zstd.level",
        _INT,
        kept.DEFAULT_COMPRESSION_LEVELS["zstd"],
        whole_number(-131_072, 22),
        "The compression level if compression.type is zstd. At most 19 is used, at most 12 for records of "
        "more than 1 MiB before compression, and at most 3 for more than 8 MiB.",
        "compression.zstd.level",
    ),
    _in_runs(
        "delete.retention.ms",
        _LONG,
        kept.DEFAULT_DELETE_RETENTION_MS,
        whole_number(0, INT64_MAX),
        "How long compaction keeps a tombstone (a record that deletes its key), in milliseconds.",
        "log.cleaner.delete.retention.ms",
    ),
    _at_once(
        "kafscale.linger.ms",
        _LONG,
        kept.DEFAULT_LINGER_MS,
        whole_number(-1, LINGER_MS_MAX),
        "How long a partition waits for more records before they go into a bundle, in milliseconds, and at most "
        "KAFSCALE_FLUSH_INTERVAL_MS. With -1 or 0 they wait no longer than those of other topics, and a bundle is "
        "sealed early once every producer that the last one answered has sent again.",
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
        "message.timestamp.after.max.ms",
        _LONG,
        kept.DEFAULT_TIMESTAMP_AFTER_MAX_MS,
        whole_number(0, INT64_MAX),
        "How far in the future a record's time may be with CreateTime, in milliseconds. A batch with a later record is "
        "refused with INVALID_TIMESTAMP.",
        "log.message.timestamp.after.max.ms",
    ),
    _at_once(
        "message.timestamp.before.max.ms",
        _LONG,
        kept.DEFAULT_TIMESTAMP_BEFORE_MAX_MS,
        whole_number(0, INT64_MAX),
        "How far in the past a record's time may be with CreateTime, in milliseconds. A batch with an older record is "
        "refused with INVALID_TIMESTAMP.",
        "log.message.timestamp.before.max.ms",
    ),
    _at_once(
        "message.timestamp.type",
        _STRING,
        kept.DEFAULT_TIMESTAMP_TYPE,
        one_of(kept.DEFAULT_TIMESTAMP_TYPE, kept.LOG_APPEND_TIME),
        "CreateTime: records keep the producer's timestamp. LogAppendTime: records get the time of the append.",
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
        whole_number(INT64_MIN, INT64_MAX),
        "Bytes kept per partition before the oldest segments are deleted; -1, or any number below 0, is no limit.",
        "log.retention.bytes",
    ),
    _in_runs(
        "retention.ms",
        _LONG,
        kept.DEFAULT_RETENTION_MS,
        whole_number(-1, INT64_MAX),
        "How long records are kept, in milliseconds; -1 is no limit.",
    ),
    _at_once(
        "segment.bytes",
        _INT,
        kept.DEFAULT_SEGMENT_BYTES,
        whole_number(SEGMENT_BYTES_MIN, INT32_MAX),
        "A segment is sealed at this size, or at KAFSCALE_SEGMENT_BYTES if that is smaller. At least 1 MiB, as in "
        "Kafka.",
        "log.segment.bytes",
    ),
)

_KEPT = (
    _kept(
        "file.delete.delay.ms",
        _LONG,
        60_000,
        whole_number(0, INT64_MAX),
        "Objects are deleted without delay.",
        "log.segment.delete.delay.ms",
    ),
    _kept(
        "flush.messages",
        _LONG,
        INT64_MAX,
        whole_number(1, INT64_MAX),
        _FLUSHED,
        "log.flush.interval.messages",
    ),
    _kept("flush.ms", _LONG, INT64_MAX, whole_number(0, INT64_MAX), _FLUSHED),
    _kept("follower.replication.throttled.replicas", _LIST, "", replicas, _NO_REPLICAS),
    _kept(
        "index.interval.bytes",
        _INT,
        4_096,
        whole_number(0, INT32_MAX),
        "An index has an entry for the first batch that starts 100 or more records after the last entry.",
        "log.index.interval.bytes",
    ),
    _kept("leader.replication.throttled.replicas", _LIST, "", replicas, _NO_REPLICAS),
    _kept(
        "local.retention.bytes",
        _LONG,
        -2,
        whole_number(-2, INT64_MAX),
        _NOT_TIERED,
        "log.local.retention.bytes",
    ),
    _kept(
        "local.retention.ms", _LONG, -2, whole_number(-2, INT64_MAX), _NOT_TIERED, "log.local.retention.ms"
    ),
    _kept(
        "min.insync.replicas",
        _INT,
        1,
        whole_number(1, INT32_MAX),
        "A record is acknowledged when the object store holds it. Partitions show at least as many replicas, up to 3.",
        "min.insync.replicas",
    ),
    _kept("preallocate", _BOOLEAN, "false", boolean, "Objects are written whole.", "log.preallocate"),
    _kept("remote.log.copy.disable", _BOOLEAN, "false", boolean, _NOT_TIERED),
    _kept("remote.log.delete.on.disable", _BOOLEAN, "false", boolean, _NOT_TIERED),
    _kept(
        "remote.storage.enable",
        _BOOLEAN,
        "false",
        only_false("tiered storage is disabled, as on a Kafka broker without it"),
        f"{_NOT_TIERED} Only false can be set.",
    ),
    _kept(
        "segment.index.bytes",
        _INT,
        10_485_760,
        whole_number(4, INT32_MAX),
        "An index is as large as its segment needs.",
        "log.index.size.max.bytes",
    ),
    _kept(
        "segment.jitter.ms", _LONG, 0, whole_number(0, INT64_MAX), "Segments are sealed when they are due."
    ),
    _kept(
        "segment.ms",
        _LONG,
        604_800_000,
        whole_number(1, INT64_MAX),
        "A segment is sealed within seconds; see KAFSCALE_FLUSH_INTERVAL_MS.",
    ),
    _kept(
        "unclean.leader.election.enable",
        _BOOLEAN,
        "false",
        boolean,
        "Every owner has every acknowledged record, so no election is unclean.",
        "unclean.leader.election.enable",
    ),
)


_FOR_TESTS = (
    replace(
        _at_once(
            kept.INTERNAL_SEGMENT_BYTES,
            _INT,
            kept.DEFAULT_SEGMENT_BYTES,
            whole_number(1, INT32_MAX),
            "Replaces segment.bytes, and may be smaller.",
        ),
        internal=True,
    ),
)
"""Kafka has it for its tests too, since it raised the minimum of segment.bytes."""

_KEYS = by_name(*_SETTABLE, *_KEPT, *_FOR_TESTS)


def _clash(configs: Mapping[str, str]) -> str | None:
    least, most = (
        int(configs.get(name, _KEYS[name].default)) for name in (MIN_COMPACTION_LAG, MAX_COMPACTION_LAG)
    )
    if least > most:
        return f"{MIN_COMPACTION_LAG} ({least}) is greater than {MAX_COMPACTION_LAG} ({most})"
    return None


TOPIC_CONFIGS = ConfigTable(kind="topic", keys=_KEYS, source=ConfigSource.TOPIC, clash=_clash)
