"""An id over time: parks, proofs, timeouts, ends that are confirmed one by one, and what a restart keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafscale.coordinator.transactions.machine import next_deadline
from kafscale.coordinator.transactions.model import (
    LAST_EPOCH,
    Abandon,
    JoinAnswer,
    Phase,
    ProducerAnswer,
    ProducerEpoch,
    Rules,
    Token,
    phase_of,
)
from kafscale.storage.transactions import NO_EPOCH, Outcome, Participant, Participants, TransactionState
from kafscale.wire.errors import ErrorCode
from transaction_desk import P0, P1, TIMEOUT_MS, Desk, at_epoch, producer_in, started

DAY_MS = 24 * 3_600_000


def state_of(desk: Desk) -> TransactionState:
    state = desk.machine.state
    assert state is not None
    return state


def number_of(desk: Desk, token: Token) -> int:
    answer = desk.answers[token]
    assert isinstance(answer, JoinAnswer)
    assert not answer.error
    return answer.number


def ongoing(desk: Desk, *some: Participant) -> ProducerEpoch:
    producer = started(desk)
    desk.join(producer, *(some or (P0,)))
    return producer


# --- a transaction's life -------------------------------------------------------------------------


def test_a_tv2_transaction_from_its_first_join_to_its_last_end() -> None:
    desk = Desk()
    producer = started(desk)
    assert number_of(desk, desk.join(producer, P0)) == 1
    assert number_of(desk, desk.join(producer, P1, "group")) == 1
    after = producer_in(desk, desk.end(producer, commit=True))
    assert after == ProducerEpoch(producer.producer_id, 1)
    closing = state_of(desk).closing
    assert closing is not None
    assert closing.awaited == Participants.of(P0, P1, "group")
    assert phase_of(state_of(desk)) is Phase.PREPARE_COMMIT
    desk.ended(P0, "group")
    desk.ended(P1)
    assert desk.machine.closing is None
    assert number_of(desk, desk.join(after, P0)) == 2
    assert state_of(desk).closing is None


def test_a_tv1_transaction_keeps_the_epoch() -> None:
    desk = Desk()
    producer = ongoing(desk)
    assert producer_in(desk, desk.end(producer, commit=False, tv2=False)) == producer
    closing = state_of(desk).closing
    assert closing is not None
    assert (closing.marker_epoch, closing.bumped, closing.commit) == (0, False, False)
    desk.ended(P0)
    assert producer_in(desk, desk.end(producer, commit=False, tv2=False)) == producer
    assert number_of(desk, desk.join(producer, P0)) == 2


def test_an_abort_of_nothing_may_be_repeated() -> None:
    desk = Desk()
    producer = started(desk)
    after = producer_in(desk, desk.end(producer, commit=False))
    assert after.epoch == 1
    assert producer_in(desk, desk.end(producer, commit=False)) == after
    assert state_of(desk).closing is None
    assert phase_of(state_of(desk)) is Phase.COMPLETE_ABORT


def test_a_join_of_nothing_begins_no_transaction() -> None:
    desk = Desk()
    producer = started(desk)
    desk.join(producer)
    assert phase_of(state_of(desk)) is Phase.EMPTY


@pytest.mark.parametrize("nothing", [True, False])
def test_the_transaction_after_the_last_epoch_has_a_new_producer_id(nothing: bool) -> None:
    desk = Desk()
    started(desk)
    producer = at_epoch(desk, LAST_EPOCH)
    if not nothing:
        desk.join(producer, P0)
    token = desk.end(producer, commit=False)
    fresh = ProducerEpoch(desk.ids, 0)
    assert producer_in(desk, token) == fresh
    closing = state_of(desk).closing
    if nothing:
        assert closing is None
    else:
        assert closing is not None
        assert (closing.producer_id, closing.marker_epoch) == (producer.producer_id, LAST_EPOCH + 1)
    assert producer_in(desk, desk.end(producer, commit=False)) == fresh
    desk.ended(P0, number=1, producer_id=producer.producer_id)
    assert producer_in(desk, desk.init(producer)) == fresh


def test_a_producer_id_that_is_over_may_not_abort_its_successor() -> None:
    """Kafka's check accepts (previous id, last epoch) from anybody."""
    desk = Desk()
    started(desk)
    old = at_epoch(desk, LAST_EPOCH)
    successor = producer_in(desk, desk.init())
    desk.join(successor, P0)
    assert desk.answers[desk.init(old)].error is ErrorCode.PRODUCER_FENCED
    assert desk.answers[desk.end(old, commit=True)].error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert phase_of(state_of(desk)) is Phase.ONGOING


