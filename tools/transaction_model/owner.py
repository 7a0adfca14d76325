"""What owners of partitions do: they append, ask, hear answers and ends, commit, and lose the partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tools.transaction_model.mutations import Mutation
from tools.transaction_model.search import Step
from tools.transaction_model.state import (
    COMMIT,
    PARTITIONS,
    Batch,
    Config,
    Data,
    Done,
    End,
    Head,
    Joined,
    Marker,
    Opened,
    Owner,
    Question,
    State,
    Transaction,
    Vouched,
    replaced,
)

Moves = Iterator[tuple[Step, State]]


class Owners(NamedTuple):
    config: Config
    mutation: Mutation | None

    def moves(self, state: State) -> Moves:
        for partition in PARTITIONS:
            for at, owner in enumerate(state.owners[partition]):
                yield from self._appends(state, partition, at)
                yield from self._hears(state, partition, at)
                yield from self._is_sent_ends(state, partition, at)
                least = 0 if owner.proofs else 1
                for count in range(least, len(owner.assigned) + 1):
                    step = ("owner", owner.leader_epoch, "of", partition, "commits", count)
                    yield step, self.committed(state, partition, at, count)
            leader_epoch = state.heads[partition].leader_epoch
            if leader_epoch < self.config.claims[partition]:
                yield ("owner", leader_epoch + 1, "claims", partition), self.claimed(state, partition)

    # -- batches and joins --------------------------------------------------------------------------

    def _appends(self, state: State, partition: int, at: int) -> Moves:
        owner, head = state.owners[partition][at], state.heads[partition]
        for batch in state.batches:
            if batch.partition != partition or batch in owner.waiting or batch.epoch < owner.newest_epoch:
                continue
            if has_appended(head, owner, batch.transaction):
                continue
            step = ("owner", owner.leader_epoch, "gets", batch)
            number = number_for(owner, batch.epoch)
            if number is not None:
                yield step, state.with_owner(partition, at, assigned(owner, batch, number))
                continue
            after = state
            asked = owner.asked
            if batch.epoch not in asked:
                asked = (*asked, batch.epoch)
                adds = self.config.version == 2
                question = Question(partition, owner.leader_epoch, batch.epoch, adds)
                after = state._replace(questions=state.questions | {question})
            waits = owner._replace(waiting=(*owner.waiting, batch), asked=asked)
            yield step, after.with_owner(partition, at, waits)

    def _hears(self, state: State, partition: int, at: int) -> Moves:
        owner = state.owners[partition][at]
        for answer in state.answers:
            if answer.partition == partition and answer.leader_epoch == owner.leader_epoch:
                after = state._replace(answers=state.answers - {answer})
                yield ("owner hears", answer), after.with_owner(partition, at, self._joined(owner, answer))

    def _joined(self, owner: Owner, answer: Vouched) -> Owner:
        if answer.ended is not None:
            if owner.open is not None and owner.open.number == answer.ended.number:
                owner = marked(owner, answer.ended)
            owner = owner._replace(crossed=max(owner.crossed, answer.ended.number))
        mine = [batch for batch in owner.waiting if batch.epoch == answer.epoch]
        has_crossed = answer.number <= owner.crossed and self.mutation is not Mutation.NO_GUARD
        owner = unasked(owner, answer.epoch)
        is_other_open = owner.open is not None and owner.open.number != answer.number
        if self.mutation is Mutation.ENDED_NOT_CARRIED_OUT:
            is_other_open = False
        if has_crossed or is_other_open or answer.epoch < owner.newest_epoch:
            return owner
        owner = owner._replace(joined=Joined(answer.epoch, answer.number))
        for batch in mine:
            owner = assigned(owner, batch, answer.number)
        return owner

    # -- ends ---------------------------------------------------------------------------------------

    def _is_sent_ends(self, state: State, partition: int, at: int) -> Moves:
        owner = state.owners[partition][at]
        for end in self._ends_on_their_way(state, partition, owner):
            ended = self.ended(owner, end)
            after = state.with_owner(partition, at, ended)
            if self._is_done_at_once(owner, end):
                after = after._replace(dones=after.dones | {Done(partition, end.number)})
            if after != state:
                yield ("owner", owner.leader_epoch, "of", partition, "gets", end), after

    def _ends_on_their_way(self, state: State, partition: int, owner: Owner) -> set[End]:
        """What any coordinator believes to be closing here, and very late ends as well, while they could matter."""
        records = [coordinator.memory for coordinator in state.coordinators]
        found = {
            record.closing.end
            for record in (*records, state.record)
            if record.closing is not None and record.awaits(partition)
        }
        if self.mutation is Mutation.END_BEFORE_DECISION:
            found |= {End(record.number, COMMIT) for record in records if record.has_joined(partition)}
        if owner.open is not None or owner.asked or owner.joined is not None:
            log = state.heads[partition].log
            numbers = {entry.number for entry in log if isinstance(entry, Marker)}
            found |= {decision.end for decision in state.decisions if decision.end.number in numbers}
        return found

    def ended(self, owner: Owner, end: End) -> Owner:
        """The owner once it has an end: with a marker assigned, or with a proof to give."""
        if owner.asked:
            owner = owner._replace(crossed=max(owner.crossed, end.number))
        if self._is_open(owner, end):
            return marked(owner, end)
        if self._awaits_marker(owner, end):
            return owner
        if owner.joined is not None and owner.joined.number <= end.number:
            owner = owner._replace(joined=None)
        if self._is_believed(owner) or end.number in owner.proofs:
            return owner
        return owner._replace(proofs=(*owner.proofs, end.number))

    def _is_done_at_once(self, owner: Owner, end: End) -> bool:
        """Only mutations answer DONE before a transaction of the owner was applied."""
        if self._is_open(owner, end):
            return self.mutation is Mutation.ACK_ASSIGNED
        return self._is_believed(owner) and not self._awaits_marker(owner, end)

    def _is_open(self, owner: Owner, end: End) -> bool:
        if owner.open is None:
            return False
        return owner.open.number == end.number or self.mutation is Mutation.END_BY_PRODUCER

    def _awaits_marker(self, owner: Owner, end: End) -> bool:
        if self.mutation is Mutation.PROOF_BESIDE_MARKER:
            return False
        return any(isinstance(entry, Marker) and entry.number == end.number for entry in owner.assigned)

    def _is_believed(self, owner: Owner) -> bool:
        """Whether a mutation takes what the owner sees for the truth."""
        stale = self.mutation is Mutation.STALE_PROOF and owner.unheard
        return stale or self.mutation is Mutation.UNPROVEN_END

    # -- the head -----------------------------------------------------------------------------------

    def committed(self, state: State, partition: int, at: int, count: int) -> State:
        """The one transaction on the head, with the first `count` of what is assigned: what bundles have stored. If it
        is refused, this owner is over. If it is applied, it proves the ends of nothing, whatever it carries."""
        owner, head = state.owners[partition][at], state.heads[partition]
        if head.leader_epoch != owner.leader_epoch:
            return state.without_owner(partition, at)
        opened = head.open
        dones = {Done(partition, number) for number in owner.proofs}
        acked = set()
        taken = owner.assigned[:count]
        for offset, entry in enumerate(taken, len(head.log)):
            if isinstance(entry, Data):
                acked.add((entry.transaction, partition))
                opened = opened or Opened(entry.epoch, entry.number, offset)
            else:
                opened = None
                dones.add(Done(partition, entry.number))
        moved = Head(head.leader_epoch, head.log + taken, opened)
        after = state._replace(
            heads=replaced(state.heads, partition, moved),
            dones=state.dones | dones,
            acked=state.acked | acked,
        )
        unheard = self.mutation is Mutation.STALE_PROOF
        left = owner._replace(assigned=owner.assigned[count:], proofs=(), unheard=unheard)
        return after.with_owner(partition, at, left)

    def claimed(self, state: State, partition: int) -> State:
        head = state.heads[partition]
        head = head._replace(leader_epoch=head.leader_epoch + 1)
        opened = None if head.open is None else Joined(head.open.epoch, head.open.number)
        newest = max((entry.epoch for entry in head.log if isinstance(entry, Data)), default=-1)
        if self.mutation is Mutation.FORGET_OPEN:
            opened, head = None, head._replace(open=None)
        fresh = Owner(head.leader_epoch, joined=opened, open=opened, newest_epoch=newest)
        owners = (*state.owners[partition][-1:], fresh)
        return state._replace(
            heads=replaced(state.heads, partition, head), owners=replaced(state.owners, partition, owners)
        )


def has_appended(head: Head, owner: Owner, transaction: Transaction) -> bool:
    """Whether the batch of this transaction is a repeat of one that the owner knows."""
    entries = (*head.log, *owner.assigned)
    return any(isinstance(entry, Data) and entry.transaction == transaction for entry in entries)


def number_for(owner: Owner, epoch: int) -> int | None:
    """The number under which a batch of this epoch is appended; None: the coordinator must be asked."""
    joined = owner.joined
    if joined is None or joined.epoch != epoch or owner.open not in (None, joined):
        return None
    return joined.number


def assigned(owner: Owner, batch: Batch, number: int) -> Owner:
    entry = Data(batch.transaction, batch.epoch, number)
    return owner._replace(
        assigned=(*owner.assigned, entry),
        open=Joined(batch.epoch, number),
        newest_epoch=max(owner.newest_epoch, batch.epoch),
    )


def marked(owner: Owner, end: End) -> Owner:
    return owner._replace(assigned=(*owner.assigned, Marker(*end)), open=None, joined=None)


def unasked(owner: Owner, epoch: int) -> Owner:
    """The question is not out any more, and its batches do not wait."""
    asked = tuple(other for other in owner.asked if other != epoch)
    waiting = tuple(batch for batch in owner.waiting if batch.epoch != epoch)
    return owner._replace(waiting=waiting, asked=asked, crossed=owner.crossed if asked else 0)


def without_waiting(state: State, question: Question) -> State:
    """The join was refused: the producer gets an error, and its batches may come again."""
    for at, owner in enumerate(state.owners[question.partition]):
        if owner.leader_epoch == question.leader_epoch:
            return state.with_owner(question.partition, at, unasked(owner, question.epoch))
    return state
