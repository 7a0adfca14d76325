"""How each request of an id is judged: InitProducerId, joins, EndTxn. Pure.

A judgement is a new state with an answer, or no answer: then the request waits for the closing transaction. The laws:

- A transaction is decided once, and the decision is one change of the state: `current` becomes `closing`.
- No transaction is decided while another one is closing, so `closing` is one value.
- A transaction begins beside a closing one only if its records have another epoch.
- InitProducerId raises the epoch, and what was under way before it is aborted first.
- Epochs never fall within a producer id. After LAST_EPOCH the id gets a new producer id, whose epochs begin at 0.
- A request of an older epoch counts as a repeat only if the client of that very epoch caused the present one. So a
  producer that was fenced never learns the epoch of its successor.
- An EndTxn of TV1 does not decide a transaction that began after the request reached a front door. All transactions of
  TV1 may have one epoch, so a late copy of the EndTxn before would look like the right one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from kafscale.coordinator.transactions.model import (
    LAST_EPOCH,
    Answer,
    EndTxn,
    InitProducerId,
    Instant,
    Join,
    JoinAnswer,
    ProducerAnswer,
    ProducerEpoch,
    Request,
    Rules,
    Token,
)
from kafscale.storage.transactions import (
    NO_EPOCH,
    ClosingTransaction,
    Outcome,
    Participants,
    TransactionState,
)
from kafscale.wire.errors import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a request is judged by. `state`: without the participants that have confirmed the end."""

    id: str
    coordinator_epoch: int
    state: TransactionState | None
    init_waits: bool  # an InitProducerId is parked
    began_ms: int | None  # of the transaction under way; None: it begins now, or there is none
    now: Instant
    rules: Rules


@dataclass(frozen=True, slots=True)
class Judgement:
    """`answer` None: the request waits. The state may have changed nevertheless."""

    state: TransactionState | None
    answer: Answer | None


def judge(case: Case, request: Request) -> Judgement:
    match request:
        case InitProducerId():
            return judge_init(case, request)
        case Join():
            return judge_join(case, request)
        case EndTxn():
            return judge_end(case, request)
        case _:
            assert_never(request)


def refusal(request: Request, error: ErrorCode) -> Answer:
    if isinstance(request, Join):
        return JoinAnswer(token=request.token, error=error)
    return ProducerAnswer(token=request.token, error=error)


def decided(case: Case, state: TransactionState, *, commit: bool, bumped: bool) -> TransactionState:
    """The state with the end of the transaction under way decided. With `bumped` its markers have the next epoch;
    the caller raises the epoch of the producer."""
    assert state.current is not None, "nothing is under way"
    assert state.closing is None, "one decision at a time"
    closing = ClosingTransaction(
        number=state.number,
        producer_id=state.producer_id,
        marker_epoch=state.epoch + 1 if bumped else state.epoch,
        bumped=bumped,
        commit=commit,
        coordinator_epoch=case.coordinator_epoch,
        awaited=state.current,
    )
    outcome = Outcome.COMMIT if commit else Outcome.ABORT
    return replace(
        state, current=None, closing=closing if state.current else None, last=outcome, last_bumped=bumped
    )


def aborted_by_fence(case: Case, state: TransactionState, *, last_epoch: int) -> TransactionState:
    """After a timeout, or before InitProducerId: the producer of the transaction is fenced with the decision."""
    return fenced(decided(case, state, commit=False, bumped=True), last_epoch=last_epoch)


# --- who the producer is ------------------------------------------------------------------------


def producer_of(state: TransactionState) -> ProducerEpoch:
    return ProducerEpoch(state.producer_id, state.epoch)


def is_present(state: TransactionState, producer: ProducerEpoch) -> bool:
    """Whether the producer may change the state. No producer has an epoch above LAST_EPOCH."""
    return producer == producer_of(state) and producer.epoch <= LAST_EPOCH