def test_a_fenced_tv2_producer_never_learns_the_epoch_of_its_tv1_successor() -> None:
    desk = Desk()
    fenced = started(desk)
    successor = producer_in(desk, desk.init())
    desk.join(successor, P0)
    desk.end(successor, commit=True, tv2=False)
    assert successor.epoch == fenced.epoch + 1
    assert desk.answers[desk.end(fenced, commit=True)].error is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("restarts", [True, False])
def test_a_tv1_end_txn_decides_no_transaction_that_is_younger(restarts: bool) -> None:
    """A late copy of the EndTxn before; or the coordinator does not know what it was."""
    desk = Desk()
    producer = ongoing(desk)
    if restarts:
        desk.restart()
    desk.wait(100)
    late = desk.end(producer, commit=True, tv2=False, age_ms=101)
    assert desk.answers[late].error is ErrorCode.NOT_COORDINATOR
    assert phase_of(state_of(desk)) is Phase.ONGOING
    assert producer_in(desk, desk.end(producer, commit=True, tv2=False, age_ms=100)) == producer


def test_a_late_copy_of_an_end_txn_that_waits_decides_nothing_either() -> None:
    desk = Desk()
    producer = ongoing(desk)
    after = producer_in(desk, desk.end(producer, commit=True))
    desk.join(after, P1)
    desk.wait(10)
    token = desk.end(after, commit=True, tv2=False, age_ms=11)
    assert desk.answers[token].error is ErrorCode.NOT_COORDINATOR


def test_a_tv2_end_txn_may_be_older_because_it_names_its_transaction() -> None:
    desk = Desk()
    producer = ongoing(desk)
    assert producer_in(desk, desk.end(producer, commit=True, age_ms=4_000)).epoch == 1


def test_a_join_says_when_the_transaction_began() -> None:
    desk = Desk()
    producer = started(desk)
    began_ms = desk.now.mono_ms
    for _ in range(2):
        answer = desk.answers[desk.join(producer, P0)]
        assert isinstance(answer, JoinAnswer)
        assert answer.began_ms == began_ms
        desk.wait(70)
    desk.restart()
    answer = desk.answers[desk.join(producer, P0)]
    assert isinstance(answer, JoinAnswer)
    assert answer.began_ms == desk.now.mono_ms


# --- confirmed ends -------------------------------------------------------------------------------


def test_confirmed_ends_are_written_after_a_second_at_the_latest() -> None:
    desk = Desk()
    producer = ongoing(desk, P0, P1)
    desk.end(producer, commit=True)
    writes = desk.writes
    desk.ended(P0)
    desk.wait(999)
    desk.ended(P1)
    assert desk.writes == writes
    assert state_of(desk).closing is not None
    desk.wait(1)
    assert desk.writes == writes + 1
    assert state_of(desk).closing is None


def test_confirmed_ends_are_written_with_the_next_write() -> None:
    desk = Desk()
    producer = ongoing(desk, P0, P1)
    after = producer_in(desk, desk.end(producer, commit=True))
    desk.ended(P0)
    writes = desk.writes
    desk.join(after, P1)
    closing = state_of(desk).closing
    assert desk.writes == writes + 1
    assert closing is not None
    assert closing.awaited == Participants.of(P1)


