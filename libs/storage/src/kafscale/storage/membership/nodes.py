"""Node ids: each has at most one live holder. A process leases the lowest free id, or takes over an explicit one.

If an explicit id has a record, its holder may be live, or dead with a lease that has not expired yet. This module first
connects to the holder's port (if the connection is refused, the holder is dead), and then watches its lease: a live
holder renews it. It revokes only the lease of a dead holder.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from kafscale.storage.etcd.client import EtcdClient, KeyValue
from kafscale.storage.keys import Keyspace, UnknownKey
from kafscale.storage.membership.keepalive import Pace
from kafscale.storage.membership.records import Instance, decode_live
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.system import monotonic_s

log = logging.getLogger(__name__)

NODE_ID_FIRST = 1
NODE_ID_MAX = 0x7FFF_FFFF
PROBE_TIMEOUT_S = 1.0
WATCH_STEP_S = 0.25
ROUNDING_S = 1.5


class NodeIdTaken(Exception):
    """Two processes claim one node id."""

    def __init__(self, role: str, node_id: int, why: str) -> None:
        super().__init__(
            f"node id {node_id} of role {role} is held by a live process ({why}); "
            "give this one another id, or none to take the lowest free one"
        )
        self.role = role
        self.node_id = node_id


async def choose_node_id(
    etcd: EtcdClient, keyspace: Keyspace, *, role: str, node_id: int | None, pace: Pace
) -> int:
    """An id that is free now; the caller's transaction takes it. Raises `NodeIdTaken`."""
    if node_id is None:
        return await _lowest_free(etcd, keyspace, role)
    if not 0 <= node_id <= NODE_ID_MAX:
        raise ValueError(f"node id {node_id} is not within 0 and {NODE_ID_MAX}")
    holder = await etcd.get(keyspace.node(role, node_id))
    if holder is None:
        return node_id
    if not holder.lease:  # no process writes it without a lease
        raise NodeIdTaken(role, node_id, f"its key {holder.key!r} has no lease and never ends: delete it")
    instance = await _newest(etcd, keyspace, role, node_id)
    if not await _port_refuses(instance) and await _renews(etcd, holder.lease, pace):
        where = "" if instance is None else f" at {instance.address or instance.http_address}"
        raise NodeIdTaken(role, node_id, f"boot {'' if instance is None else instance.boot_id}{where}")
    await etcd.lease_revoke(holder.lease)
    return node_id


async def _lowest_free(etcd: EtcdClient, keyspace: Keyspace, role: str) -> int:
    taken = await etcd.prefix(keyspace.nodes_prefix(role), keys_only=True)
    ids = set()
    for kv in taken.kvs:
        with suppress(UnknownKey):  # not the key of a node
            ids.add(keyspace.parse_node(role, kv.key))
    return next(n for n in range(NODE_ID_FIRST, NODE_ID_MAX) if n not in ids)


async def _newest(etcd: EtcdClient, keyspace: Keyspace, role: str, node_id: int) -> Instance | None:
    found = await etcd.prefix(keyspace.live_node_prefix(role, node_id))
    newest: KeyValue | None = max(found.kvs, key=lambda kv: kv.create_revision, default=None)
    try:
        return None if newest is None else decode_live(newest, keyspace)
    except UnreadableValue as error:
        log.error("live record unreadable, lease decides: %s", error)
        return None


async def _port_refuses(instance: Instance | None) -> bool:
    """True only if the holder's machine refuses the connection."""
    if instance is None:
        return False
    host, _, port = (instance.address or instance.http_address).rpartition(":")
    if not host or not port.isdecimal():
        return False
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except ConnectionRefusedError:
        return True
    except OSError:  # no route, no such host, or silence: the holder may be live
        return False
    writer.close()
    return False


async def _renews(etcd: EtcdClient, lease: int, pace: Pace) -> bool:
    """Whether a process renews the lease. Watches it for two keepalive intervals plus ROUNDING_S.

    etcd reports whole seconds, rounded down. So the value of a lease without renewals is below the first value, plus
    one, minus the elapsed time.
    """
    first_s = await etcd.lease_remaining_s(lease)
    started_s = monotonic_s()
    deadline_s = started_s + 2 * pace.interval_s + ROUNDING_S
    while first_s >= 0 and monotonic_s() < deadline_s:
        await asyncio.sleep(WATCH_STEP_S)
        elapsed_s = monotonic_s() - started_s
        now_s = await etcd.lease_remaining_s(lease)
        if now_s < 0:
            return False
        if now_s >= first_s + 1 - elapsed_s:
            return True
    return False
