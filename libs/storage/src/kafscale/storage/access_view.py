"""A watched copy of ACLs, quotas and users, for the processes that decide by it.

The laws. The view is ready when everything was read and every record could be read: a process that would decide by half
of the ACLs does not start. Later, a record that cannot be read takes rights away and never gives any: an ACL that is
damaged denies its principal every operation on its resource, and a damaged credential lets nobody log in. A quota
that is damaged keeps its last values. Each change moves `generation`. `age_s` is the time since the view was known
to be complete, so that a process can stop to decide when etcd has been away for too long.

If an ACL was never readable and does not name its resource, nothing can be denied for it. It is logged, it has no
effect while the process runs, and a process that starts refuses the view.

A watch does not say that it is idle, so `confirm` reads the markers of the families (access_keys.py) and compares them
with what the watch delivered.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from kafscale.access.acl import AclBinding
from kafscale.access.acl_index import AclIndex
from kafscale.access.decoys import Forms, Weights
from kafscale.access.quota import QuotaEntity, QuotaKey, QuotaTable
from kafscale.access.scram_credentials import ScramCredential, ScramMechanism
from kafscale.storage.access_keys import AccessKeys
from kafscale.storage.access_records import (
    UnreadableAcl,
    decode_acl,
    decode_credential,
    decode_quotas,
    denial_of,
)
from kafscale.storage.backoff import Backoff
from kafscale.storage.etcd.client import EtcdClient, EtcdError, KeyValue, Range
from kafscale.storage.keys import Keyspace, UnknownKey
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.system import monotonic_s
from kafscale.storage.views import PrefixView

log = logging.getLogger(__name__)

CONFIRM_EVERY_S: Final = 2.0
CONFIRM_FIRST_MS: Final = 100
"""While etcd does not answer, the view is confirmed again after this time, and later after CONFIRM_EVERY_S."""

Changed = Callable[[], None]


@dataclass(frozen=True, slots=True)
class StoredCredential:
    """`revision` changes whenever the credential was written again."""

    credential: ScramCredential
    revision: int


class _AclCopy:
    """`acls` is what decides: the ACLs that are stored, and a denial in place of each that cannot be read."""

    def __init__(self, etcd: EtcdClient, keys: AccessKeys, changed: Changed) -> None:
        self._keys = keys
        self._changed = changed
        self._applied: dict[bytes, AclBinding] = {}
        self._uses: Counter[AclBinding] = Counter()  # a denial may equal a stored ACL
        self.acls = AclIndex()
        self.view: PrefixView[AclBinding] = PrefixView(etcd, keys.acls, self._decode)
        self.view.subscribe(self._on_change)
        self.view.subscribe_damage(self._on_damage)

    def _decode(self, kv: KeyValue) -> AclBinding | None:
        stored_hash = kv.key[len(self._keys.acls) :].decode(errors="replace")
        return decode_acl(stored_hash, kv.value) if stored_hash else None

    def _on_change(self, key: bytes, acl: AclBinding | None) -> None:
        if key not in self.view.unreadable:
            self._apply(key, acl)

    def _on_damage(self, key: bytes, why: UnreadableValue | None) -> None:
        if why is None:
            self._apply(key, None)
        elif (known := self.view.items.get(key)) is not None:
            self._apply(key, denial_of(known))
        elif isinstance(why, UnreadableAcl) and key not in self._applied:
            self._apply(key, why.denial)

    def _apply(self, key: bytes, acl: AclBinding | None) -> None:
        before = self._applied.pop(key, None)
        if acl is not None:
            self._applied[key] = acl
            self._uses[acl] += 1
            self.acls.add(acl)
        if before is not None:
            self._uses[before] -= 1
            if not self._uses[before]:
                del self._uses[before]
                self.acls.remove(before)
        if before != acl:
            self._changed()


class _QuotaCopy:
    def __init__(self, etcd: EtcdClient, keys: AccessKeys, changed: Changed) -> None:
        self._keys = keys
        self._changed = changed
        self._applied: dict[bytes, Mapping[QuotaKey, float]] = {}
        self.quotas = QuotaTable()
        self.view: PrefixView[Mapping[QuotaKey, float]] = PrefixView(etcd, keys.quotas, self._decode)
        self.view.subscribe(self._on_change)
        self.view.subscribe_damage(self._on_damage)

    def _decode(self, kv: KeyValue) -> Mapping[QuotaKey, float] | None:
        if kv.key == self._keys.quotas:
            return None
        return decode_quotas(self._keys.parse_quota(kv.key), kv.value)

    def _on_change(self, key: bytes, values: Mapping[QuotaKey, float] | None) -> None:
        if key not in self.view.unreadable:
            self._apply(key, values or {})

    def _on_damage(self, key: bytes, why: UnreadableValue | None) -> None:
        """A value that was read before applies until the key is written again, or deleted."""
        if why is None:
            self._apply(key, {})

    def _apply(self, key: bytes, values: Mapping[QuotaKey, float]) -> None:
        before = self._applied.pop(key, {})
        if values:
            self._applied[key] = values
        if before == values:
            return
        entity = self._keys.parse_quota(key)
        for quota in before.keys() | values.keys():
            if before.get(quota) != values.get(quota):
                self.quotas.put(entity, quota, values.get(quota))
        self._changed()


class _UserCopy:
    def __init__(self, etcd: EtcdClient, keys: AccessKeys, changed: Changed) -> None:
        self._keys = keys
        self._changed = changed
        self.by_name: dict[str, dict[ScramMechanism, StoredCredential]] = {}
        self.forms = {mechanism: Forms() for mechanism in ScramMechanism}
        self.view: PrefixView[StoredCredential] = PrefixView(etcd, keys.users, self._decode)
        self.view.subscribe(self._on_change)

    def _decode(self, kv: KeyValue) -> StoredCredential | None:
        if kv.key == self._keys.users:
            return None
        name, mechanism = self._keys.parse_user(kv.key)
        return StoredCredential(decode_credential(name, mechanism, kv.value), kv.mod_revision)

    def _on_change(self, key: bytes, stored: StoredCredential | None) -> None:
        name, mechanism = self._keys.parse_user(key)
        before = self.by_name.get(name, {}).get(mechanism)
        self.forms[mechanism].replace(_content(before), _content(stored))
        if stored is not None:
            self.by_name.setdefault(name, {})[mechanism] = stored
        else:
            of_user = self.by_name.get(name, {})
            of_user.pop(mechanism, None)
            if not of_user:
                self.by_name.pop(name, None)
        self._changed()


def _content(stored: StoredCredential | None) -> ScramCredential | None:
    return None if stored is None else stored.credential


class AccessView:
    """`run` it in a task and wait for `ready`, or for `loaded`. Everything else is synchronous, and of this event loop.

    `acls_only`: for services other than the front door and admin, which need neither quotas nor credentials.
    """

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace, *, acls_only: bool = False) -> None:
        self._etcd = etcd
        self._repaired = asyncio.Event()
        self._confirmed_s = monotonic_s()
        self.keys = AccessKeys(keyspace)
        self.generation = 0
        """Grows with each change of an ACL, a quota or a credential."""
        self._acls = _AclCopy(etcd, self.keys, self._changed)
        self._quotas = _QuotaCopy(etcd, self.keys, self._changed)
        self._users = _UserCopy(etcd, self.keys, self._changed)
        self.acls = self._acls.acls
        """For an Authorizer. With the denials of damaged records; `stored_acls` is without."""
        self.quotas = self._quotas.quotas
        everything: Mapping[str, PrefixView[Any]] = {
            "acls": self._acls.view,
            "quotas": self._quotas.view,
            "users": self._users.view,
        }
        self.views = {"acls": self._acls.view} if acls_only else everything
        """The views that run, by the names that metrics have for them."""
        for view in self.views.values():
            view.subscribe_damage(self._on_damage)

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for view in self.views.values():
                tasks.create_task(view.run())
            tasks.create_task(self._keep_confirmed())

    async def loaded(self) -> None:
        """Returns when everything was read. Some records may be unreadable."""
        for view in self.views.values():
            await view.ready()

    async def ready(self) -> None:
        """Returns when everything was read, and every record could be read. It waits for a repair of those that could
        not."""
        await self.loaded()
        damaged = self.damaged()
        if damaged:
            log.error("access refused: unreadable records, repair or delete them: %s", damaged)
        while self.damaged():
            self._repaired.clear()
            await self._repaired.wait()

    def damaged(self) -> list[bytes]:
        """The keys of the records that cannot be read."""
        return [key for view in self.views.values() for key in view.unreadable]

    def age_s(self) -> float:
        """Seconds since the view was known to have every change that was committed."""
        return monotonic_s() - self._confirmed_s

    async def confirm(self) -> None:
        """Afterwards the view has every change that was committed before the call. Call it when the view is loaded.

        Raises EtcdError.
        """
        assert all(view.is_ready for view in self.views.values()), "the view was not loaded"
        began_s = monotonic_s()
        markers = {
            "acls": self.keys.acls,
            "quotas": self.keys.quotas,
            "users": self.keys.users,
        }
        reads = [Range(markers[name], keys_only=True) for name in self.views]
        for view, found, read in zip(self.views.values(), await self._etcd.ranges(reads), reads, strict=True):
            written = found.kvs[0].mod_revision if found.kvs else 0
            if view.revision_of(read.key) < written or found.revision < view.revision:
                await view.refresh()
        self._confirmed_s = max(self._confirmed_s, began_s)

    @property
    def stored_acls(self) -> Mapping[bytes, AclBinding]:
        """The ACLs that are stored, by key."""
        return self._acls.view.items

    def stored_quotas(self) -> Iterator[tuple[QuotaEntity, Mapping[QuotaKey, float]]]:
        """The entities that have quotas."""
        return ((self.keys.parse_quota(key), values) for key, values in self._quotas.view.items.items())

    @property
    def users(self) -> Mapping[str, Mapping[ScramMechanism, StoredCredential]]:
        """Users by name, with their credentials."""
        return self._users.by_name

    def damaged_users(self) -> set[str]:
        """The users of whom a credential cannot be read."""
        names = set()
        for key in self._users.view.unreadable:
            with suppress(UnknownKey):
                names.add(self.keys.parse_user(key)[0])
        return names

    def credential(self, user: str, mechanism: ScramMechanism) -> StoredCredential | None:
        """None if the user has none, or if it cannot be read."""
        return self._users.by_name.get(user, {}).get(mechanism)

    def forms(self, mechanism: ScramMechanism) -> Weights:
        """The forms of the credentials, for those of users who do not exist."""
        return self._users.forms[mechanism].weights

    def _changed(self) -> None:
        self.generation += 1

    def _on_damage(self, _: bytes, why: UnreadableValue | None) -> None:
        if why is None:
            self._repaired.set()

    async def _keep_confirmed(self) -> None:
        await self.loaded()
        backoff = Backoff(first_ms=CONFIRM_FIRST_MS, cap_ms=int(CONFIRM_EVERY_S * 1000))
        while True:
            try:
                await self.confirm()
            except EtcdError as error:
                log.debug("access view not confirmed: %r", error)
                await backoff.sleep()
            else:
                backoff.reset()
                await asyncio.sleep(CONFIRM_EVERY_S)