def raised(state: TransactionState, *, last_epoch: int, fresh_id: int | None) -> TransactionState:
    """With the next epoch. `last_epoch`: the old one, if its client may repeat its request; else NO_EPOCH."""
    if state.epoch < LAST_EPOCH:
        return replace(state, epoch=state.epoch + 1, last_epoch=last_epoch)
    assert fresh_id is not None, "after the last epoch the request brings a producer id"
    return replace(state, producer_id=fresh_id, epoch=0, last_epoch=last_epoch, previous_id=state.producer_id)


def fenced(state: TransactionState, *, last_epoch: int) -> TransactionState:
    """With an epoch above that of its producer. It may be 32,767: then InitProducerId gives a new producer id."""
    return replace(state, epoch=state.epoch + 1, last_epoch=last_epoch)


def may_init(state: TransactionState, expected: ProducerEpoch) -> bool:
    """Whether a client that believes to be `expected` may go on. Kafka would also accept the last epoch of the
    previous producer id from a client that was fenced since; that client could abort its successor's transaction."""
    return expected == producer_of(state) or repeats_init(state, expected)


def repeats_init(state: TransactionState, expected: ProducerEpoch) -> bool:
    """The present epoch is the answer to an earlier request of this client: an InitProducerId, or an EndTxn."""
    if state.last_epoch == NO_EPOCH or expected.epoch != state.last_epoch:
        return False
    before = state.previous_id if state.epoch == 0 else state.producer_id
    return expected.producer_id == before


def repeats_end(state: TransactionState, producer: ProducerEpoch) -> bool:
    """TV2: the decision that this client asked for has raised its epoch; or a timeout has, which aborted. Then there is
    no last epoch, because the client did not cause the present one."""
    if not state.last_bumped or state.epoch > LAST_EPOCH:
        return False
    if state.epoch == 0:
        return producer == ProducerEpoch(state.previous_id, LAST_EPOCH)
    return producer == ProducerEpoch(state.producer_id, state.epoch - 1)


# --- InitProducerId -----------------------------------------------------------------------------


def judge_init(case: Case, request: InitProducerId) -> Judgement:
    state, expected = case.state, request.expected
    if state is None:
        state = TransactionState(
            id=case.id,
            producer_id=request.fresh_id,
            timeout_ms=request.timeout_ms,
            changed_ms=case.now.wall_ms,
        )
        return _producer_is(state, request.token)
    if expected is not None and not may_init(state, expected):
        return Judgement(state, refusal(request, ErrorCode.PRODUCER_FENCED))
    if state.closing is not None:
        return Judgement(state, None)
    is_repeat = expected is not None and repeats_init(state, expected)
    if is_repeat and state.epoch <= LAST_EPOCH:
        return _producer_is(state, request.token)
    last_epoch = NO_EPOCH if expected is None else expected.epoch
    if state.current is not None:
        state = aborted_by_fence(case, state, last_epoch=last_epoch)
        return judge_init(replace(case, state=state), request)
    state = raised(state, last_epoch=last_epoch, fresh_id=request.fresh_id)
    state = replace(state, timeout_ms=request.timeout_ms, last=Outcome.NONE, last_bumped=False)
    return _producer_is(state, request.token)


def _producer_is(state: TransactionState, token: Token) -> Judgement:
    return Judgement(state, ProducerAnswer(token=token, producer=producer_of(state)))


# --- joins --------------------------------------------------------------------------------------


