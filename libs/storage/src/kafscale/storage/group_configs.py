"""The stored configs of a group (`/gc/{group}`): admins write them, and coordinators apply them.

A record contains only the configs that are set. For the others the coordinator's settings apply, and the values here
are None. As in Kafka, a group may have configs before it has members, and keeps them without members. Admins check
each value before they write it. If a stored number is not a number, the whole record is unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafscale.storage.schema import SCHEMA, CorruptValue, parse_value
from kafscale.store.v1 import store_pb2

SESSION_TIMEOUT_MS = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_MS = "consumer.heartbeat.interval.ms"
_POSITIVE = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigs:
    """`values`: all configs that are set, including those of share groups and streams groups, which have no effect."""

    group: str
    values: Mapping[str, str] = field(default_factory=dict)
    mod_revision: int = 0

    @property
    def session_timeout_ms(self) -> int | None:
        """For members of the consumer protocol (KIP-848). Classic members send their own."""
        return self._whole(SESSION_TIMEOUT_MS)

    @property
    def heartbeat_interval_ms(self) -> int | None:
        """For members of the consumer protocol (KIP-848)."""
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
