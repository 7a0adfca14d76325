"""The offsets that transactions have pending in the groups of this instance, and the ways to change them.

The laws (those of `pending`, and):

- What is pending in a slot is in memory from the load on, and lost with the slot. Only this instance writes it, and
  each write compares the claim and the revision of the key. So memory says what etcd has, except for a write that is
  not answered yet. A put or an end needs no read before it, and an OffsetFetch none beside that of the committed
  offsets.
- Every change waits in the line of its group. So an end comes after all that was put before it.
- An end is confirmed after its last change. If nothing was pending, it is confirmed after a read that compares the
  claim: this memory may be that of an instance that has lost the slot.
- A question whether a group belongs to a transaction is registered before it is sent, until its put is in line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import structlog
from kafscale.coordinator.groups import pending as rules
from kafscale.coordinator.groups.line import Lines, Step
from kafscale.coordinator.groups.pending import Change, Pending, Place, Unstable
from kafscale.coordinator.slots import Held, bytes_of_value, turns
from kafscale.coordinator.transactions.model import ProducerEpoch
from kafscale.coordinator.transactions.proofs import Proofs
from kafscale.rpc.v1.transactions_pb2 import TransactionEnd
from kafscale.runtime.committer import Settled
from kafscale.storage.etcd.client import KeyValue
from kafscale.storage.groups import CommittedOffset
from kafscale.storage.keys import Keyspace, PartitionKey, SlotId, TopicId, UnknownKey
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.topics import TopicsView
from kafscale.wire.errors import ErrorCode

log = structlog.get_logger(__name__)

ChangeOf = Callable[[Pending], Change | ErrorCode | None]
"""The next change of a place. None: there is none."""


class TransactionOffsets:
    """See the module's laws. One kind of the contents of slots."""

    def __init__(self, keyspace: Keyspace, lines: Lines, proofs: Proofs, topics: TopicsView) -> None:
        self._keyspace = keyspace
        self._lines = lines
        self._proofs = proofs
        self._topics = topics
        self._held: dict[SlotId, Held] = {}
        self._groups: dict[Held, dict[str, dict[int, Pending]]] = {}

    # -- slots come and go -----------------------------------------------------------------------

    def prefix(self, slot_id: SlotId) -> bytes:
        return self._keyspace.pendings_prefix(slot_id)

    def load(self, held: Held, kvs: Sequence[KeyValue]) -> Iterator[None]:
        self._held[held.slot_id] = held
        self._groups[held] = {}
        for some in turns(kvs, bytes_of_value):
            for kv in some:
                self._load(held, kv)
            yield

    def _load(self, held: Held, kv: KeyValue) -> None:
        try:
            _, group, producer_id = self._keyspace.parse_pending(kv.key)
        except (UnknownKey, ValueError) as error:
            log.error("unknown key of pending offsets", key=repr(kv.key), why=str(error))
            return
        place = self._place(held, group, producer_id)
        try:
            self.keep(held, rules.loaded(place, kv))
        except UnreadableValue as error:
            log.error("pending offsets unreadable", key=repr(kv.key), why=str(error))
            self.keep(held, rules.unreadable(place, kv))

    def lose(self, slot_id: SlotId) -> None:
        held = self._held.pop(slot_id, None)
        if held is not None:
            del self._groups[held]

    # -- readers ---------------------------------------------------------------------------------

    def has_pending(self, held: Held, group: str) -> bool:
        return any(each.revision for each in self._of_group(held, group))

    def unstable(self, held: Held, group: str) -> Unstable:
        """To be asked before the committed offsets are read: that read compares the claim."""
        return rules.unstable(self._of_group(held, group))

    @property
    def count(self) -> int:
        """Offsets that are pending, in all slots."""
        return sum(0 if each.value is None else len(each.value.offsets) for each in self._all())

    @property
    def unreadable_count(self) -> int:
        """Values, in all slots."""
        return sum(each.unreadable for each in self._all())

    def _all(self) -> Iterator[Pending]:
        for groups in self._groups.values():
            for places in groups.values():
                yield from places.values()

    def _of_group(self, held: Held, group: str) -> Collection[Pending]:
        return self._groups.get(held, {}).get(group, {}).values()

    def _place(self, held: Held, group: str, producer_id: int) -> Place:
        return Place(
            keyspace=self._keyspace,
            slot_id=held.slot_id,
            claim=held.revision,
            group=group,
            producer_id=producer_id,
        )

    def of(self, held: Held, place: Place) -> Pending | None:
        """None: the slot is lost."""
        groups = self._groups.get(held)
        if groups is None:
            return None
        return groups.get(place.group, {}).get(place.producer_id, Pending(place=place))

    def keep(self, held: Held, pending: Pending) -> None:
        """A place with nothing in it takes no memory."""
        group, producer_id = pending.place.group, pending.place.producer_id
        groups = self._groups[held]
        if pending.revision or pending.questions:
            groups.setdefault(group, {})[producer_id] = pending
            return
        places = groups.get(group, {})
        places.pop(producer_id, None)
        if not places:
            groups.pop(group, None)

    # -- questions -------------------------------------------------------------------------------

    def begin_question(self, held: Held, group: str, producer_id: int) -> None:
        """Before the question is sent. `end_question` follows in any case."""
        self._note(held, group, producer_id, rules.with_question)

    def end_question(self, held: Held, group: str, producer_id: int) -> None:
        """The put is in line, or there will be none."""
        self._note(held, group, producer_id, rules.without_question)

    def _note(self, held: Held, group: str, producer_id: int, noted: Callable[[Pending], Pending]) -> None:
        pending = self.of(held, self._place(held, group, producer_id))
        if pending is not None:
            self.keep(held, noted(pending))

    # -- changes ---------------------------------------------------------------------------------

    def put(
        self,
        held: Held,
        group: str,
        producer: ProducerEpoch,
        number: int,
        offsets: Mapping[PartitionKey, CommittedOffset],
    ) -> asyncio.Future[ErrorCode]:
        """In line when this returns. NONE after the write, or an error of `pending.put`."""
        place = self._place(held, group, producer.producer_id)
        now = self.of(held, place)
        if now is not None and number <= now.crossed:  # the question ends before the put has its turn
            answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
            answer.set_result(ErrorCode.CONCURRENT_TRANSACTIONS)
            return answer
        turn = _Turn(
            self,
            held,
            place,
            lambda pending: rules.put(pending, producer.epoch, number, offsets),
            size=len(offsets),
            is_once=True,
        )
        return self._lines.take(held, group, turn)

    async def end(self, held: Held, group: str, ended: TransactionEnd) -> bool:
        """Carries out the end of a transaction. Whether it is confirmed: True is final."""
        turn, answer = await self._end_in_line(held, group, ended)
        if await answer is not ErrorCode.NONE:
            return False
        return turn.made_any or await self._proofs.proven(held) is ErrorCode.NONE

    async def end_first(self, held: Held, group: str, ended: TransactionEnd) -> None:
        """The end that came with the answer to a question: in line when this returns, in front of the put."""
        await self._end_in_line(held, group, ended)

    async def _end_in_line(
        self, held: Held, group: str, ended: TransactionEnd
    ) -> tuple[_Turn, asyncio.Future[ErrorCode]]:
        producer_id, number, commit = ended.producer_id, ended.number, ended.commit
        self._note(held, group, producer_id, lambda pending: rules.with_end(pending, number))
        deleted = await self._deleted(held, group, producer_id) if commit else frozenset[TopicId]()
        turn = _Turn(
            self,
            held,
            self._place(held, group, producer_id),
            lambda pending: rules.end(pending, number, commit=commit, deleted=deleted),
        )
        return turn, self._lines.take(held, group, turn)

    def delete(
        self, held: Held, group: str, where: Collection[PartitionKey]
    ) -> list[asyncio.Future[ErrorCode]]:
        """OffsetDelete. In line when this returns."""
        return self._each(held, group, lambda pending: rules.without(pending, where))

    async def delete_all(self, held: Held, group: str) -> list[asyncio.Future[ErrorCode]]:
        """DeleteGroups; also what cannot be read. In line when this returns.

        The caller holds the order lock, so no put comes while those that are in line are waited for.
        """
        in_line = self._lines.settled(held, group) if held in self._groups else None
        if in_line is not None:
            await in_line
        return self._each(held, group, rules.dropped, takes_unreadable=True)

    def _each(
        self, held: Held, group: str, change_of: ChangeOf, *, takes_unreadable: bool = False
    ) -> list[asyncio.Future[ErrorCode]]:
        turns = [
            _Turn(self, held, pending.place, change_of, takes_unreadable=takes_unreadable)
            for pending in self._of_group(held, group)
        ]
        return [self._lines.take(held, group, turn) for turn in turns]

    async def _deleted(self, held: Held, group: str, producer_id: int) -> frozenset[TopicId]:
        """The topics of pending offsets that do not exist any more. While a topic's record cannot be read, none."""
        pending = self.of(held, self._place(held, group, producer_id))
        if pending is None or pending.value is None:
            return frozenset()
        found = {each.topic_id for each in pending.value.offsets}
        if all(self._topics.by_id(each) is not None for each in found):
            return frozenset()
        if not await self._topics.confirmed() or self._topics.damaged():
            return frozenset()
        return frozenset(each for each in found if self._topics.by_id(each) is None)


