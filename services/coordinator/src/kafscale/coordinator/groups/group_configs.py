"""The rules of each consumer group: the service's settings, overridden by the group's own configs.

A watched view. A config applies from the member's next heartbeat, as in Kafka. If a record cannot be read, its group
has the service's rules and no other group is affected.
"""

from __future__ import annotations

from dataclasses import replace

import structlog
from kafscale.coordinator.consumer.model import Rules
from kafscale.storage.etcd.client import EtcdClient, KeyValue
from kafscale.storage.group_configs import decode_group_configs
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.views import PrefixView

log = structlog.get_logger(__name__)


class GroupConfigView:
    """The caller runs `view`, and waits until it is ready before it serves groups."""

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace, rules: Rules) -> None:
        self._keyspace = keyspace
        self._rules = rules
        self.view: PrefixView[Rules] = PrefixView(etcd, keyspace.group_configs_prefix(), self._decode)

    def of(self, group: str) -> Rules:
        own = self.view.items
        return own.get(self._keyspace.group_config(group), self._rules) if own else self._rules

    def _decode(self, kv: KeyValue) -> Rules | None:
        try:
            configs = decode_group_configs(self._keyspace.parse_group_config(kv.key), kv.value)
        except (UnreadableValue, ValueError) as error:
            log.error("group configs unreadable", key=repr(kv.key), why=str(error))
            return None
        session_ms, heartbeat_ms = configs.session_timeout_ms, configs.heartbeat_interval_ms
        return replace(
            self._rules,
            session_timeout_ms=self._rules.session_timeout_ms if session_ms is None else session_ms,
            heartbeat_interval_ms=self._rules.heartbeat_interval_ms if heartbeat_ms is None else heartbeat_ms,
        )
