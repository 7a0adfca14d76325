"""What DescribeConfigs says of a topic and of a broker. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafscale.admin.configs import TOPIC_CONFIGS, ConfigKey, ConfigSource, ConfigType
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
    """The asked keys that exist, or all of them; unknown ones are left out, as Kafka does."""
    return [
        _topic_config(key, topic.configs, synonyms=synonyms, docs=docs)
        for key in TOPIC_CONFIGS.values()
        if keys is None or key.name in keys
    ]


def _topic_config(
    key: ConfigKey, chosen: Mapping[str, str], *, synonyms: bool, docs: bool
) -> DescribeConfigsResponseResourceResult:
    value = chosen.get(key.name)
    chain = []
    if value is not None:
        chain.append(DescribeConfigsResponseSynonym(name=key.name, value=value, source=ConfigSource.TOPIC))
    if key.broker_name is not None:
        chain.append(
            DescribeConfigsResponseSynonym(
                name=key.broker_name, value=key.default, source=ConfigSource.DEFAULT
            )
        )
    return DescribeConfigsResponseResourceResult(
        name=key.name,
        value=value if value is not None else key.default,
        read_only=key.check is None,
        is_default=value is None,
        config_source=ConfigSource.TOPIC if value is not None else ConfigSource.DEFAULT,
        synonyms=chain if synonyms else [],
        config_type=key.type,
        documentation=key.doc if docs else None,
    )


def broker_configs(
    broker: Instance, settings: AdminSettings, keys: Sequence[str] | None, *, synonyms: bool, docs: bool
) -> list[DescribeConfigsResponseResourceResult]:
    """A front door's identity, and the settings under `kafscale.*`; all of it is read-only."""
    source = ConfigSource.STATIC_BROKER
    return [
        DescribeConfigsResponseResourceResult(
            name=name,
            value=value,
            read_only=True,
            config_source=source,
            synonyms=[DescribeConfigsResponseSynonym(name=name, value=value, source=source)]
            if synonyms
            else [],
            config_type=kind,
            documentation=doc if docs else None,
        )
        for name, value, kind, doc in _broker_rows(broker, settings)
        if keys is None or name in keys
    ]


def _broker_rows(broker: Instance, settings: AdminSettings) -> list[tuple[str, str, ConfigType, str]]:
    """Name, value, type and the environment variable that sets it."""
    listeners = ",".join(f"{each.name}://{each.host}:{each.port}" for each in broker.listeners)
    text, whole, long = ConfigType.STRING, ConfigType.INT, ConfigType.LONG
    return [
        ("broker.id", str(broker.node_id), whole, "Node id of this front door."),
        ("advertised.listeners", listeners, text, "Addresses that clients are told."),
        ("kafscale.s3.bucket", settings.s3_bucket, text, "KAFSCALE_S3_BUCKET"),
        ("kafscale.s3.region", settings.s3_region, text, "KAFSCALE_S3_REGION"),
        ("kafscale.s3.endpoint", settings.s3_endpoint or "", text, "KAFSCALE_S3_ENDPOINT"),
        ("kafscale.cache.bytes", str(settings.cache_bytes), long, "KAFSCALE_CACHE_BYTES"),
        (
            "kafscale.readahead.segments",
            str(settings.readahead_segments),
            whole,
            "KAFSCALE_READAHEAD_SEGMENTS",
        ),
        ("kafscale.segment.bytes", str(settings.segment_bytes), long, "KAFSCALE_SEGMENT_BYTES"),
        ("kafscale.flush.interval.ms", str(settings.flush_interval_ms), long, "KAFSCALE_FLUSH_INTERVAL_MS"),
    ]
