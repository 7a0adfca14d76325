"""How instances of one role share what can be owned: the partitions of produce, the group slots of the coordinator.

The laws: a live owner is never robbed; the node that rendezvous hashing over the ready instances prefers gets each
thing in the end; a view that is out of date costs a redirect, never a wrong write, for each claim is one
compare-and-swap (`log.claims`, `slots`). Any set of ready nodes that two instances agree on gives them the same plan,
without a leader. A hand-over is a record without owner that names the next one: all instances
watch these records, so no message is sent. `Fleet` is pure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, TypeVar

import xxhash
from kafscale.storage.etcd.ops import Compare
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import LiveView
from kafscale.storage.schema import SCHEMA, checked_owner, parse_value
from kafscale.store.v1 import store_pb2 as pb

log = logging.getLogger(__name__)

NO_NODE = -1
T_co = TypeVar("T_co", covariant=True)


def _weight(prefix: bytes, node_id: int) -> int:
    return xxhash.xxh64_intdigest(prefix + node_id.to_bytes(4, "big", signed=True))


def _prefix(topic_id: bytes, partition: int) -> bytes:
    return topic_id + partition.to_bytes(4, "big", signed=True)  # a client may name any number


def rendezvous(topic_id: bytes, partition: int, node_ids: Iterable[int]) -> int:
    """The node that should own the partition, or `NO_NODE` when there is none."""
    prefix = _prefix(topic_id, partition)
    best, best_weight = NO_NODE, -1
    for node_id in node_ids:
        weight = _weight(prefix, node_id)
        if weight > best_weight or (weight == best_weight and node_id < best):
            best, best_weight = node_id, weight
    return best


def node_of(instance: str) -> int:
    """The stable node id in `{node_id}/{boot_id}`."""
    node, _, _ = instance.partition("/")
    return int(node)


def owner_gone(keyspace: Keyspace, role: str, owner: str) -> Compare:
    """Holds while the instance is not registered: who claims from it does so only then."""
    node_id, _, boot_id = owner.partition("/")
    return Compare(keyspace.live(role, int(node_id), boot_id), "version", "=", 0)


class Grounds(Enum):
    """Why a claim is polite."""

    FIRST = auto()  # it never had an owner
    UNOWNED = auto()
    HANDED_OVER = auto()  # released with handoff_to naming this node
    MINE = auto()  # an epoch reset, or the owner is an earlier boot of this node
    OWNER_GONE = auto()  # its live key is absent


def grounds(
    owner: str, handoff_to: str, *, me: str, live: Collection[str], ready: Collection[int]
) -> Grounds | None:
    """What entitles `me` to claim, or None. `live` holds the ids of the role's live instances, `ready` the nodes
    that take work. A promise to a node that takes none (it drains, or starts anew) keeps no other node away: it
    will not claim, and it may live for as long as its drain lasts."""
    mine = node_of(me)
    if not owner:
        if not handoff_to:
            return Grounds.UNOWNED
        if handoff_to == str(mine):
            return Grounds.HANDED_OVER
        return None if int(handoff_to) in ready else Grounds.UNOWNED
    if owner == me or node_of(owner) == mine:
        return Grounds.MINE
    return None if owner in live else Grounds.OWNER_GONE


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerRecord:
    """`{prefix}/o/{topic_id}/{partition}`: the small part of a head that many watch."""

    epoch: int
    owner: str = ""  # "{node_id}/{boot_id}", "" when unowned
    handoff_to: str = ""  # node id that may claim at once


class Registered(Protocol[T_co]):
    """The instances of a role, or what somebody keeps for each of them."""

    def by_id(self, instance_id: str, /) -> T_co | None: ...

    def by_node(self, node_id: int, /) -> T_co | None: ...


def holder_of(record: OwnerRecord, registered: Registered[T_co]) -> T_co | None:
    """The owner while it is registered, else the node that it was handed to."""
    owner = registered.by_id(record.owner) if record.owner else None
    if owner is not None or not record.handoff_to.isdecimal():
        return owner
    return registered.by_node(int(record.handoff_to))


def encode_owner(record: OwnerRecord) -> bytes:
    return pb.Owner(
        schema=SCHEMA, epoch=record.epoch, owner=record.owner, handoff_to=record.handoff_to
    ).SerializeToString()


def decode_owner(data: bytes) -> OwnerRecord:
    message = pb.Owner()
    parse_value(message, data, "owner record")
    checked_owner("owner record", message.owner, message.handoff_to)
    return OwnerRecord(epoch=message.epoch, owner=message.owner, handoff_to=message.handoff_to)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """The instances of a role as this one sees them. `place` and `number` name a thing: topic id and partition."""

    me: str
    leaving: bool  # this instance gives everything away
    ready: frozenset[int]  # node ids that claim
    live: frozenset[str]  # ids of the instances that hold a lease

    @classmethod
    def seen(cls, live: LiveView, me: str, *, claiming: bool, leaving: bool) -> Fleet:
        """The registered instances, with this one's own state instead of what it has registered."""
        mine = node_of(me)
        ready = {instance.node_id for instance in live.ready()} - {mine}
        if claiming and not leaving:
            ready.add(mine)
        return cls(
            me=me,
            leaving=leaving,
            ready=frozenset(ready),
            live=frozenset({instance.id for instance in live.instances()} | {me}),
        )

    def claimable(self, place: bytes, number: int, record: OwnerRecord | None) -> Grounds | None:
        """On what grounds this instance should claim it now, or None if it should not."""
        if self.leaving:
            return None
        if record is None:
            why: Grounds | None = Grounds.FIRST
        else:
            why = grounds(record.owner, record.handoff_to, me=self.me, live=self.live, ready=self.ready)
        if why in (None, Grounds.MINE, Grounds.HANDED_OVER):
            return why
        return why if rendezvous(place, number, self.ready) == node_of(self.me) else None

    def successor(self, place: bytes, number: int) -> int:
        """The node that should have it instead of this one; `NO_NODE` if this one should keep it, or none is ready."""
        mine = node_of(self.me)
        best = rendezvous(place, number, self.ready - {mine} if self.leaving else self.ready)
        return NO_NODE if best == mine else best


async def next_look(changed: asyncio.Event, *, every_s: float, settle_s: float) -> None:
    """Until something has changed, and `settle_s` longer, so that a burst of changes costs one look; or `every_s`,
    because a view may have missed a change."""
    try:
        async with asyncio.timeout(every_s):
            await changed.wait()
    except TimeoutError:
        return
    await asyncio.sleep(settle_s)
    changed.clear()


async def give_all_away(
    left: Callable[[], int], give: Callable[[], None], wait: Callable[[], Awaitable[object]], timeout_s: float
) -> None:
    """The drain: `give` as much as may go now, `wait` for a change, until nothing is `left` or the time is over."""
    try:
        async with asyncio.timeout(timeout_s):
            while left():
                give()
                await wait()
    except TimeoutError:
        log.warning("hand-over incomplete: %d left", left())
