"""What DescribeConfigs says of a topic and of a broker. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from kafscale.admin.config_values import ConfigSource, ConfigType
from kafscale.admin.configs import TOPIC_CONFIGS, ConfigKey
from kafscale.admin.settings import AdminSettings
from kafscale.storage.membership import Instance
from kafscale.storage.topics import Topic
from kafscale.wire.schema.describe_configs import (
    DescribeConfigsResponseResourceResult,
    DescribeConfigsResponseSynonym,
)


def topic_configs(
    topic: Topic, keys: Sequence[str] | None, *, synonyms: bool, docs: bool
) -> list[DescribeConfigsResponseResourceResult]:
    """The asked keys that exist; all of them if none is named. Unknown ones are left out, as Kafka does."""
    chosen, wanted = topic.configs, frozenset(keys or TOPIC_CONFIGS)
    return [
        _chosen(key, chosen[key.name], synonyms=synonyms, docs=docs)
        if key.name in chosen
        else _default(key.name, synonyms, docs)
        for key in TOPIC_CONFIGS.values()
        if key.name in wanted
    ]


def _chosen(
    key: ConfigKey, value: str, *, synonyms: bool, docs: bool
) -> DescribeConfigsResponseResourceResult:
    source = ConfigSource.TOPIC
    own = DescribeConfigsResponseSynonym(name=key.name, value=value, source=source)
    return DescribeConfigsResponseResourceResult(
        name=key.name,
        value=value,
        read_only=key.read_only,
        config_source=source,
        synonyms=[own, *_inherited_by(key)] if synonyms else [],
        config_type=key.type,
        documentation=key.doc if docs else None,
    )


@cache
def _default(name: str, synonyms: bool, docs: bool) -> DescribeConfigsResponseResourceResult:
    """Made once and only read: a tool may ask for all keys of some thousand topics."""
    key = TOPIC_CONFIGS[name]
    return DescribeConfigsResponseResourceResult(
        name=key.name,
        value=key.default,
        read_only=key.read_only,
        is_default=True,
        config_source=ConfigSource.DEFAULT,
        synonyms=_inherited_by(key) if synonyms else [],
        config_type=key.type,
        documentation=key.doc if docs else None,
    )


def _inherited_by(key: ConfigKey) -> list[DescribeConfigsResponseSynonym]:
    if key.broker_name is None:
        return []
    source = ConfigSource.DEFAULT
    return [DescribeConfigsResponseSynonym(name=key.broker_name, value=key.default, source=source)]


class _BrokerRow(NamedTuple):
    name: str
    value: str
    type: ConfigType
    doc: str
    source: ConfigSource


def broker_configs(
    broker: Instance, settings: AdminSettings, keys: Sequence[str] | None, *, synonyms: bool, docs: bool
) -> list[DescribeConfigsResponseResourceResult]:
    """A front door's identity, the settings under `kafscale.*`, and what topics inherit; all of it is read-only."""
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
        for row in (*_identity(broker), *_settings(settings), *_inherited())
        if not keys or row.name in keys
    ]


def _identity(broker: Instance) -> Iterator[_BrokerRow]:
    source = ConfigSource.STATIC_BROKER
    listeners = ",".join(f"{each.name}://{each.host}:{each.port}" for each in broker.listeners)
    yield _BrokerRow(
        "advertised.listeners", listeners, ConfigType.STRING, "Addresses that clients are told.", source
    )
    yield _BrokerRow("broker.id", str(broker.node_id), ConfigType.INT, "Node id of this front door.", source)


def _settings(settings: AdminSettings) -> Iterator[_BrokerRow]:
    """What this service is set to; the documentation is the variable that sets it."""
    text, whole, long, truth = ConfigType.STRING, ConfigType.INT, ConfigType.LONG, ConfigType.BOOLEAN
    for name, field, kind in (
        ("auto.create.topics.enable", "auto_create_topics_enable", truth),
        ("kafscale.cache.bytes", "cache_bytes", long),
        ("kafscale.flush.interval.ms", "flush_interval_ms", long),
        ("kafscale.readahead.segments", "readahead_segments", whole),
        ("kafscale.s3.bucket", "s3_bucket", text),
        ("kafscale.s3.endpoint", "s3_endpoint", text),
        ("kafscale.s3.region", "s3_region", text),
        ("kafscale.segment.bytes", "segment_bytes", long),
        ("num.partitions", "num_partitions", whole),
    ):
        chosen = field in settings.model_fields_set
        source = ConfigSource.STATIC_BROKER if chosen else ConfigSource.DEFAULT
        yield _BrokerRow(
            name, _shown(getattr(settings, field)), kind, f"Set by KAFSCALE_{field.upper()}.", source
        )


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)


def _inherited() -> Iterator[_BrokerRow]:
    """The broker's side of every topic config that is not set, which here is always the default."""
    source = ConfigSource.DEFAULT
    yield _BrokerRow(
        "default.replication.factor", "1", ConfigType.INT, "The object store is the replication.", source
    )
    for key in TOPIC_CONFIGS.values():
        if key.broker_name is not None:
            yield _BrokerRow(key.broker_name, key.default, key.type, f"Default of {key.name}.", source)
