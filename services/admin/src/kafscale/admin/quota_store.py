"""Client quotas against etcd: read, changed by compare-and-swap, up to 100 entities in a transaction.

The number of entities has a limit, because every front door keeps all of them in memory. It is checked in the read
before the write, so admins that set quotas at the same time may exceed it slightly. A record that cannot be read is
neither replaced nor deleted. An entity without quotas has no record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog
from kafscale.access.quota import QuotaKey
from kafscale.admin.errors import guarded
from kafscale.admin.plan import Refused
from kafscale.admin.quota_alterations import Alteration, Parts
from kafscale.admin.topics import TOO_FULL
from kafscale.runtime.etcd_space import EtcdSpace, Use
from kafscale.storage.access_keys import CHANGES_MAX, AccessKeys, Change, change_txn, count_read, counted
from kafscale.storage.access_records import decode_quotas, encode_quotas
from kafscale.storage.etcd.client import EtcdClient, KeyValue, Range
from kafscale.storage.etcd.swap import swapped
from kafscale.storage.schema import UnreadableValue
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

Outcomes = dict[Parts, Refused | None]
"""By entity; None: done."""


@dataclass(slots=True)
class _Attempt:
    """What one transaction would do. `free`: the entities that may still be added."""

    free: int
    outcomes: Outcomes = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)


class QuotaStore:
    def __init__(self, etcd: EtcdClient, keys: AccessKeys, quotas_max: int, space: EtcdSpace) -> None:
        self._etcd = etcd
        self._keys = keys
        self._quotas_max = quotas_max
        self._space = space

    async def alter(self, alterations: Sequence[Alteration], *, only_validate: bool) -> Outcomes:
        """Makes the alterations, of which each is of another entity. Those of one transaction are made together."""
        outcomes: Outcomes = {}
        for start in range(0, len(alterations), CHANGES_MAX):
            part = alterations[start : start + CHANGES_MAX]
            made = await guarded(swapped("the quotas of clients", partial(self._try, part, only_validate)))
            outcomes |= made if isinstance(made, dict) else {each.parts: made for each in part}
        return outcomes

    async def _try(self, part: Sequence[Alteration], only_validate: bool) -> Outcomes | None:
        reads = [*(Range(self._keys.quota(each.entity)) for each in part), count_read(self._keys.quotas)]
        *found, family = await self._etcd.ranges(reads)
        attempt = _Attempt(self._quotas_max - counted(self._keys.quotas, family))
        for each, one in zip(part, found, strict=True):
            attempt.outcomes[each.parts] = self._plan(attempt, each, one.kvs[0] if one.kvs else None)
        changes = attempt.changes
        if only_validate or not changes:
            return attempt.outcomes
        if not (await self._etcd.txn(change_txn(self._keys.quotas, changes))).succeeded:
            return None
        log.info("quotas altered", entities=len(changes))
        return attempt.outcomes

    def _plan(self, attempt: _Attempt, wanted: Alteration, stored: KeyValue | None) -> Refused | None:
        before: Mapping[QuotaKey, float] = {}
        if stored is not None:
            try:
                before = decode_quotas(wanted.entity, stored.value)
            except UnreadableValue as damage:
                return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"The stored quotas are damaged: {damage}")
        merged = {**before, **wanted.values}
        after = {key: value for key, value in merged.items() if value is not None}
        if after == before:
            return None
        if after:
            attempt.free -= stored is None
            refused = self._no_room(wanted, after, attempt.free, is_new=stored is None)
            if refused is not None:
                return refused
        value = encode_quotas(after) if after else None
        seen = stored.mod_revision if stored else 0
        attempt.changes.append(Change(self._keys.quota(wanted.entity), seen, value))
        return None

    def _no_room(
        self, wanted: Alteration, after: Mapping[QuotaKey, float], free: int, *, is_new: bool
    ) -> Refused | None:
        if is_new and free < 0:
            return Refused(
                ErrorCode.POLICY_VIOLATION,
                f"The cluster may have {self._quotas_max} entities with quotas (KAFSCALE_QUOTAS_MAX).",
            )
        size = len(encode_quotas(after)) + len(self._keys.quota(wanted.entity))
        if not self._space.admits(Use.NEW if is_new else Use.KNOWN, size):
            return Refused(ErrorCode.POLICY_VIOLATION, TOO_FULL)
        return None
