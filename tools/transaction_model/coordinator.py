"""What coordinators do: they answer joins, decide, hear of ends, serve clients, and lose the slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tools.transaction_model.clients import batches_sent, begun, has_all_acked, next_transaction
from tools.transaction_model.mutations import Mutation
from tools.transaction_model.owner import without_waiting
from tools.transaction_model.search import Step
from tools.transaction_model.state import (
    ABORT,
    COMMIT,
    PRODUCERS,
    Closing,
    Config,
    Coordinator,
    Decision,
    Done,
    End,
    EndTxn,
    Outcome,
    Producer,
    Question,
    Record,
    State,
    Transaction,
    Vouched,
)

Moves = Iterator[tuple[Step, State]]


class Ended(NamedTuple):
    """The answer to an EndTxn."""

    state: State
    error: str = ""
    epoch: int = 0
    """The epoch that the client goes on with."""


class Coordinators(NamedTuple):
    config: Config
    mutation: Mutation | None

    def moves(self, state: State) -> Moves:
        for at, coordinator in enumerate(state.coordinators):
            for question in state.questions:
                after = self._answers(state, at, question)
                yield ("coordinator", coordinator.claim, "answers", question), after
            yield from self._hears(state, at)
            yield from self._times_out(state, at)
            for producer in PRODUCERS:
                yield from self._serves(state, at, producer)
            yield from self._gets_late(state, at)
        if state.slot < self.config.slot_claims:
            fresh = Coordinator(state.slot + 1, state.record)
            coordinators = (*state.coordinators[-1:], fresh)
            after = state._replace(slot=fresh.claim, coordinators=coordinators)
            yield ("coordinator", fresh.claim, "claims the slot"), after

    # -- the record ---------------------------------------------------------------------------------

    def _writes(self, state: State, at: int, record: Record) -> State | None:
        """The compare-and-swap of the record under the slot's claim; None: refused."""
        if not self._may_write(state, at):
            return None
        return state._replace(record=record).with_memory(at, record)

    def _may_write(self, state: State, at: int) -> bool:
        return is_proven(state, at) or self.mutation is Mutation.NO_SLOT_FENCE

    def _decides(
        self, state: State, at: int, outcome: Outcome, by: Transaction | None, named: int | None = None
    ) -> State | None:
        """The one write that decides: current becomes closing. `by`: whose EndTxn it is; None: a fence. `named`: the
        epoch that an InitProducerId has named, which may be repeated."""
        record = state.coordinators[at].memory
        assert record.current is not None
        bumps = self.config.version == 2 if by else self.mutation is not Mutation.FENCE_KEEPS_EPOCH
        epoch = record.epoch + 1 if bumps else record.epoch
        end = End(record.number, outcome)
        closing = Closing(end, epoch, record.current)
        after = self._writes(state, at, Record(epoch, record.number, None, closing, outcome, named))
        if after is None:
            return None
        committed = after.committed | {by} if by and outcome == COMMIT else after.committed
        decision = Decision(end, by.producer if by else None)
        return after._replace(decisions=after.decisions | {decision}, committed=committed)

    def _may_begin(self, record: Record) -> bool:
        """While one transaction closes, the next may begin only if its records have another producer epoch."""
        if record.closing is None:
            return True
        other_epoch = self.config.version == 2 or self.mutation is Mutation.OVERLAP_IN_ONE_EPOCH
        return self.config.overlap and other_epoch

    # -- between services ---------------------------------------------------------------------------

    def _answers(self, state: State, at: int, question: Question) -> State:
        """A join. What is answered from memory is answered after a read that compares the claim."""
        record = state.coordinators[at].memory
        is_inside = record.has_joined(question.partition)
        asked = state._replace(questions=state.questions - {question})
        if not is_proven(state, at):
            same = is_inside and question.epoch == record.epoch
            if self.mutation is Mutation.VERIFY_FROM_MEMORY and same:
                return self._vouches(asked, question, record._replace(closing=None))
            if not self._may_write(state, at):
                return state.without_coordinator(at)
        if question.epoch != record.epoch or not self._may_begin(record) or not (is_inside or question.add):
            return without_waiting(asked, question)
        if is_inside:
            return self._vouches(asked, question, record)
        record = record.with_joined(1 << question.partition)
        after = self._writes(asked, at, record)
        return state.without_coordinator(at) if after is None else self._vouches(after, question, record)

    def _vouches(self, state: State, question: Question, record: Record) -> State:
        ended = None
        is_awaited = record.awaits(question.partition)
        if record.closing and is_awaited and self.mutation is not Mutation.ENDED_NOT_CARRIED_OUT:
            ended = record.closing.end
        answer = Vouched(question.partition, question.leader_epoch, question.epoch, record.number, ended)
        return state._replace(answers=state.answers | {answer})

    def _hears(self, state: State, at: int) -> Moves:
        """A participant is done. The memory has it at once, the record with the next write."""
        if not is_proven(state, at):
            return
        claim, record = state.coordinators[at]
        for done in state.dones:
            after = state._replace(dones=state.dones - {done})
            if record.closing is not None and record.closing.end.number == done.number:
                after = after.with_memory(at, self._without_awaited(record, record.closing, done))
            yield ("coordinator", claim, "hears", done), after

    def _without_awaited(self, record: Record, closing: Closing, done: Done) -> Record:
        left = closing.awaited & ~(1 << done.partition)
        if self.mutation is Mutation.FORGET_CLOSING:
            left = 0
        return record._replace(closing=closing._replace(awaited=left) if left else None)

    def _times_out(self, state: State, at: int) -> Moves:
        claim, record = state.coordinators[at]
        is_free = record.closing is None or self.mutation is Mutation.CLOSE_TWICE
        if not state.timeouts or record.current is None or not is_free:
            return
        after = self._decides(state, at, ABORT, None)
        if after is None:
            yield ("coordinator", claim, "learns that it lost the slot"), state.without_coordinator(at)
        else:
            step = ("coordinator", claim, "aborts", record.number, "after its timeout")
            yield step, after._replace(timeouts=state.timeouts - 1)

    # -- clients ------------------------------------------------------------------------------------

    def _serves(self, state: State, at: int, producer: Producer) -> Moves:
        client = state.client(producer)
        if client.phase == "adding":
            yield from self._adds(state, at, producer)
        elif client.phase == "ending":
            yield from self._serves_end_txn(state, at, producer)
        elif client.phase == "init":
            yield from self._begins_epoch(state, at, producer)
        elif client.phase == "raising":
            yield from self._begins_epoch(state, at, producer, named=client.epoch)

    def _adds(self, state: State, at: int, producer: Producer) -> Moves:
        """AddPartitionsToTxn. A producer that is fenced stops here."""
        claim, record = state.coordinators[at]
        client = state.client(producer)
        fits = client.epoch == record.epoch and self._may_begin(record)
        if not is_proven(state, at) or not fits:
            return
        partitions = self.config.partitions_of(Transaction(producer, client.turn))
        is_inside = record.current is not None and record.current & partitions == partitions
        after = state if is_inside else self._writes(state, at, record.with_joined(partitions))
        assert after is not None
        yield ("coordinator", claim, "adds partitions of", producer, "and the answer is lost"), after
        step = ("coordinator", claim, "adds partitions of", producer)
        yield step, batches_sent(after, self.config, producer)

    def _serves_end_txn(self, state: State, at: int, producer: Producer) -> Moves:
        client = state.client(producer)
        transaction = Transaction(producer, client.turn)
        outcomes: list[Outcome] = [COMMIT] if has_all_acked(state, self.config, transaction) else []
        if self.config.aborts and producer == "A":
            outcomes.append(ABORT)
        for outcome in outcomes:
            ended = self._ends(state, at, transaction, client.epoch, outcome)
            if ended is None:
                continue
            step = ("coordinator", state.coordinators[at].claim, "ends", transaction, outcome, ended.error)
            if ended.state is not state:
                yield (*step, "and the answer is lost"), ended.state
            if ended.error:
                yield step, ended.state.with_client(producer, client._replace(phase="over"))
                continue
            following = next_transaction(ended.state, self.config, transaction, ended.epoch)
            if following.phase == "raising" and self.mutation is Mutation.SAME_EPOCH_AFTER_ABORT:
                following = begun(self.config, following.turn, ended.epoch)
            after = ended.state.with_client(producer, following)
            if self.config.version == 2 or self.config.late_ends:
                began = ended.state.record.number if self.config.version == 1 else None
                copy = EndTxn(transaction, client.epoch, outcome, began)
                after = after._replace(late=after.late | {copy})
            yield step, after

    def _gets_late(self, state: State, at: int) -> Moves:
        claim, record = state.coordinators[at]
        for request in state.late:
            ended: Ended | None = Ended(state)
            if not self._is_stale(request, record):
                ended = self._ends(state, at, request.transaction, request.epoch, request.outcome)
            if ended is not None:
                after = ended.state._replace(late=ended.state.late - {request})
                yield ("coordinator", claim, "gets a late", request), after

    def _is_stale(self, request: EndTxn, record: Record) -> bool:
        """Whether a request is older than the transaction under way: a front door had it before that one began."""
        if request.began is None or record.current is None or self.mutation is Mutation.OLD_END_TXN:
            return False
        return request.began < record.number

    def _ends(self, state: State, at: int, by: Transaction, epoch: int, outcome: Outcome) -> Ended | None:
        """EndTxn; None: it waits, or this coordinator has lost the slot."""
        record = state.coordinators[at].memory
        if not self._may_write(state, at):
            return None
        bumps = self.config.version == 2
        is_same = epoch == record.epoch
        if record.current is not None:
            if not is_same:
                return Ended(state, "PRODUCER_FENCED")
            if record.closing is not None and self.mutation is not Mutation.CLOSE_TWICE:
                return None
            after = self._decides(state, at, outcome, by)
            assert after is not None
            return Ended(after, epoch=record.epoch + 1 if bumps else record.epoch)
        is_repeat = epoch + 1 == record.epoch if bumps else is_same
        if is_repeat and record.last == outcome:
            return Ended(state, epoch=record.epoch)
        if bumps and is_same and outcome == ABORT:
            return self._aborts_nothing(state, at)
        return Ended(state, "INVALID_TXN_STATE" if is_same or is_repeat else "PRODUCER_FENCED")

    def _aborts_nothing(self, state: State, at: int) -> Ended:
        """Nothing has joined, so nothing gets a marker. The epoch rises: batches on their way must not join later."""
        record = state.coordinators[at].memory
        keeps = self.mutation is Mutation.ABORT_OF_NOTHING_KEEPS_EPOCH
        epoch = record.epoch if keeps else record.epoch + 1
        after = self._writes(state, at, record._replace(epoch=epoch, last=ABORT, last_epoch=None))
        assert after is not None
        return Ended(after, epoch=epoch)

    def _begins_epoch(self, state: State, at: int, producer: Producer, named: int | None = None) -> Moves:
        """InitProducerId. It waits for what closes, aborts what is under way, and raises the epoch. `named`: the epoch
        that the producer has; None: a new producer, which takes the id over."""
        claim, record = state.coordinators[at]
        if not self._may_write(state, at):
            return
        if self._is_fenced(record, named):
            over = state.client(producer)._replace(phase="over")
            yield ("coordinator", claim, "fences", producer), state.with_client(producer, over)
            return
        if record.closing is not None:
            return
        step = ("coordinator", claim, "raises the epoch for", producer)
        if named is not None and named == record.last_epoch:
            yield (*step, "which repeats"), with_epoch(state, self.config, producer, record.epoch)
            return
        if record.current is not None and self.mutation is not Mutation.INIT_DROPS:
            aborted = self._decides(state, at, ABORT, None, named)
            assert aborted is not None
            yield ("coordinator", claim, "aborts", record.number, "for", producer), aborted
            return
        epoch = record.epoch if self.mutation is Mutation.INIT_KEEPS_EPOCH else record.epoch + 1
        after = self._writes(state, at, Record(epoch, record.number, last_epoch=named))
        assert after is not None
        yield step, with_epoch(after, self.config, producer, epoch)
        if named is not None:
            yield (*step, "and the answer is lost"), after
        elif after.losses:
            yield (*step, "and the answer is lost"), after._replace(losses=after.losses - 1)

    def _is_fenced(self, record: Record, named: int | None) -> bool:
        if named is None or self.mutation is Mutation.RAISED_BY_ANY_EPOCH:
            return False
        return named not in (record.epoch, record.last_epoch)


def with_epoch(state: State, config: Config, producer: Producer, epoch: int) -> State:
    """The producer has the answer to its InitProducerId."""
    client = state.client(producer)
    if client.phase == "raising":
        return state.with_client(producer, begun(config, client.turn, epoch))
    return state.with_client(producer, begun(config, 1, epoch))._replace(taken_over=True)


def is_proven(state: State, at: int) -> bool:
    """Whether a read that compares the slot's claim succeeds."""
    return state.coordinators[at].claim == state.slot