def test_ends_that_were_not_written_are_awaited_again_after_a_restart() -> None:
    desk = Desk()
    producer = ongoing(desk, P0, P1)
    desk.end(producer, commit=True)
    desk.ended(P0)
    desk.restart()
    closing = desk.machine.closing
    assert closing is not None
    assert closing.awaited == Participants.of(P0, P1)
    assert closing.coordinator_epoch == desk.machine.coordinator_epoch - 1
    desk.ended(P0, P1)
    desk.ended(P0, P1)
    assert desk.machine.closing is None


@pytest.mark.parametrize(("number", "producer_id"), [(1, 4), (2, None)])
def test_the_end_of_another_transaction_confirms_nothing(number: int, producer_id: int | None) -> None:
    desk = Desk()
    producer = ongoing(desk)
    desk.end(producer, commit=True)
    desk.ended(P0, number=number, producer_id=producer_id)
    desk.ended(P1)
    assert desk.machine.closing is not None


# --- parks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "park_ms"), [("init", 1_000), ("join", 200), ("end", 500)])
def test_a_park_ends_with_ask_again(what: str, park_ms: int) -> None:
    desk = Desk()
    producer = ongoing(desk)
    after = producer_in(desk, desk.end(producer, commit=True))
    if what == "init":
        token = desk.init()
    elif what == "join":
        desk, after = closing_in_one_epoch()
        token = desk.join(after, P0)
    else:
        desk.join(after, P0)
        token = desk.end(after, commit=True)
    desk.wait(park_ms - 1)
    assert token in desk.open
    desk.wait(1)
    assert desk.answers[token].error is ErrorCode.CONCURRENT_TRANSACTIONS


def closing_in_one_epoch() -> tuple[Desk, ProducerEpoch]:
    """The next transaction of a TV1 producer waits until the one before has ended."""
    desk = Desk()
    producer = ongoing(desk)
    return desk, producer_in(desk, desk.end(producer, commit=True, tv2=False))


def test_parked_joins_continue_in_order_once_the_transaction_has_ended() -> None:
    desk, producer = closing_in_one_epoch()
    joins = [desk.join(producer, P0), desk.join(producer, P1)]
    assert desk.open.issuperset(joins)
    desk.ended(P0)
    assert [number_of(desk, token) for token in joins] == [2, 2]


def test_the_next_transaction_begins_at_once_in_another_epoch_and_its_end_waits() -> None:
    desk = Desk()
    after = producer_in(desk, desk.end(ongoing(desk), commit=True))
    first, second = (desk.answers[desk.join(after, each)] for each in (P0, P1))
    assert isinstance(first, JoinAnswer)
    assert isinstance(second, JoinAnswer)
    assert (first.number, second.number, second.ended) == (2, 2, None)
    assert first.ended is not None
    assert (first.ended.number, first.ended.awaited) == (1, Participants.of(P0))
    end = desk.end(after, commit=True)
    assert end in desk.open
    desk.ended(P0)
    assert producer_in(desk, end).epoch == 2


def test_who_waits_for_a_producer_id_is_not_starved() -> None:
    """Joins and aborts of nothing would raise something new to wait for again and again."""
    desk = Desk()
    producer = ongoing(desk)
    after = producer_in(desk, desk.end(producer, commit=True))
    successor = desk.init()
    assert desk.answers[desk.join(after, P1)].error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert desk.answers[desk.end(after, commit=False)].error is ErrorCode.CONCURRENT_TRANSACTIONS
    desk.ended(P0)
    assert producer_in(desk, successor).epoch == 2
    assert desk.answers[desk.join(after, P1)].error is ErrorCode.PRODUCER_FENCED


def test_init_producer_id_aborts_what_began_beside_the_closing_transaction_too() -> None:
    desk = Desk()
    producer = ongoing(desk)
    after = producer_in(desk, desk.end(producer, commit=True))
    desk.join(after, P1)
    token = desk.init()
    desk.ended(P0)
    closing = state_of(desk).closing
    assert closing is not None
    assert (closing.number, closing.commit, closing.awaited) == (2, False, Participants.of(P1))
    assert token in desk.open
    desk.ended(P1)
    assert producer_in(desk, token).epoch == 3