class _Turn:
    """Changes of one place, until there are no more. `is_once`: one change."""

    def __init__(
        self,
        offsets: TransactionOffsets,
        held: Held,
        place: Place,
        change_of: ChangeOf,
        *,
        size: int = 1,
        is_once: bool = False,
        takes_unreadable: bool = False,
    ) -> None:
        self._offsets = offsets
        self._held = held
        self._place = place
        self._change_of = change_of
        self._is_once = is_once
        self._takes_unreadable = takes_unreadable
        self._change: Change | None = None
        self.key = place.key
        self.size = size
        self.made_any = False

    def step(self) -> Step | ErrorCode:
        if self.made_any and self._is_once:
            return ErrorCode.NONE
        pending = self._offsets.of(self._held, self._place)
        if pending is None:
            return ErrorCode.NOT_COORDINATOR
        if pending.unreadable and not self._takes_unreadable:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        change = self._change_of(pending)
        if change is None:
            return ErrorCode.NONE
        if isinstance(change, ErrorCode):
            return change
        self._change = change
        return Step(change.txn, frozenset(map(self._place.committed, change.where)))

    def made(self, settled: Settled) -> bool:
        assert self._change is not None, "it is the answer to a step"
        pending = self._offsets.of(self._held, self._place)
        if pending is None:  # the slot was given away meanwhile; what was written was written under the claim
            self.made_any |= settled.result.succeeded
            return settled.result.succeeded
        after = rules.after_change(
            pending, self._change, settled.result, settled.revision, ambiguous=settled.ambiguous
        )
        if after is None:
            return False
        self._offsets.keep(self._held, after)
        self.made_any = True
        return True