def judge_join(case: Case, request: Join) -> Judgement:
    state = case.state
    if state is None or request.producer.producer_id != state.producer_id:
        return Judgement(state, refusal(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    if not is_present(state, request.producer):
        return Judgement(state, refusal(request, ErrorCode.PRODUCER_FENCED))
    if case.init_waits:
        return Judgement(state, refusal(request, ErrorCode.CONCURRENT_TRANSACTIONS))
    if state.closing is not None and not may_begin_beside(state.closing):
        return Judgement(state, None)
    inside = request.participants <= (state.current or Participants())
    if not inside and (not request.add or _is_too_large(state, request, case.rules)):
        return Judgement(state, refusal(request, ErrorCode.TRANSACTION_ABORTABLE))
    if not inside:
        state = joined(state, request.participants, case.now.wall_ms)
    answer = JoinAnswer(
        token=request.token,
        number=state.number,
        began_ms=case.now.mono_ms if case.began_ms is None else case.began_ms,
        ended=_still_awaits(state.closing, request.participants),
    )
    return Judgement(state, answer)


def may_begin_beside(closing: ClosingTransaction) -> bool:
    """Whether the records of the next transaction have another epoch than those that the end is for."""
    return closing.bumped


def joined(state: TransactionState, participants: Participants, wall_ms: int) -> TransactionState:
    """With these participants in the transaction under way, which begins if there is none."""
    if state.current is None:
        return replace(state, number=state.number + 1, started_ms=wall_ms, current=participants)
    return replace(state, current=state.current | participants)


def _is_too_large(state: TransactionState, request: Join, rules: Rules) -> bool:
    some = (state.current or Participants()) | request.participants
    return len(some) > rules.participants_max or some.bytes_max > rules.participants_bytes_max


def _still_awaits(closing: ClosingTransaction | None, some: Participants) -> ClosingTransaction | None:
    awaited = Participants() if closing is None else closing.awaited & some
    return replace(closing, awaited=awaited) if closing is not None and awaited else None


# --- EndTxn -------------------------------------------------------------------------------------


def judge_end(case: Case, request: EndTxn) -> Judgement:
    state = case.state
    if state is None:
        return Judgement(None, refusal(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING))
    present = is_present(state, request.producer)
    if not present and not (request.tv2 and repeats_end(state, request.producer)):
        known = request.producer.producer_id == state.producer_id
        error = ErrorCode.PRODUCER_FENCED if known else ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return Judgement(state, refusal(request, error))
    if state.current is not None:
        if not present:
            return Judgement(state, refusal(request, ErrorCode.PRODUCER_FENCED))
        return _end_present(case, state, request)
    if present and request.tv2:
        return _end_nothing(case, state, request)
    if not present and request.commit and state.last_epoch == NO_EPOCH:
        # A timeout has aborted it. Kafka Streams goes on after this error, and stops after INVALID_TXN_STATE.
        return Judgement(state, refusal(request, ErrorCode.PRODUCER_FENCED))
    return Judgement(state, _end_again(state, request))


def _end_present(case: Case, state: TransactionState, request: EndTxn) -> Judgement:
    """The decision. It waits for the closing transaction, because `closing` is one value."""
    if not request.tv2 and is_older(request, case.began_ms):
        return Judgement(state, refusal(request, ErrorCode.NOT_COORDINATOR))
    if state.closing is not None:
        return Judgement(state, None)
    after = decided(case, state, commit=request.commit, bumped=request.tv2)
    if request.tv2:
        after = raised(after, last_epoch=state.epoch, fresh_id=request.fresh_id)
    return _producer_is(after, request.token)


def is_older(request: EndTxn, began_ms: int | None) -> bool:
    """Whether the request is older than the transaction under way. If its client still waits, it asks again."""
    return began_ms is None or request.reached_ms < began_ms


def _end_nothing(case: Case, state: TransactionState, request: EndTxn) -> Judgement:
    """TV2: a client aborts to be sure, when it does not know whether anything has joined. Then what is on its way has
    an old epoch. It needs no marker. As in Kafka, the transaction that is over then began with this request."""
    if request.commit:
        return Judgement(state, refusal(request, ErrorCode.INVALID_TXN_STATE))
    if case.init_waits:
        return Judgement(state, refusal(request, ErrorCode.CONCURRENT_TRANSACTIONS))
    after = raised(state, last_epoch=state.epoch, fresh_id=request.fresh_id)
    after = replace(after, last=Outcome.ABORT, last_bumped=True, started_ms=case.now.wall_ms)
    return _producer_is(after, request.token)


def _end_again(state: TransactionState, request: EndTxn) -> Answer:
    """A repeat. The decision is durable, so the answer does not wait for the end as Kafka's does."""
    same = state.last is (Outcome.COMMIT if request.commit else Outcome.ABORT)
    if not same:
        return refusal(request, ErrorCode.INVALID_TXN_STATE)
    return ProducerAnswer(token=request.token, producer=producer_of(state))