def test_the_number_of_parked_requests_has_a_bound() -> None:
    desk = Desk(rules=Rules(parked_max=2))
    producer = ongoing(desk)
    after = producer_in(desk, desk.end(producer, commit=True, tv2=False))
    tokens = [desk.join(after, P0) for _ in range(3)]
    assert desk.open == set(tokens[:2])
    assert desk.answers[tokens[2]].error is ErrorCode.CONCURRENT_TRANSACTIONS


def test_a_client_that_leaves_leaves_no_parked_request() -> None:
    desk = Desk()
    producer = ongoing(desk)
    desk.end(producer, commit=True)
    token = desk.init()
    desk.step(Abandon(token=token))
    desk.ended(P0)
    assert token not in desk.answers
    assert state_of(desk).epoch == 1


# --- proofs ---------------------------------------------------------------------------------------


def test_what_was_not_written_is_answered_after_a_proof() -> None:
    desk = Desk(holds_proofs=True)
    producer = ongoing(desk)
    writes = desk.writes
    verified = desk.join(producer, P0, add=False)
    fenced = desk.end(ProducerEpoch(producer.producer_id, 9), commit=True)
    assert desk.writes == writes
    assert {verified, fenced} <= desk.open
    desk.holds_proofs = False
    desk.wait(0)
    assert number_of(desk, verified) == 1
    assert desk.answers[fenced].error is ErrorCode.PRODUCER_FENCED


def test_a_later_proof_holds_for_earlier_answers_and_never_the_reverse() -> None:
    desk = Desk(holds_proofs=True)
    producer = ongoing(desk)
    first = desk.join(producer, P0, add=False)
    second = desk.join(producer, P0, add=False)
    asks = desk.proofs
    desk.proofs = [asks[1]]
    desk.holds_proofs = False
    desk.wait(0)
    assert {first, second} <= set(desk.answers)
    desk.holds_proofs = True
    first = desk.join(producer, P0, add=False)
    asks, desk.proofs = desk.proofs, []
    second = desk.join(producer, P0, add=False)
    desk.proofs, desk.holds_proofs = asks, False
    desk.wait(0)
    assert first in desk.answers
    assert second in desk.open


def test_without_a_proof_the_client_asks_again() -> None:
    desk = Desk(holds_proofs=True)
    producer = ongoing(desk)
    verified = desk.join(producer, P0, add=False)
    fenced = desk.end(ProducerEpoch(producer.producer_id, 9), commit=True)
    desk.fail_proofs()
    wanted = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert desk.answers[verified] == JoinAnswer(token=verified, error=wanted)
    assert desk.answers[fenced] == ProducerAnswer(token=fenced, error=wanted)


# --- time -----------------------------------------------------------------------------------------


def test_a_timeout_aborts_and_fences() -> None:
    desk = Desk()
    producer = ongoing(desk)
    desk.wait(TIMEOUT_MS - 1)
    desk.join(producer, P1)
    desk.wait(0)
    assert state_of(desk).current is not None
    desk.wait(1)
    state = state_of(desk)
    assert state.closing is not None
    assert (state.closing.commit, state.closing.marker_epoch, state.closing.bumped) == (False, 1, True)
    assert (state.epoch, state.last_epoch, state.last) == (1, NO_EPOCH, Outcome.ABORT)
    assert desk.answers[desk.end(producer, commit=True)].error is ErrorCode.PRODUCER_FENCED
    desk.restart()
    assert desk.answers[desk.end(producer, commit=True)].error is ErrorCode.PRODUCER_FENCED
    assert producer_in(desk, desk.end(producer, commit=False)).epoch == 1
    assert desk.answers[desk.end(producer, commit=False, tv2=False)].error is ErrorCode.PRODUCER_FENCED
    assert desk.answers[desk.init(producer)].error is ErrorCode.PRODUCER_FENCED


def test_a_request_that_comes_before_the_timeout_was_looked_at_is_in_time() -> None:
    desk = Desk()
    producer = ongoing(desk)
    desk.mono_ms += TIMEOUT_MS
    assert producer_in(desk, desk.end(producer, commit=True)).epoch == 1
    closing = state_of(desk).closing
    assert closing is not None
    assert closing.commit


