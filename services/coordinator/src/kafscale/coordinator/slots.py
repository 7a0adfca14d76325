"""Which slots of groups this instance coordinates: claims, loading, releases.

The laws. A slot is served from the moment its groups were read under a confirmed claim until it is
released or seen lost; every write under it compares the claim's revision, so a view that is out of date
costs an error and never an offset. A live owner is never robbed; whoever rendezvous hashing over the
READY coordinators prefers has the slot in the end. Giving a slot away is: stop answering, then release;
what was written before is what the next owner reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

import structlog
from kafscale.runtime.committer import Committer, Settled
from kafscale.storage.claims import NO_NODE, Grounds, grounds, node_of
from kafscale.storage.consumer_groups import KEYS_PER_PAGE
from kafscale.storage.etcd.client import EtcdClient, EtcdError, KeyValue
from kafscale.storage.heads import CorruptValue
from kafscale.storage.keys import Keyspace, SlotId
from kafscale.storage.membership.members import LiveView
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.slots import (
    SLOTS,
    Slot,
    SlotWon,
    build_slot_claim,
    build_slot_release,
    decode_slot,
    preferred_slot_owner,
    read_slot_claim,
)
from kafscale.storage.views import PrefixView

log = structlog.get_logger(__name__)

LOOK_EVERY_S = 1.0
SETTLE_S = 0.05
"""After a change of the fleet, so that a burst of changes costs one look."""
LOAD_RETRY_S = 0.2
Work = Callable[[], Coroutine[Any, Any, None]]
ALL_SLOTS = tuple(SlotId(number) for number in range(SLOTS))


class SlotSeen(NamedTuple):
    """A slot's record as the view has it."""

    slot: Slot
    revision: int


@dataclass(slots=True, eq=False)
class Held:
    """A claim of ours. `revision` is what every write under the slot compares."""

    slot_id: SlotId
    slot: Slot
    revision: int
    loaded: bool = False


class Tenant(Protocol):
    """Who lives in the slots."""

    def load(self, held: Held, states: tuple[KeyValue, ...]) -> None:
        """The slot is ours and these are its groups; serve them."""

    def lose(self, slot_id: SlotId) -> None:
        """It is ours no more: answer NOT_COORDINATOR to whoever waits, forget everything."""


def slot_table(etcd: EtcdClient, keyspace: Keyspace) -> PrefixView[SlotSeen]:
    return PrefixView(etcd, keyspace.slot_claims_prefix(), _seen)


