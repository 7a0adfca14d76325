"""Which slots this instance coordinates: claims, loading, releases.

The laws. A slot is served from the moment all its contents were read under a confirmed claim until it is
released or seen lost; every write under it compares the claim's revision, so a view that is out of date
costs an error and never an offset. A live owner is never robbed; the coordinator that rendezvous hashing
over the READY ones prefers has the slot in the end. Giving a slot away is: stop answering, then release;
what was written before is what the next owner reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import structlog
from kafscale.runtime.committer import Committer, Settled
from kafscale.storage.backoff import Backoff
from kafscale.storage.consumer_groups import KEYS_PER_PAGE
from kafscale.storage.coordination import NO_NODE, Fleet, Grounds, decode_owner, give_all_away, next_look
from kafscale.storage.etcd.client import EtcdClient, EtcdError, KeyValue
from kafscale.storage.keys import Keyspace, SlotId
from kafscale.storage.membership.members import LiveView
from kafscale.storage.schema import CorruptValue, UnreadableValue
from kafscale.storage.slots import PLACE, SLOTS, Slot, build_slot_claim, build_slot_release, read_slot_claim
from kafscale.storage.views import PrefixView

log = structlog.get_logger(__name__)

LOOK_EVERY_S = 1.0
SETTLE_S = 0.05
LOAD_RETRY_FIRST_MS = 200
LOAD_RETRY_MAX_MS = 5_000
REST_FIRST_MS = 1_000
REST_MAX_MS = 30_000
"""Before a slot is claimed or given away again that etcd refused, or whose record is another than the view shows."""
LOADED_TOGETHER: Final = 100
LOADED_BYTES: Final = 64 << 10
"""What is decoded in one turn of the loop, which takes some milliseconds. A larger value is alone in its turn."""
Work = Callable[[], Coroutine[Any, Any, None]]
Item = TypeVar("Item")
ALL_SLOTS = tuple(SlotId(number) for number in range(SLOTS))


class SlotSeen(NamedTuple):
    """A slot's record as the view has it."""

    slot: Slot
    revision: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing is done about a slot until then, unless the view shows another revision of its record."""

    revision: int
    until_s: float  # of the loop's clock
    backoff: Backoff


@dataclass(slots=True, eq=False)
class Held:
    """A claim of ours. `revision` is what every write under the slot compares."""

    slot_id: SlotId
    slot: Slot
    revision: int
    loaded: bool = False


def slot_table(etcd: EtcdClient, keyspace: Keyspace) -> PrefixView[SlotSeen]:
    return PrefixView(etcd, keyspace.slot_claims_prefix(), _seen)


def _seen(kv: KeyValue) -> SlotSeen:
    """A damaged record names no owner, and says nothing that a claim needs: its revision is the fence. So it is claimed
    anew, by a compare on the damaged revision. One of a newer schema has an owner, and is left alone."""
    try:
        return SlotSeen(decode_owner(kv.value), kv.mod_revision)
    except CorruptValue as error:
        log.error("slot record damaged, claimed again", key=repr(kv.key), why=str(error))
        return SlotSeen(Slot(epoch=0), kv.mod_revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What an instance sees of the cluster, and the ways to change it."""

    etcd: EtcdClient
    keyspace: Keyspace
    live: LiveView
    table: PrefixView[SlotSeen]
    committer: Committer
    me: str


class Contents(Protocol):
    """One kind of what a slot has: its groups, for example."""

    def prefix(self, slot_id: SlotId) -> bytes:
        """Of the kind's keys in the slot."""

    def load(self, held: Held, kvs: Sequence[KeyValue]) -> Iterator[None]:
        """Takes in what was read below the prefix, a turn of the loop at a time. Requests of clients come after the
        last turn of all kinds (`held.loaded`). What is loaded may act before."""

    def lose(self, slot_id: SlotId) -> None:
        """Forgets the slot, and answers NOT_COORDINATOR to waiting requests. The slot may be loaded in part, or not at
        all; there are no more turns then."""


