"""The rows of DescribeConfigs for a topic, a group and a broker. Pure.

A broker is a front door. Tools read its configs before they decide, and show them. So each has Kafka's name and type,
and a value that is true here. A config of Kafka without a meaning here is left out. All are read-only: they are
settings of the services, and only those that admins have too are shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from kafscale.admin.config_table import ConfigKey, ConfigTable
from kafscale.admin.config_values import ConfigSource, ConfigType
from kafscale.admin.configs import TOPIC_CONFIGS
from kafscale.admin.settings import AdminSettings
from kafscale.storage.membership.members import Instance
from kafscale.storage.slots import SLOTS
from kafscale.wire.schema.describe_configs import DescribeConfigsResponseResourceResult as Row
from kafscale.wire.schema.describe_configs import DescribeConfigsResponseSynonym as Synonym

ROW_BYTES, SYNONYM_BYTES = 24, 8
"""Of one row on the wire, at most, without its texts."""
LOG_DIRECTORY: Final = "objects"
"""Of every broker, also in DescribeLogDirs. It does not name the store: every client that can connect may ask."""

_TRUTH, _SHORT, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.SHORT, ConfigType.INT, ConfigType.LONG
_STRING, _LIST = ConfigType.STRING, ConfigType.LIST

_OF_SETTINGS: Final = (
    ("auto.create.topics.enable", "auto_create_topics_enable", _TRUTH),
    ("connections.max.reauth.ms", "connections_max_reauth_ms", _LONG),
    ("group.consumer.max.heartbeat.interval.ms", "group_consumer_max_heartbeat_interval_ms", _INT),
    ("group.consumer.max.session.timeout.ms", "group_consumer_max_session_timeout_ms", _INT),
    ("group.consumer.max.size", "group_max_size", _INT),
    ("group.consumer.min.heartbeat.interval.ms", "group_consumer_min_heartbeat_interval_ms", _INT),
    ("group.consumer.min.session.timeout.ms", "group_consumer_min_session_timeout_ms", _INT),
    ("group.initial.rebalance.delay.ms", "group_initial_rebalance_delay_ms", _INT),
    ("group.max.session.timeout.ms", "group_max_session_timeout_ms", _INT),
    ("group.max.size", "group_max_size", _INT),
    ("group.min.session.timeout.ms", "group_min_session_timeout_ms", _INT),
    ("kafscale.cache.bytes", "cache_bytes", _LONG),
    ("kafscale.flush.interval.ms", "flush_interval_ms", _LONG),
    ("kafscale.readahead.segments", "readahead_segments", _INT),
    ("kafscale.segment.bytes", "segment_bytes", _LONG),
    ("log.cleaner.backoff.ms", "compaction_every_ms", _LONG),
    ("log.retention.check.interval.ms", "retention_every_ms", _LONG),
    ("num.partitions", "num_partitions", _INT),
    ("offset.metadata.max.bytes", "offset_metadata_max_bytes", _INT),
    ("offsets.retention.minutes", "offsets_retention_minutes", _INT),
)
_REPLICATED: Final = "The object store replicates the records."
_DEFAULT_OF: Final = "Not set: the hours apply."
_ALWAYS: Final = (
    ("default.replication.factor", "1", _INT, _REPLICATED),
    ("delete.topic.enable", "true", _TRUTH, "Topics can always be deleted."),
    ("log.cleaner.enable", "true", _TRUTH, "Upkeep compacts topics whose cleanup.policy contains compact."),
    ("log.dirs", LOG_DIRECTORY, _LIST, "The object store."),
    ("log.flush.interval.ms", None, _LONG, "Every record is in the object store before it is acknowledged."),
    ("log.retention.hours", "168", _INT, "Default of retention.ms."),
    ("log.retention.minutes", None, _INT, _DEFAULT_OF),
    ("log.retention.ms", None, _LONG, _DEFAULT_OF),
    ("log.roll.hours", "168", _INT, "Default of segment.ms."),
    ("log.roll.jitter.hours", "0", _INT, "Default of segment.jitter.ms."),
    ("log.roll.jitter.ms", None, _LONG, _DEFAULT_OF),
    ("log.roll.ms", None, _LONG, _DEFAULT_OF),
    (
        "offsets.topic.num.partitions",
        str(SLOTS),
        _INT,
        "Slots of groups. Offsets are in etcd, not in a topic.",
    ),
    ("offsets.topic.replication.factor", "1", _SHORT, "Offsets are in etcd, which replicates them."),
    ("remote.log.storage.system.enable", "false", _TRUTH, "There is one tier, the object store."),
)


def configs_of(
    table: ConfigTable, chosen: Mapping[str, str], keys: Sequence[str] | None, *, synonyms: bool, docs: bool
) -> list[Row]:
    """The requested keys, or all keys if none is requested. Unknown keys are left out, as in Kafka."""
    wanted = frozenset(keys or table.keys)
    return [
        _row(key, Synonym(name=key.name, value=chosen[key.name], source=table.source), synonyms, docs)
        if key.name in chosen
        else _default(key, synonyms, docs)
        for key in table.shown(chosen)
        if key.name in wanted
    ]


@cache
def _default(key: ConfigKey, synonyms: bool, docs: bool) -> Row:
    """Cached and read-only: a tool may request all keys of thousands of topics."""
    return _row(key, None, synonyms, docs)


def _row(key: ConfigKey, own: Synonym | None, synonyms: bool, docs: bool) -> Row:
    """`own`: the value that the resource has set, if any."""
    known = [] if own is None else [own]
    if key.broker_name is not None:
        known.append(Synonym(name=key.broker_name, value=key.default, source=key.default_source))
    return Row(
        name=key.name,
        value=key.default if own is None else own.value,
        read_only=False,
        is_default=own is None,
        config_source=key.default_source if own is None else own.source,
        synonyms=known if synonyms else [],
        config_type=key.type,
        documentation=key.doc if docs else None,
    )


def size_of(row: Row) -> int:
    """Bytes in an answer, rounded up; names and values are ASCII."""
    synonyms = sum(SYNONYM_BYTES + len(each.name) + len(each.value or "") for each in row.synonyms)
    return ROW_BYTES + len(row.name) + len(row.value or "") + len(row.documentation or "") + synonyms


# -- brokers -------------------------------------------------------------------------------------


class _Config(NamedTuple):
    name: str
    value: str | None
    type: ConfigType
    doc: str
    source: ConfigSource = ConfigSource.DEFAULT


def broker_configs(
    broker: Instance,
    settings: AdminSettings,
    groups: ConfigTable,
    keys: Sequence[str] | None,
    *,
    synonyms: bool,
    docs: bool,
) -> list[Row]:
    """A front door's identity, settings, what holds for every cluster, and the defaults of topics and groups.

    The address of the object store is not included, because every client that can connect may send this request.
    """
    rows = (
        *_identity(broker),
        *_settings(settings),
        *(_Config(*each) for each in _ALWAYS),
        *_inherited(TOPIC_CONFIGS),
        *_inherited(groups),
    )
    return [
        Row(
            name=row.name,
            value=row.value,
            read_only=True,
            is_default=row.source is ConfigSource.DEFAULT,
            config_source=row.source,
            synonyms=[Synonym(name=row.name, value=row.value, source=row.source)]
            if synonyms and row.value is not None
            else [],
            config_type=row.type,
            documentation=row.doc if docs else None,
        )
        for row in rows
        if not keys or row.name in keys
    ]


def _identity(broker: Instance) -> Iterator[_Config]:
    source, node_id = ConfigSource.STATIC_BROKER, str(broker.node_id)
    listeners = ",".join(f"{each.name}://{each.host}:{each.port}" for each in broker.listeners)
    yield _Config("advertised.listeners", listeners, _LIST, "Addresses that clients get in Metadata.", source)
    yield _Config("broker.id", node_id, _INT, "Node id of this front door.", source)
    yield _Config("broker.rack", broker.rack or None, _STRING, "Set by KAFSCALE_RACK.", source)
    yield _Config("node.id", node_id, _INT, "Node id of this front door.", source)


def _settings(settings: AdminSettings) -> Iterator[_Config]:
    """The settings of this service. The documentation of each names its variable."""
    for name, field, kind in _OF_SETTINGS:
        chosen = field in settings.model_fields_set
        source = ConfigSource.STATIC_BROKER if chosen else ConfigSource.DEFAULT
        value, doc = json.dumps(getattr(settings, field)), f"Set by KAFSCALE_{field.upper()}."
        yield _Config(name, value, kind, doc, source)


def _inherited(table: ConfigTable) -> Iterator[_Config]:
    """The broker configs from which topics and groups inherit their defaults."""
    for key in table.keys.values():
        if key.broker_name is not None and (table is TOPIC_CONFIGS or key.broker_name != key.name):
            doc = f"Default of {key.name}."
            yield _Config(key.broker_name, key.default, key.type, doc, key.default_source)