def test_a_restart_does_not_prolong_a_transaction() -> None:
    desk = Desk()
    ongoing(desk)
    desk.mono_ms += TIMEOUT_MS // 2
    desk.restart()
    assert next_deadline(desk.machine) == desk.mono_ms + TIMEOUT_MS // 2
    desk.wait(TIMEOUT_MS // 2)
    assert state_of(desk).closing is not None


def test_a_timeout_waits_for_the_end_of_the_transaction_before() -> None:
    desk = Desk()
    producer = ongoing(desk)
    after = producer_in(desk, desk.end(producer, commit=True))
    desk.join(after, P1)
    desk.wait(2 * TIMEOUT_MS)
    assert state_of(desk).current is not None
    assert next_deadline(desk.machine) is None
    desk.ended(P0)
    closing = state_of(desk).closing
    assert closing is not None
    assert (closing.number, closing.commit) == (2, False)


def test_each_transaction_has_the_whole_timeout() -> None:
    desk = Desk()
    producer = ongoing(desk)
    desk.wait(TIMEOUT_MS - 1)
    after = producer_in(desk, desk.end(producer, commit=True))
    desk.ended(P0)
    desk.join(after, P0)
    desk.wait(TIMEOUT_MS - 1)
    assert state_of(desk).current is not None


@pytest.mark.parametrize("restarts", [True, False])
def test_an_id_that_is_not_used_for_a_week_is_forgotten(restarts: bool) -> None:
    desk = Desk()
    producer = started(desk)
    if restarts:
        desk.mono_ms += 3 * DAY_MS
        desk.restart()
    desk.wait((4 if restarts else 7) * DAY_MS - 1)
    assert desk.machine.exists
    desk.wait(1)
    assert desk.machine.state is None
    assert not desk.machine.exists
    assert desk.answers[desk.join(producer, P0)].error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert producer_in(desk, desk.init(producer)).producer_id != producer.producer_id


def test_an_id_with_an_open_or_closing_transaction_is_not_forgotten() -> None:
    desk = Desk(rules=Rules(expiration_ms=10))
    producer = ongoing(desk)
    desk.wait(1_000)
    assert state_of(desk).current is not None
    desk.end(producer, commit=True)
    desk.wait(1_000)
    assert state_of(desk).closing is not None
    desk.ended(P0)
    desk.wait(1_000)
    desk.wait(10)
    assert desk.machine.state is None


# --- bounds ---------------------------------------------------------------------------------------


def test_a_transaction_has_a_bound_of_participants() -> None:
    desk = Desk(rules=Rules(participants_max=2))
    producer = ongoing(desk, P0)
    refused = desk.join(producer, P1, "group")
    assert desk.answers[refused].error is ErrorCode.TRANSACTION_ABORTABLE
    assert number_of(desk, desk.join(producer, P0, P1)) == 1
    assert producer_in(desk, desk.end(producer, commit=False)).epoch == 1


def test_the_names_of_groups_have_a_bound_and_the_transaction_can_end() -> None:
    desk = Desk(rules=Rules(participants_bytes_max=Participants.of(P0, "g" * 100).bytes_max))
    producer = ongoing(desk, P0, "g" * 50)
    assert desk.answers[desk.join(producer, "h" * 50)].error is ErrorCode.TRANSACTION_ABORTABLE
    assert number_of(desk, desk.join(producer, P1, "h")) == 1
    assert producer_in(desk, desk.end(producer, commit=False)).epoch == 1


def test_a_join_is_answered_with_the_end_that_it_missed() -> None:
    desk = Desk()
    producer = ongoing(desk, P0, P1)
    after = producer_in(desk, desk.end(producer, commit=True))
    answer = desk.answers[desk.join(after, P0, "group")]
    assert isinstance(answer, JoinAnswer)
    closing = state_of(desk).closing
    assert closing is not None
    assert answer.ended == replace(closing, awaited=Participants.of(P0))
