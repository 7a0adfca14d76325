"""SCRAM credentials against etcd: read, changed by compare-and-swap, up to 100 in a transaction.

Their number has a limit, because the front doors keep all of them in memory. It is checked in the read before the
write, so admins that create users at the same time may exceed it slightly. A credential that cannot be read is neither
replaced nor deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import structlog
from kafscale.admin.errors import guarded
from kafscale.admin.plan import Refused
from kafscale.admin.topics import TOO_FULL
from kafscale.admin.user_alterations import MISSING, Alteration
from kafscale.runtime.etcd_space import EtcdSpace, Use
from kafscale.storage.access_keys import CHANGES_MAX, AccessKeys, Change, change_txn, count_read, counted
from kafscale.storage.access_records import decode_credential, encode_credential
from kafscale.storage.etcd.client import EtcdClient, KeyValue, Range
from kafscale.storage.etcd.swap import swapped
from kafscale.storage.schema import UnreadableValue
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

Outcomes = dict[str, Refused | None]
"""By the user's name; None: done."""


class UserStore:
    def __init__(self, etcd: EtcdClient, keys: AccessKeys, users_max: int, space: EtcdSpace) -> None:
        self._etcd = etcd
        self._keys = keys
        self._users_max = users_max
        self._space = space

    async def alter(self, alterations: Sequence[Alteration]) -> Outcomes:
        """Makes the alterations, of which each is of another user. Those of one transaction are made together."""
        outcomes: Outcomes = {}
        for start in range(0, len(alterations), CHANGES_MAX):
            part = alterations[start : start + CHANGES_MAX]
            made = await guarded(swapped("the credentials of users", partial(self._try, part)))
            outcomes |= made if isinstance(made, dict) else {each.name: made for each in part}
        return outcomes

    async def _try(self, part: Sequence[Alteration]) -> Outcomes | None:
        keys = [self._keys.user(each.name, each.mechanism) for each in part]
        reads = [*map(Range, keys), count_read(self._keys.users)]
        *found, family = await self._etcd.ranges(reads)
        free = self._users_max - counted(self._keys.users, family)
        outcomes: Outcomes = {}
        changes = []
        for each, key, one in zip(part, keys, found, strict=True):
            kv = one.kvs[0] if one.kvs else None
            free -= kv is None and each.credential is not None
            outcomes[each.name] = refused = self._refusal(each, kv, free)
            if refused is None:
                value = None if each.credential is None else encode_credential(each.credential)
                changes.append(Change(key, kv.mod_revision if kv else 0, value))
        if changes and not (await self._etcd.txn(change_txn(self._keys.users, changes))).succeeded:
            return None
        for each in part:
            if outcomes[each.name] is None:
                log.info(
                    "credential altered",
                    user=each.name,
                    mechanism=each.mechanism.sasl_name,
                    action="stored" if each.credential else "deleted",
                )
        return outcomes

    def _refusal(self, wanted: Alteration, stored: KeyValue | None, free: int) -> Refused | None:
        if stored is not None:
            try:
                decode_credential(wanted.name, wanted.mechanism, stored.value)
            except UnreadableValue as damage:
                return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"The stored credential is damaged: {damage}")
        elif wanted.credential is None:
            return MISSING
        if wanted.credential is None:
            return None
        if stored is None and free < 0:
            return Refused(
                ErrorCode.POLICY_VIOLATION,
                f"The cluster may have {self._users_max} SCRAM credentials (KAFSCALE_USERS_MAX).",
            )
        use = Use.NEW if stored is None else Use.KNOWN
        if not self._space.admits(use, len(encode_credential(wanted.credential)) + len(wanted.name)):
            return Refused(ErrorCode.POLICY_VIOLATION, TOO_FULL)
        return None
