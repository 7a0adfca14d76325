"""The rows of DescribeConfigs for a topic, a group and a broker. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from kafscale.admin.config_table import ConfigKey, ConfigTable
from kafscale.admin.config_values import ConfigSource, ConfigType
from kafscale.admin.configs import TOPIC_CONFIGS
from kafscale.admin.settings import AdminSettings
from kafscale.storage.membership.members import Instance
from kafscale.wire.schema.describe_configs import (
    DescribeConfigsResponseResourceResult,
    DescribeConfigsResponseSynonym,
)

ROW_BYTES, SYNONYM_BYTES = 24, 8
"""Of one row on the wire, at most, without its texts."""


def configs_of(
    table: ConfigTable,
    chosen: Mapping[str, str],
    keys: Sequence[str] | None,
    *,
    synonyms: bool,
    docs: bool,
) -> list[DescribeConfigsResponseResourceResult]:
    """The requested keys, or all keys if none is requested. Unknown keys are left out, as in Kafka."""
    wanted = frozenset(keys or table.keys)
    return [
        _chosen(key, table.source, chosen[key.name], synonyms=synonyms, docs=docs)
        if key.name in chosen
        else _default(key, synonyms, docs)
        for key in table.shown(chosen)
        if key.name in wanted
    ]


def size_of(row: DescribeConfigsResponseResourceResult) -> int:
    """Bytes in an answer, rounded up; names and values are ASCII."""
    synonyms = sum(SYNONYM_BYTES + len(each.name) + len(each.value or "") for each in row.synonyms)
    return ROW_BYTES + len(row.name) + len(row.value or "") + len(row.documentation or "") + synonyms


def _chosen(
    key: ConfigKey, source: ConfigSource, value: str, *, synonyms: bool, docs: bool
) -> DescribeConfigsResponseResourceResult:
    own = DescribeConfigsResponseSynonym(name=key.name, value=value, source=source)
    return DescribeConfigsResponseResourceResult(
        name=key.name,
        value=value,
        read_only=False,
        config_source=source,
        synonyms=[own, *_inherited_by(key)] if synonyms else [],
        config_type=key.type,
        documentation=key.doc if docs else None,
    )


@cache
def _default(key: ConfigKey, synonyms: bool, docs: bool) -> DescribeConfigsResponseResourceResult:
    """Cached and read-only: a tool may request all keys of thousands of topics."""
    return DescribeConfigsResponseResourceResult(
        name=key.name,
        value=key.default,
        read_only=False,
        is_default=True,
        config_source=key.default_source,
        synonyms=_inherited_by(key) if synonyms else [],
        config_type=key.type,
        documentation=key.doc if docs else None,
    )


def _inherited_by(key: ConfigKey) -> list[DescribeConfigsResponseSynonym]:
    if key.broker_name is None:
        return []
    return [
        DescribeConfigsResponseSynonym(name=key.broker_name, value=key.default, source=key.default_source)
    ]


class _BrokerRow(NamedTuple):
    name: str
    value: str
    type: ConfigType
    doc: str
    source: ConfigSource


def broker_configs(
    broker: Instance,
    settings: AdminSettings,
    groups: ConfigTable,
    keys: Sequence[str] | None,
    *,
    synonyms: bool,
    docs: bool,
) -> list[DescribeConfigsResponseResourceResult]:
    """A front door's identity, the settings under `kafscale.*`, and the defaults of topics and groups; all read-only.

    The address of the object store is not included, because every client that can connect may send this request.
    """
    rows = (*_identity(broker), *_settings(settings), *_inherited(TOPIC_CONFIGS), *_inherited(groups))
    return [
        DescribeConfigsResponseResourceResult(
            name=row.name,
            value=row.value,
            read_only=True,
            is_default=row.source is ConfigSource.DEFAULT,
            config_source=row.source,
            synonyms=[DescribeConfigsResponseSynonym(name=row.name, value=row.value, source=row.source)]
            if synonyms
            else [],
            config_type=row.type,
            documentation=row.doc if docs else None,
        )
        for row in rows
        if not keys or row.name in keys
    ]


def _identity(broker: Instance) -> Iterator[_BrokerRow]:
    source = ConfigSource.STATIC_BROKER
    listeners = ",".join(f"{each.name}://{each.host}:{each.port}" for each in broker.listeners)
    yield _BrokerRow(
        "advertised.listeners",
        listeners,
        ConfigType.STRING,
        "Addresses that clients get in Metadata.",
        source,
    )
    yield _BrokerRow("broker.id", str(broker.node_id), ConfigType.INT, "Node id of this front door.", source)


def _settings(settings: AdminSettings) -> Iterator[_BrokerRow]:
    """The settings of this service. The documentation of each names its variable."""
    whole, long, truth = ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN
    for name, field, kind in (
        ("auto.create.topics.enable", "auto_create_topics_enable", truth),
        ("kafscale.cache.bytes", "cache_bytes", long),
        ("kafscale.flush.interval.ms", "flush_interval_ms", long),
        ("kafscale.readahead.segments", "readahead_segments", whole),
        ("kafscale.segment.bytes", "segment_bytes", long),
        ("num.partitions", "num_partitions", whole),
    ):
        chosen = field in settings.model_fields_set
        source = ConfigSource.STATIC_BROKER if chosen else ConfigSource.DEFAULT
        yield _BrokerRow(
            name, json.dumps(getattr(settings, field)), kind, f"Set by KAFSCALE_{field.upper()}.", source
        )
    yield _BrokerRow(
        "default.replication.factor",
        "1",
        whole,
        "The object store replicates the records.",
        ConfigSource.DEFAULT,
    )


def _inherited(table: ConfigTable) -> Iterator[_BrokerRow]:
    """The broker configs from which topics and groups inherit their defaults."""
    for key in table.keys.values():
        if key.broker_name is not None and (table is TOPIC_CONFIGS or key.broker_name != key.name):
            doc = f"Default of {key.name}."
            yield _BrokerRow(key.broker_name, key.default, key.type, doc, key.default_source)