def turns(items: Iterable[Item], bytes_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """As many of them as are decoded in one turn of the loop."""
    some: list[Item] = []
    room = LOADED_BYTES
    for item in items:
        size = bytes_of(item)
        if some and (size > room or len(some) >= LOADED_TOGETHER):
            yield some
            some, room = [], LOADED_BYTES
        some.append(item)
        room -= size
    if some:
        yield some


def bytes_of_value(kv: KeyValue) -> int:
    return len(kv.value)


class Slots:
    """See the module's law. `run` it once the views are loaded. `contents` are loaded in this order."""

    def __init__(
        self,
        world: World,
        contents: Sequence[Contents],
        begin: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._world = world
        self._contents = contents
        self._begin = begin
        self._held: dict[SlotId, Held] = {}
        self._given: dict[SlotId, int] = {}  # revisions at which slots were given away
        self._busy: set[SlotId] = set()  # a claim or a release is on its way
        self._rests: dict[SlotId, Rest] = {}  # of slots whose last claim or release changed nothing
        self._changed = asyncio.Event()
        self._taking = False
        self.lost_count = 0
        """Slots that were taken from us; not those that we gave away."""
        world.live.subscribe(self._changed.set)
        world.table.subscribe(lambda _key, _seen: self._changed.set())

    def held(self, slot_id: SlotId) -> Held | None:
        return self._held.get(slot_id)

    @property
    def is_loading(self) -> bool:
        """Some slot is ours whose contents were not read yet."""
        return not all(held.loaded for held in self._held.values())

    @property
    def held_count(self) -> int:
        return len(self._held)

    async def run(self) -> None:
        """Claims what should be ours and gives away what should not, until cancelled."""
        self._taking = True
        self._changed.clear()
        while True:
            self._look()
            await next_look(self._changed, every_s=LOOK_EVERY_S, settle_s=SETTLE_S)

    async def drain(self, timeout_s: float) -> None:
        """Give all slots away; returns when none is held, or the time is over."""
        self._taking = False
        self._changed.set()
        await give_all_away(
            lambda: len(self._held) or len(self._busy), self._look_now, self._changed.wait, timeout_s
        )

    def _look_now(self) -> None:
        self._changed.clear()
        self._look()

    def lost(self, held: Held) -> None:
        """A write compared this claim's revision and failed: another has claimed the slot."""
        if self._held.get(held.slot_id) is held:
            log.warning("slot lost", slot=held.slot_id, epoch=held.slot.epoch)
            self.lost_count += 1
            self._drop(held)

    def _drop(self, held: Held) -> None:
        del self._held[held.slot_id]
        for kind in self._contents:
            kind.lose(held.slot_id)
        self._changed.set()

    # -- who should have what -------------------------------------------------------------------

    def _look(self) -> None:
        world = self._world
        fleet = Fleet.seen(world.live, world.me, claiming=self._taking, leaving=not self._taking)
        for slot_id in ALL_SLOTS:
            if slot_id in self._busy or self._is_unreadable(slot_id):
                continue
            successor = fleet.successor(PLACE, slot_id)
            held = self._held.get(slot_id)
            seen = world.table.items.get(world.keyspace.slot_claim(slot_id))
            if held is not None and self._is_taken(held, seen):
                self.lost(held)
            elif held is not None:
                if fleet.leaving or successor != NO_NODE:
                    self._work(slot_id, seen, partial(self._release, held, successor))
            else:
                why = fleet.claimable(PLACE, slot_id, None if seen is None else seen.slot)
                if why is not None and (why is not Grounds.MINE or successor == NO_NODE):
                    self._work(slot_id, seen, partial(self._claim, slot_id, seen, why))
                elif seen is not None and self._is_stray(slot_id, seen):
                    stray = Held(slot_id, seen.slot, seen.revision)
                    self._work(slot_id, seen, partial(self._give, stray, successor))

    def _is_taken(self, held: Held, seen: SlotSeen | None) -> bool:
        """Claimed while our own answer was on its way; or the record is gone, and with it the fence of our writes."""
        known = self._world.table.revision if seen is None else seen.revision
        return known > held.revision

    def _is_unreadable(self, slot_id: SlotId) -> bool:
        """A newer version has claimed it: what we had is lost, and it is not ours to take."""
        unreadable = self._world.table.unreadable
        if not unreadable or self._world.keyspace.slot_claim(slot_id) not in unreadable:
            return False
        held = self._held.get(slot_id)
        if held is not None:
            self.lost(held)
        return True

    def _is_stray(self, slot_id: SlotId, seen: SlotSeen) -> bool:
        """Ours in etcd and not here: dropped after an error, while another became preferred. Nobody else may
        take it from a live owner."""
        return seen.slot.owner == self._world.me and seen.revision > self._given.get(slot_id, 0)

    def _work(self, slot_id: SlotId, seen: SlotSeen | None, work: Work) -> None:
        rest = self._rests.get(slot_id)
        now_s = asyncio.get_running_loop().time()
        if (
            rest is not None
            and rest.revision == (0 if seen is None else seen.revision)
            and now_s < rest.until_s
        ):
            return
        self._busy.add(slot_id)
        self._begin(self._finish(slot_id, work))

    def _changed_nothing(self, slot_id: SlotId, revision: int) -> None:
        """By a claim or a release that compared this revision. What refuses gets fewer calls, and not more."""
        before = self._rests.get(slot_id)
        backoff = (
            before.backoff if before is not None else Backoff(first_ms=REST_FIRST_MS, cap_ms=REST_MAX_MS)
        )
        until_s = asyncio.get_running_loop().time() + backoff.next_s()
        self._rests[slot_id] = Rest(revision, until_s, backoff)

    async def _finish(self, slot_id: SlotId, work: Work) -> None:
        """`work` is called here: a task that is cancelled before its first step has called nothing."""
        try:
            await work()
        finally:
            self._busy.discard(slot_id)
            self._changed.set()

    # -- changing hands -------------------------------------------------------------------------

    async def _claim(self, slot_id: SlotId, seen: SlotSeen | None, why: Grounds) -> None:
        world, over = self._world, 0 if seen is None else seen.revision
        claimed, txn = build_slot_claim(
            world.keyspace,
            slot_id,
            slot=None if seen is None else seen.slot,
            revision=over,
            me=world.me,
            why=why,
        )
        answer = await world.committer.ask(txn, key=world.keyspace.slot_claim(slot_id))
        if not isinstance(answer, Settled):
            log.error("claim refused by etcd", slot=slot_id, why=answer.reason)
            return self._changed_nothing(slot_id, over)
        try:
            revision = read_slot_claim(claimed, answer.result, answer.revision)
        except UnreadableValue:
            revision = None  # the view will show it
        if revision is None:
            return self._changed_nothing(slot_id, over)
        self._rests.pop(slot_id, None)
        held = self._held[slot_id] = Held(slot_id, claimed, revision)
        return await self._load(held)

    async def _load(self, held: Held) -> None:
        """Read after the claim: no write of an earlier owner can come after it. Other tasks run while it is decoded.

        Each kind in pages at one revision. All records of the slot are in memory for a moment, as its groups are from
        then on; pages bound the answers and not the sum.
        """
        found: list[tuple[KeyValue, ...]] = []
        backoff = Backoff(first_ms=LOAD_RETRY_FIRST_MS, cap_ms=LOAD_RETRY_MAX_MS)
        while len(found) < len(self._contents):
            prefix = self._contents[len(found)].prefix(held.slot_id)
            try:
                found.append((await self._world.etcd.prefix(prefix, page_keys=KEYS_PER_PAGE)).kvs)
            except EtcdError as error:
                log.info("slot not read", slot=held.slot_id, prefix=repr(prefix), why=str(error))
                await backoff.sleep()
            if self._held.get(held.slot_id) is not held:
                return
        for kind, kvs in zip(self._contents, found, strict=True):
            for _ in kind.load(held, kvs):
                await asyncio.sleep(0)
                if self._held.get(held.slot_id) is not held:
                    return
        held.loaded = True

    async def _release(self, held: Held, to: int) -> None:
        """Whatever the answer is, the slot is not ours any more."""
        self._drop(held)
        await self._give(held, to)

    async def _give(self, held: Held, to: int) -> None:
        handoff_to = "" if to == NO_NODE else str(to)
        world = self._world
        txn = build_slot_release(
            world.keyspace, held.slot_id, slot=held.slot, revision=held.revision, handoff_to=handoff_to
        )
        answer = await world.committer.ask(txn, key=world.keyspace.slot_claim(held.slot_id))
        if isinstance(answer, Settled):
            self._given[held.slot_id] = held.revision
        else:
            log.error("release refused by etcd", slot=held.slot_id, why=answer.reason)
            self._changed_nothing(held.slot_id, held.revision)
