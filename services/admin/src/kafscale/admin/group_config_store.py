"""Configs of groups in etcd: read, changed by compare-and-swap, and listed. Coordinators watch them.

As in Kafka, a group needs no members to have configs, so a client can create any number of records. Their number has
a limit, which is checked before a new record is created. Admins that create records at the same time may exceed it
slightly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kafscale.admin.plan import Refused
from kafscale.storage.etcd.client import Compare, Delete, EtcdClient, KeyValue, Put, Range, Txn
from kafscale.storage.etcd.swap import swapped
from kafscale.storage.group_configs import GroupConfigs, decode_group_configs, encode_group_configs
from kafscale.storage.keys import Keyspace, prefix_end
from kafscale.storage.schema import UnreadableValue
from kafscale.wire.errors import ErrorCode

GROUP_ID_BYTES_MAX = 1_024
"""A longer id is none of a group: coordinators refuse it."""
LIST_KEYS_MAX = 20_000
"""Groups in one list. There are more only if the limit was raised."""

Values = Mapping[str, str]
ChangeValues = Callable[[Values], dict[str, str] | Refused]


def invalid_name(group: str) -> Refused | None:
    if not group:
        return Refused(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    if (size := len(group.encode())) > GROUP_ID_BYTES_MAX:
        return Refused(
            ErrorCode.INVALID_REQUEST,
            f"The group id has {size} bytes; at most {GROUP_ID_BYTES_MAX} are allowed.",
        )
    return None


def _decoded(group: str, record: KeyValue) -> GroupConfigs | UnreadableValue:
    try:
        return decode_group_configs(group, record.value, record.mod_revision)
    except UnreadableValue as reason:
        return reason


class GroupConfigStore:
    """Every method raises EtcdError; `read` and `change` CorruptValue or UnknownSchema for an unreadable record."""

    def __init__(self, etcd: EtcdClient, keys: Keyspace, groups_max: int) -> None:
        self._etcd = etcd
        self._keys = keys
        self._groups_max = groups_max

    async def read(self, group: str) -> GroupConfigs:
        """The configs that are set; empty for a group without a record."""
        found = await self._etcd.get(self._keys.group_config(group))
        if found is None:
            return GroupConfigs(group=group)
        return decode_group_configs(group, found.value, found.mod_revision)

    async def read_each(self, groups: Sequence[str]) -> dict[str, GroupConfigs | UnreadableValue]:
        """The configs of at most 128 groups, in one read. An unreadable record does not affect the others."""
        if not groups:
            return {}
        found = await self._etcd.ranges([Range(self._keys.group_config(group)) for group in groups])
        return {
            group: _decoded(group, each.kvs[0]) if each.kvs else GroupConfigs(group=group)
            for group, each in zip(groups, found, strict=True)
        }

    async def names(self) -> list[str]:
        """The groups that have configs."""
        prefix = self._keys.group_configs_prefix()
        found = await self._etcd.range(
            prefix, range_end=prefix_end(prefix), limit=LIST_KEYS_MAX, keys_only=True
        )
        return [self._keys.parse_group_config(kv.key) for kv in found.kvs]

    async def change(self, group: str, change: ChangeValues) -> GroupConfigs | Refused:
        """Applies `change` to the configs that are set now. A group without configs has no record.

        Raises TooContended.
        """
        return await swapped(
            f"the config record of group '{group}'", partial(self._try_change, group, change)
        )

    async def _try_change(self, group: str, change: ChangeValues) -> GroupConfigs | Refused | None:
        old = await self.read(group)
        values = change(old.values)
        if isinstance(values, Refused):
            return values
        if values == old.values:
            return old
        if not old.mod_revision and (full := await self._is_full()):
            return full
        key = self._keys.group_config(group)
        new = GroupConfigs(group=group, values=values)
        result = await self._etcd.txn(
            Txn(
                compare=(Compare(key, "mod", "=", old.mod_revision),),
                success=(Put(key, encode_group_configs(new)) if values else Delete(key),),
            )
        )
        return new if result.succeeded else None

    async def _is_full(self) -> Refused | None:
        prefix = self._keys.group_configs_prefix()
        found = await self._etcd.range(prefix, range_end=prefix_end(prefix), limit=1, keys_only=True)
        if found.count < self._groups_max:
            return None
        return Refused(
            ErrorCode.POLICY_VIOLATION,
            f"{self._groups_max} groups have configs, which is the limit (KAFSCALE_GROUP_CONFIGS_MAX).",
        )
