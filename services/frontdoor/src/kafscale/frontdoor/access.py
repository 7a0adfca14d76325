"""The front door's copy of users, ACLs and quotas: whether it may still be used, and answers that wait for a change.

Laws: while etcd is away, the last copy decides for `access_stale_ms`. Beyond that nobody logs in with a password, and a
front door with an authorizer serves no client; quotas hold as they are. An answer that says that users, ACLs or quotas
have changed leaves when the copy of this front door has the change, or after CONFIRM_S: the change was made in any
case, so the answer stays the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import structlog
from kafscale.access.decoys import Weights
from kafscale.access.quota import QuotaTable
from kafscale.access.scram_credentials import ScramMechanism
from kafscale.frontdoor.authentication.credentials import CredentialSource
from kafscale.frontdoor.exchange import Exchange
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.access import ProcessAccess
from kafscale.runtime.clock import Clock
from kafscale.runtime.dependencies import Need, wait_for
from kafscale.storage.access_keys import AccessKeys
from kafscale.storage.access_view import AccessView, StoredCredential
from kafscale.storage.decoy_key import shared_decoy_key
from kafscale.storage.etcd.client import EtcdClient, EtcdError
from kafscale.storage.views import PrefixView
from kafscale.wire.buffers import Buffer

log = structlog.get_logger("kafscale.frontdoor")

CONFIRM_S: Final = 1.0


class AccessCopy(Protocol):
    """What the front door uses of an AccessView besides its records."""

    def age_s(self) -> float: ...

    async def ready(self) -> None: ...

    async def loaded(self) -> None: ...

    async def confirm(self) -> None:
        """Afterwards it has every change from before the call. Raises EtcdError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DoorAccess:
    """`decides`: there is an authorizer, so without a current copy no request can be allowed. `only_quotas`: there are
    neither logins nor an authorizer, so a record that cannot be read stops nobody."""

    copy: AccessCopy
    stale_ms: int
    decides: bool
    only_quotas: bool = False

    async def ready(self) -> None:
        """Returns when clients may be served."""
        await (self.copy.loaded() if self.only_quotas else self.copy.ready())

    @property
    def fresh(self) -> bool:
        return self.copy.age_s() * 1000 <= self.stale_ms

    @property
    def shuts_out(self) -> bool:
        """Whether no client may be served now."""
        return self.decides and not self.fresh

    async def catch_up(self) -> None:
        """Waits until the copy has every change from before the call, at most CONFIRM_S."""
        try:
            async with asyncio.timeout(CONFIRM_S):
                await self.copy.confirm()
        except (EtcdError, TimeoutError) as error:
            log.warning("change of users, ACLs or quotas not seen yet", why=repr(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUsers:
    """Implements CredentialSource with the users in etcd."""

    view: AccessView
    access: DoorAccess
    decoy_key: bytes

    def __repr__(self) -> str:
        return "StoredUsers()"  # the key is secret

    @property
    def fresh(self) -> bool:
        return self.access.fresh

    def forms(self, mechanism: ScramMechanism) -> Weights:
        return self.view.forms(mechanism)

    def credential(self, user: str, mechanism: ScramMechanism) -> StoredCredential | None:
        return self.view.credential(user, mechanism)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessMeans:
    """What a front door has of users, ACLs and quotas.

    `users`: where logins find the users; None if no listener has logins. `views`: what is watched, by the names that
    metrics have for it.
    """

    copy: DoorAccess | None = None
    users: CredentialSource | None = None
    quotas: QuotaTable = field(default_factory=QuotaTable)
    views: Mapping[str, PrefixView[Any]] = field(default_factory=dict)


async def open_access(
    settings: FrontdoorSettings, process: ProcessAccess, etcd: EtcdClient, clock: Clock
) -> AccessMeans:
    """Waits for etcd. Raises DecoyKeyDamaged."""
    decides, has_logins = settings.authorizer != "none", settings.has_logins
    view = process.view
    access = DoorAccess(
        copy=view,
        stale_ms=settings.access_stale_ms,
        decides=decides,
        only_quotas=not decides and not has_logins,
    )
    users = None
    if has_logins:
        users = StoredUsers(view=view, access=access, decoy_key=await decoy_key(etcd, view.keys, clock))
    return AccessMeans(copy=access, users=users, quotas=view.quotas, views=process.views)


async def decoy_key(etcd: EtcdClient, keys: AccessKeys, clock: Clock) -> bytes:
    """Waits for etcd. Raises DecoyKeyDamaged."""
    need = Need(
        what="the key for users who do not exist, in etcd",
        remedy="look at etcd: it answered a moment ago; a front door needs the rights to read and create this key",
        probe=lambda: shared_decoy_key(etcd, keys),
        not_yet=(EtcdError,),
    )
    return await wait_for(need, clock=clock, say=_unsaid)


def _unsaid(_: str) -> None:
    """Does nothing: the log says it, and the process is not ready."""


class LateAnswer:
    """The call of an exchange whose answer waits for `DoorAccess.catch_up`."""

    def __init__(
        self, exchange: Exchange, body: Sequence[Buffer], access: DoorAccess, tasks: asyncio.TaskGroup
    ) -> None:
        self._exchange = exchange
        self._body = body
        self._waiting = tasks.create_task(access.catch_up())
        self._waiting.add_done_callback(self._answer)

    def _answer(self, _: asyncio.Task[None]) -> None:
        self._exchange.answer(self._body)  # nothing, if the client has left

    def abandon(self) -> None:
        self._waiting.cancel()

    def expire(self) -> None:
        """The request was done, so the answer leaves without the wait."""
        self._waiting.cancel()
