"""Configs of a group as etcd keeps them (`/gc/{group}`): written by admins, obeyed by coordinators.

A record says only what was set; what was not set is the coordinator's setting, so it is None here. A group may have
configs before it has members, and keeps them when it has none any more, as in Kafka. Admins have checked each value
before it was written (Kafka's bounds); a stored number that is none makes the whole record unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafscale.storage.heads import CorruptValue, parse_value
from kafscale.storage.schema import SCHEMA
from kafscale.store.v1 import store_pb2

SESSION_TIMEOUT_MS = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_MS = "consumer.heartbeat.interval.ms"
_POSITIVE = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigs:
    """`values` has all that was set, also what only share groups and streams groups would read."""

    group: str
    values: Mapping[str, str] = field(default_factory=dict)
    mod_revision: int = 0

    @property
    def session_timeout_ms(self) -> int | None:
        """Of members of the consumer protocol (KIP-848); classic members bring their own."""
        return self._whole(SESSION_TIMEOUT_MS)

    @property
    def heartbeat_interval_ms(self) -> int | None:
        """Of members of the consumer protocol (KIP-848)."""
        return self._whole(HEARTBEAT_INTERVAL_MS)

    def _whole(self, name: str) -> int | None:
        value = self.values.get(name)
        return None if value is None else int(value)


def encode_group_configs(configs: GroupConfigs) -> bytes:
    record = store_pb2.GroupConfig(schema=SCHEMA, configs=dict(configs.values))
    return record.SerializeToString(deterministic=True)


def decode_group_configs(group: str, data: bytes, mod_revision: int = 0) -> GroupConfigs:
    """Raises CorruptValue or UnknownSchema."""
    record = store_pb2.GroupConfig()
    parse_value(record, data, f"config record of group {group!r}")
    values = dict(record.configs)
    for name in (SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS):
        if not _POSITIVE.fullmatch(values.get(name, "1")):
            raise CorruptValue(f"config record of group {group!r}", f"{name} is {values[name]!r}")
    return GroupConfigs(group=group, values=values, mod_revision=mod_revision)
