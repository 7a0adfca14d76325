"""Group configs (KIP-848, resource type 32): one row per key, with Kafka 4's names, defaults and bounds. Pure.

Coordinators use the first two. The other configs belong to share groups and streams groups, which do not exist here,
or to the interval between two assignments, which are never delayed here. They are checked as in Kafka, stored and
shown, so that a tool can set them, but they have no effect. The bounds of the first two are settings, as in Kafka.
The others have the default bounds of Kafka's brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from kafscale.admin.config_table import ConfigKey, ConfigTable, Effect, by_name, config_key
from kafscale.admin.config_values import (
    INT32_MAX,
    ConfigSource,
    ConfigType,
    boolean,
    one_of,
    reset_strategy,
    whole_number,
)
from kafscale.admin.settings import AdminSettings
from kafscale.storage.group_configs import HEARTBEAT_INTERVAL_MS, SESSION_TIMEOUT_MS

KINDS = ("consumer", "share", "streams")
_NO_SHARE = "There are no share groups."
_NO_STREAMS = "There are no streams groups."
_NOT_SERVED = {"share": _NO_SHARE, "streams": _NO_STREAMS}


def group_table(settings: AdminSettings) -> ConfigTable:
    rows = by_name(*_obeyed(settings), *_without_effect())
    return ConfigTable(kind="group", keys=rows, source=ConfigSource.GROUP, clash=partial(_clash, rows))


def _clash(rows: Mapping[str, ConfigKey], configs: Mapping[str, str]) -> str | None:
    """Only set values can exclude each other: the defaults are settings of the coordinator."""
    for kind in KINDS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if session not in configs and heartbeat not in configs:
            continue
        timeout, interval = (int(configs.get(name, rows[name].default)) for name in (session, heartbeat))
        if timeout <= interval:
            return f"{session} ({timeout}) must be greater than {heartbeat} ({interval})"
    return None


def _obeyed(settings: AdminSettings) -> Iterator[ConfigKey]:
    chosen = settings.model_fields_set
    for name, field, low, high, doc in (
        (
            SESSION_TIMEOUT_MS,
            "group_consumer_session_timeout_ms",
            settings.group_consumer_min_session_timeout_ms,
            settings.group_consumer_max_session_timeout_ms,
            "A member of the consumer protocol without a heartbeat for this time is removed from its group.",
        ),
        (
            HEARTBEAT_INTERVAL_MS,
            "group_consumer_heartbeat_interval_ms",
            settings.group_consumer_min_heartbeat_interval_ms,
            settings.group_consumer_max_heartbeat_interval_ms,
            "The interval between the heartbeats of a member of the consumer protocol.",
        ),
    ):
        yield ConfigKey(
            name=name,
            type=ConfigType.INT,
            default=str(getattr(settings, field)),
            default_source=ConfigSource.STATIC_BROKER if field in chosen else ConfigSource.DEFAULT,
            doc=doc,
            broker_name=f"group.{name}",
            check=whole_number(low, high),
            effect=Effect.AT_ONCE,
        )


def _without_effect() -> Iterator[ConfigKey]:
    for kind in KINDS:
        doc = _NOT_SERVED.get(kind, "A new assignment is computed with the next heartbeat, without a delay.")
        yield _number(f"{kind}.assignment.interval.ms", 1_000, 0, 15_000, doc)
    for kind, doc in _NOT_SERVED.items():
        yield _number(f"{kind}.session.timeout.ms", 45_000, 45_000, 60_000, doc)
        yield _number(f"{kind}.heartbeat.interval.ms", 5_000, 5_000, 15_000, doc)
    yield _number("share.delivery.count.limit", 5, 2, 10, _NO_SHARE)
    yield _number("share.partition.max.record.locks", 2_000, 100, 4_000, _NO_SHARE)
    yield _number("share.record.lock.duration.ms", 30_000, 15_000, 60_000, _NO_SHARE)
    levels = one_of("read_committed", "read_uncommitted")
    for name, type_, default, check in (
        ("share.auto.offset.reset", ConfigType.STRING, "latest", reset_strategy),
        ("share.isolation.level", ConfigType.STRING, "read_uncommitted", levels),
        ("share.renew.acknowledge.enable", ConfigType.BOOLEAN, "true", boolean),
    ):
        yield config_key(Effect.WITHOUT_EFFECT, name, type_, default, check, _NO_SHARE, name)
    yield _number("streams.initial.rebalance.delay.ms", 3_000, 0, INT32_MAX, _NO_STREAMS)
    yield _number("streams.num.standby.replicas", 0, 0, 2, _NO_STREAMS)


def _number(name: str, default: int, low: int, high: int, doc: str) -> ConfigKey:
    check = whole_number(low, high)
    return config_key(Effect.WITHOUT_EFFECT, name, ConfigType.INT, default, check, doc, f"group.{name}")