def _seen(kv: KeyValue) -> SlotSeen:
    """A damaged record names no owner, and says nothing that a claim needs: its revision is the fence. So it is claimed
    anew, by a compare on the damaged revision. One of a newer schema has an owner, and is left alone."""
    try:
        return SlotSeen(decode_slot(kv.value), kv.mod_revision)
    except CorruptValue as error:
        log.error("a slot's record is damaged and claimed anew", key=repr(kv.key), why=str(error))
        return SlotSeen(Slot(epoch=0), kv.mod_revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What claims and releases are decided on."""

    etcd: EtcdClient
    keyspace: Keyspace
    live: LiveView
    table: PrefixView[SlotSeen]
    committer: Committer
    me: str


class Slots:
    """See the module's law. `run` it once the views are loaded."""

    def __init__(
        self, fleet: Fleet, tenant: Tenant, begin: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        self._fleet = fleet
        self._tenant = tenant
        self._begin = begin
        self._held: dict[SlotId, Held] = {}
        self._given: dict[SlotId, int] = {}  # revisions at which slots were given away
        self._busy: set[SlotId] = set()  # a claim or a release is on its way
        self._changed = asyncio.Event()
        self._taking = False
        self.lost_count = 0
        """Slots that were taken from us; not those that we gave away."""
        fleet.live.subscribe(self._changed.set)
        fleet.table.subscribe(lambda _key, _seen: self._changed.set())

    def held(self, slot_id: SlotId) -> Held | None:
        return self._held.get(slot_id)

    @property
    def is_loading(self) -> bool:
        """Some slot is ours whose groups were not read yet."""
        return not all(held.loaded for held in self._held.values())

    @property
    def held_count(self) -> int:
        return len(self._held)

    async def run(self) -> None:
        """Claims what should be ours and gives away what should not, until cancelled."""
        self._taking = True
        while True:
            self._changed.clear()
            self._look()
            try:
                async with asyncio.timeout(LOOK_EVERY_S):
                    await self._changed.wait()
                await asyncio.sleep(SETTLE_S)
            except TimeoutError:
                continue

    async def drain(self, timeout_s: float) -> None:
        """Give all slots away; returns when none is held, or the time is over."""
        self._taking = False
        self._changed.set()
        try:
            async with asyncio.timeout(timeout_s):
                while self._held or self._busy:
                    self._changed.clear()
                    self._look()
                    await self._changed.wait()
        except TimeoutError:
            log.warning("not every slot was handed over in time", left=len(self._held))

    def lost(self, held: Held) -> None:
        """A write compared this claim's revision and failed: another has claimed the slot."""
        if self._held.get(held.slot_id) is held:
            log.warning("slot lost", slot=held.slot_id, epoch=held.slot.epoch)
            self.lost_count += 1
            self._drop(held)

    def _drop(self, held: Held) -> None:
        del self._held[held.slot_id]
        self._tenant.lose(held.slot_id)
        self._changed.set()

    # -- who should have what -------------------------------------------------------------------

    def _look(self) -> None:
        fleet = self._fleet
        mine = node_of(fleet.me)
        ready = {instance.node_id for instance in fleet.live.ready()} - {mine}
        if self._taking:
            ready.add(mine)
        live = {instance.id for instance in fleet.live.instances()} | {fleet.me}
        for slot_id in ALL_SLOTS:
            if slot_id in self._busy or self._is_unreadable(slot_id):
                continue
            preferred = preferred_slot_owner(slot_id, ready)
            held = self._held.get(slot_id)
            seen = fleet.table.items.get(fleet.keyspace.slot_claim(slot_id))
            if held is not None and self._is_taken(held, seen):
                self.lost(held)
            elif held is not None:
                if preferred != mine and (preferred != NO_NODE or not self._taking):
                    self._work(slot_id, partial(self._release, held, preferred))
            else:
                why = (
                    self._claimable(seen, live, ready, preferred=preferred == mine) if self._taking else None
                )
                if why is not None:
                    self._work(slot_id, partial(self._claim, slot_id, seen, why))
                elif seen is not None and self._is_stray(slot_id, seen):
                    stray = Held(slot_id, seen.slot, seen.revision)
                    self._work(slot_id, partial(self._give, stray, preferred))

    def _is_taken(self, held: Held, seen: SlotSeen | None) -> bool:
        """Claimed while our own answer was on its way; or the record is gone, and with it the fence of our writes."""
        known = self._fleet.table.revision if seen is None else seen.revision
        return known > held.revision

    def _is_unreadable(self, slot_id: SlotId) -> bool:
        """A newer version has claimed it: what we had is lost, and it is not ours to take."""
        unreadable = self._fleet.table.unreadable
        if not unreadable or self._fleet.keyspace.slot_claim(slot_id) not in unreadable:
            return False
        held = self._held.get(slot_id)
        if held is not None:
            self.lost(held)
        return True

    def _is_stray(self, slot_id: SlotId, seen: SlotSeen) -> bool:
        """Ours in etcd and not here: dropped after an error, while another became preferred. Nobody else may
        take it from a live owner."""
        return seen.slot.owner == self._fleet.me and seen.revision > self._given.get(slot_id, 0)

    def _claimable(
        self, seen: SlotSeen | None, live: set[str], ready: set[int], *, preferred: bool
    ) -> Grounds | None:
        if seen is None:
            return Grounds.FIRST if preferred else None
        why = grounds(seen.slot.owner, seen.slot.handoff_to, me=self._fleet.me, live=live, ready=ready)
        return why if preferred or why is Grounds.HANDED_OVER else None

    def _work(self, slot_id: SlotId, work: Work) -> None:
        self._busy.add(slot_id)
        self._begin(self._finish(slot_id, work))

    async def _finish(self, slot_id: SlotId, work: Work) -> None:
        """`work` is called here: a task that is cancelled before its first step has called nothing."""
        try:
            await work()
        finally:
            self._busy.discard(slot_id)
            self._changed.set()

    # -- changing hands -------------------------------------------------------------------------

    async def _claim(self, slot_id: SlotId, seen: SlotSeen | None, why: Grounds) -> None:
        fleet = self._fleet
        claim = build_slot_claim(
            fleet.keyspace,
            slot_id,
            slot=None if seen is None else seen.slot,
            revision=0 if seen is None else seen.revision,
            me=fleet.me,
            why=why,
        )
        answer = await fleet.committer.ask(claim.txn, key=fleet.keyspace.slot_claim(slot_id))
        if not isinstance(answer, Settled):
            log.error("a claim was refused by etcd", slot=slot_id, why=answer.reason)
            return
        try:
            found = read_slot_claim(claim, answer.result, answer.revision)
        except UnreadableValue:
            return  # nor won: the view will tell of it
        if isinstance(found, SlotWon):
            held = self._held[slot_id] = Held(slot_id, found.slot, found.revision)
            await self._load(held)

    async def _load(self, held: Held) -> None:
        """Read after the claim: no write of an earlier owner can come after it.

        In pages at one revision. All records of the slot are in memory for a moment, as its groups are from
        then on; pages bound the answers and not the sum.
        """
        prefix = self._fleet.keyspace.groups_prefix(held.slot_id)
        while self._held.get(held.slot_id) is held:
            try:
                found = await self._fleet.etcd.prefix(prefix, page_keys=KEYS_PER_PAGE)
            except EtcdError as error:
                log.info("groups of a slot not read, again", slot=held.slot_id, why=str(error))
                await asyncio.sleep(LOAD_RETRY_S)
                continue
            if self._held.get(held.slot_id) is held:
                held.loaded = True
                self._tenant.load(held, found.kvs)
            return

    async def _release(self, held: Held, to: int) -> None:
        """Whatever the answer is, the slot is not ours any more."""
        self._drop(held)
        await self._give(held, to)

    async def _give(self, held: Held, to: int) -> None:
        handoff_to = "" if to == NO_NODE else str(to)
        fleet = self._fleet
        txn = build_slot_release(
            fleet.keyspace, held.slot_id, slot=held.slot, revision=held.revision, handoff_to=handoff_to
        )
        answer = await fleet.committer.ask(txn, key=fleet.keyspace.slot_claim(held.slot_id))
        if isinstance(answer, Settled):
            self._given[held.slot_id] = held.revision
