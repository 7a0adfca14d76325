"""Liveness: the registration of an instance under a lease, and a view of all live instances.

Law: a lease says only when it is polite to take over, never that it is safe. A node id has one holder at a time, an
instance is one boot of one process, and both keys are attached to one lease. If a lease is lost (etcd unavailable, loop
stuck), the same boot registers again under a new lease. Its partitions are still fenced by their heads, so nothing else
has to change. The same happens if etcd refuses to renew the lease, or if the keys are not attached to it any more. The
process ends only if another boot has taken the node id meanwhile, or if etcd refuses to register it again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Self

from kafscale.storage.backoff import Backoff
from kafscale.storage.etcd.client import (
    Compare,
    Delete,
    EtcdClient,
    EtcdError,
    EtcdRejected,
    EtcdUnknown,
    KeyValue,
    Put,
    Range,
    Txn,
)
from kafscale.storage.keys import Keyspace, prefix_end
from kafscale.storage.membership.keepalive import Keepalive, KeepaliveThread, Pace
from kafscale.storage.membership.nodes import NodeIdTaken, choose_node_id
from kafscale.storage.membership.records import (
    Instance,
    InstanceState,
    Listener,
    decode_live,
    encode_live,
    encode_node,
)
from kafscale.storage.system import monotonic_s, random_uuid, wall_ms
from kafscale.storage.views import PrefixView

__all__ = [
    "Instance",
    "InstanceState",
    "Listener",
    "LiveView",
    "NodeIdTaken",
    "Pace",
    "Registration",
    "RegistrationRefused",
]

TICK_S = 0.5
BACKOFF_FIRST_MS = 100
THREAD_END_S = 3.0
JOIN_TIMEOUT_S = 60.0
"""Limit of the retries of the own writes. The wait for another holder of the id is not included."""


class RegistrationRefused(Exception):
    """etcd accepted this instance once, and refuses it now."""

    def __init__(self, instance: Instance, place: str, rejected: EtcdRejected) -> None:
        super().__init__(
            f"etcd refuses to register {instance.role} {instance.node_id} again ({rejected}); see that the user "
            f"of KAFSCALE_ETCD_USER has its password and may read and write under {place}, then start this again"
        )


class Registration:
    """The registration of one instance. After `join`, `run` it in a task; `leave` ends it.

    The keepalive starts with `join`, so the caller may load as long as its loop runs.
    """

    def __init__(
        self,
        etcd: EtcdClient,
        keyspace: Keyspace,
        instance: Instance,
        pace: Pace,
        keepalive: type[Keepalive] = KeepaliveThread,
    ) -> None:
        self._etcd = etcd
        self._keyspace = keyspace
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._changing = asyncio.Lock()
        self._in_doubt = False  # an attempt without an answer may have written the keys
        self._trouble: Callable[[EtcdError], None] | None = None
        self._lost = asyncio.Event()
        self._left = asyncio.Event()
        self._keepalive_kind = keepalive
        self._keepalive: Keepalive | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        self.instance = instance
        self.lease_id = 0
        self.lost_count = 0
        """Leases that expired while this process ran."""

    @classmethod
    async def join(
        cls,
        etcd: EtcdClient,
        keyspace: Keyspace,
        *,
        role: str,
        address: str,
        node_id: int | None,
        tls: bool = False,
        listeners: Sequence[Listener] = (),
        rack: str = "",
        http_address: str = "",
        pace: Pace | None = None,
        keepalive: type[Keepalive] = KeepaliveThread,
        trouble: Callable[[EtcdError], None] | None = None,
    ) -> Self:
        """Takes the node id (None: the lowest free one) and registers as STARTING.

        Raises `NodeIdTaken` if a live process holds the id, and `EtcdError` if etcd refuses, is full or does not
        answer; what it has written then expires with its lease. A later registration calls `trouble` for each new
        kind of error. Serve on `address` before joining: a successor connects to it to see whether the holder lives.
        """
        pace = pace or Pace()
        boot_id, started_ms = random_uuid().hex, wall_ms()
        while True:
            chosen = await choose_node_id(etcd, keyspace, role=role, node_id=node_id, pace=pace)
            instance = Instance(
                role=role,
                node_id=chosen,
                boot_id=boot_id,
                address=address,
                tls=tls,
                listeners=tuple(listeners),
                rack=rack,
                http_address=http_address,
                started_ms=started_ms,
            )
            registration = cls(etcd, keyspace, instance, pace, keepalive)
            registration._trouble = trouble
            if await registration._register_first():
                return registration
            # Another process took the id first: look again.

    async def run(self) -> None:
        """Registers again whenever the lease is lost; returns after `leave`.

        Raises `NodeIdTaken` or `RegistrationRefused` if that is impossible.
        """
        while not self._left.is_set():
            try:
                async with asyncio.timeout(self._pace.ttl_s):
                    await self._lost.wait()
            except TimeoutError:
                if await self._holds_our_keys():
                    continue
            if self._left.is_set():
                return
            self.lost_count += 1
            await self._come_back()

    async def set_state(self, state: InstanceState, *, unannounced: bool = False) -> None:
        """Raises `EtcdUnknown` if etcd did not confirm; the next registration then writes the state."""
        async with self._changing:
            self.instance = replace(self.instance, state=state, unannounced=unannounced)
            await self._publish()

    async def announce(self, after_s: float) -> None:
        """Ends `unannounced` after so many seconds. Retries until etcd confirms, or until the instance drains."""
        await asyncio.sleep(after_s)
        backoff = Backoff(first_ms=BACKOFF_FIRST_MS)
        while True:
            try:
                async with self._changing:
                    if self.instance.is_ready:
                        self.instance = replace(self.instance, unannounced=False)
                        await self._publish()
                    return
            except EtcdError as error:
                if self._trouble is not None:
                    self._trouble(error)
            await backoff.sleep()

    async def _publish(self) -> None:
        try:
            await self._etcd.put(self._live_key(), encode_live(self.instance), lease=self.lease_id)
        except EtcdRejected as rejected:
            if not rejected.is_lease_gone:
                raise
            # The keepalive will notice as well; the new registration writes the current state.
            self._lost.set()

    async def leave(self) -> None:
        """Revokes the lease, so that all views see the departure at once."""
        self._left.set()
        self._lost.set()
        async with self._changing:
            await self._stop_keepalive()
            if self.lease_id:
                await self._etcd.lease_revoke(self.lease_id)

    @property
    def renewed_at_s(self) -> float:
        """Monotonic time at which the last successful keepalive was sent."""
        return self._keepalive.renewed_at_s if self._keepalive is not None else 0.0

    def is_fresh(self, now_s: float) -> bool:
        """Whether the lease cannot have expired yet, so that answers from memory are safe."""
        return now_s < self.renewed_at_s + 0.6 * self._pace.ttl_s

    # --------------------------------------------------------------------------------------------

    async def _come_back(self) -> None:
        if not await self._register_surely():
            why = "another process took it meanwhile"
            raise NodeIdTaken(self.instance.role, self.instance.node_id, why)

    async def _holds_our_keys(self) -> bool:
        """Whether both keys are attached to the current lease; True also if they cannot be read.

        A late copy of a transaction whose answer was lost attaches them to the previous lease: they would expire with
        that lease while the keepalive goes on.
        """
        lease, node_key = self.lease_id, self._keyspace.node(self.instance.role, self.instance.node_id)
        try:
            found = await self._etcd.ranges((Range(node_key), Range(self._live_key())))
        except EtcdError:
            return True
        return all(len(read.kvs) == 1 and read.kvs[0].lease == lease for read in found)

    async def _register_first(self) -> bool:
        """Like `_register`, but retries as long as an attempt without an answer may have written the keys."""
        backoff, deadline_s = Backoff(first_ms=BACKOFF_FIRST_MS), monotonic_s() + JOIN_TIMEOUT_S
        while True:
            try:
                return await self._register()
            except EtcdError:
                if not self._in_doubt or monotonic_s() > deadline_s:
                    raise
                await backoff.sleep()

    async def _register_surely(self) -> bool:
        """Retries until the outcome is known or `leave` was called. Raises `RegistrationRefused`."""
        backoff, said, refused_at_s = Backoff(first_ms=BACKOFF_FIRST_MS), "", 0.0
        while not self._left.is_set():
            try:
                return await self._register()
            except EtcdRejected as rejected:
                refused_at_s = refused_at_s or monotonic_s()
                if monotonic_s() - refused_at_s > self._pace.ttl_s:
                    place = self._keyspace.root().decode()
                    raise RegistrationRefused(self.instance, place, rejected) from rejected
                said = self._say(said, rejected.code.name, rejected)
            except EtcdUnknown as unknown:
                refused_at_s = 0.0
                said = self._say(said, unknown.kind.value, unknown)
            await backoff.sleep()
        return True

    def _say(self, said: str, kind: str, error: EtcdError) -> str:
        if kind != said and self._trouble is not None:
            self._trouble(error)
        return kind

    async def _register(self) -> bool:
        """Grants a lease and writes both keys. Returns False if another boot holds the node id."""
        async with self._changing:
            if self._left.is_set():
                return True
            await self._stop_keepalive()
            self._lost.clear()
            granted_at_s = monotonic_s()
            lease = self.lease_id = await self._etcd.lease_grant(self._pace.ttl_s)
            doubted, self._in_doubt = self._in_doubt, True
            try:
                revision = await self._put_keys(lease)
            except EtcdRejected:
                self._in_doubt = doubted
                raise
            self._in_doubt = False
            if revision is None:
                await self._etcd.lease_revoke(lease)
                return False
            self.instance = replace(self.instance, create_revision=revision)
            self._start_keepalive(granted_at_s)
            return True

    async def _put_keys(self, lease: int) -> int | None:
        """The create revision of the live key, or None. Removes the keys of earlier boots."""
        node_key = self._keyspace.node(self.instance.role, self.instance.node_id)
        held = encode_node(self.instance.boot_id)
        live_key = self._live_key()
        others = self._keyspace.live_node_prefix(self.instance.role, self.instance.node_id)
        take = (
            Put(node_key, held, lease),
            # Deletes around the own key: etcd refuses a transaction that writes a key twice.
            Delete(others, live_key),
            Delete(live_key + b"\0", prefix_end(others)),
            Put(live_key, encode_live(self.instance), lease),
        )
        for taking in (Compare(node_key, "version", "=", 0), Compare(node_key, "value", "=", held)):
            result = await self._etcd.txn(Txn((taking,), take))
            if result.succeeded:
                # It differs from this transaction's revision if an earlier attempt was applied.
                kv = await self._etcd.get(live_key)
                return result.revision if kv is None else kv.create_revision
        return None

    def _live_key(self) -> bytes:
        return self._keyspace.live(self.instance.role, self.instance.node_id, self.instance.boot_id)

    def _start_keepalive(self, granted_at_s: float) -> None:
        keepalive = self._keepalive_kind(self._etcd.access, self.lease_id, self._lost_from_thread, self._pace)
        keepalive.renewed_at_s = granted_at_s
        keepalive.start()
        self._keepalive = keepalive
        self._tick()

    def _tick(self) -> None:
        if self._keepalive is not None:
            self._keepalive.tick()
            self._tick_timer = self._loop.call_later(TICK_S, self._tick)

    def _lost_from_thread(self, lease: int) -> None:
        # The loop may have ended.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._lease_lost, lease)

    def _lease_lost(self, lease: int) -> None:
        if lease == self.lease_id:
            self._lost.set()

    async def _stop_keepalive(self) -> None:
        keepalive, self._keepalive = self._keepalive, None
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        if keepalive is not None:
            keepalive.stop()
            await asyncio.to_thread(keepalive.join, THREAD_END_S)


class LiveView:
    """The live instances of one role: the newest boot of each node id."""

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace, role: str) -> None:
        self.role = role
        self._by_id: dict[str, Instance] = {}
        self._newest: tuple[Instance, ...] = ()
        self._listeners: list[Callable[[], None]] = []
        self._keyspace = keyspace
        self.view: PrefixView[Instance] = PrefixView(etcd, keyspace.live_prefix(role), self._decode)
        self.view.subscribe(self._changed)

    async def run(self) -> None:
        await self.view.run()

    async def loaded(self) -> None:
        """Returns after the first read of the view."""
        await self.view.ready()

    async def refresh(self) -> None:
        await self.view.refresh()

    def instances(self) -> tuple[Instance, ...]:
        """In order of node id, in any state."""
        return self._newest

    def ready(self) -> tuple[Instance, ...]:
        """The instances that accept requests."""
        return tuple(instance for instance in self._newest if instance.is_ready)

    def by_id(self, instance_id: str) -> Instance | None:
        """The instance with this `{node_id}/{boot_id}`, if it is live."""
        return self._by_id.get(instance_id)

    def by_node(self, node_id: int) -> Instance | None:
        return next((instance for instance in self._newest if instance.node_id == node_id), None)

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener()` after each change. Returns a function that ends the subscription."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _decode(self, kv: KeyValue) -> Instance:
        return decode_live(kv, self._keyspace)

    def _changed(self, key: bytes, instance: Instance | None) -> None:
        newest: dict[int, Instance] = {}
        for found in self.view.items.values():
            before = newest.get(found.node_id)
            if before is None or before.create_revision < found.create_revision:
                newest[found.node_id] = found
        self._newest = tuple(newest[node_id] for node_id in sorted(newest))
        self._by_id = {found.id: found for found in self._newest}
        for listener in tuple(self._listeners):
            listener()
