"""The tables of docs/protocol/transactions.md, cell by cell: what each request gets in each phase of an id.

A cell is an error code; `same` (the present producer, and nothing changes); `next` (the next epoch, and nothing to
end); `commit` or `abort` (decided); `wait` (parked).
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from kafscale.coordinator.transactions.model import (
    LAST_EPOCH,
    JoinAnswer,
    Phase,
    ProducerAnswer,
    ProducerEpoch,
    Token,
    phase_of,
)
from kafscale.storage.transactions import (
    NO_EPOCH,
    ClosingTransaction,
    Outcome,
    Participants,
    TransactionState,
)
from transaction_desk import P0, P1, TIMEOUT_MS, WALL_MS, Desk

ID, OLD_ID, OTHER_ID, EPOCH = 7, 6, 99, 4
BASE = TransactionState(
    id="id", producer_id=ID, epoch=EPOCH, timeout_ms=TIMEOUT_MS, changed_ms=WALL_MS, number=5
)


def closing_of(state: TransactionState, *, commit: bool, bumped: bool) -> TransactionState:
    closing = ClosingTransaction(
        number=state.number,
        producer_id=state.producer_id,
        marker_epoch=state.epoch,
        bumped=bumped,
        commit=commit,
        coordinator_epoch=2,
        awaited=Participants.of(P0),
    )
    return replace(state, closing=closing)


def in_phase(phase: Phase, *, bumped: bool) -> TransactionState:
    """The last decision raised the epoch to the present one, if `bumped`."""
    last = Outcome.COMMIT if phase in (Phase.PREPARE_COMMIT, Phase.COMPLETE_COMMIT) else Outcome.ABORT
    if phase is Phase.EMPTY:
        return BASE
    state = replace(BASE, last=last, last_bumped=bumped, last_epoch=EPOCH - 1 if bumped else NO_EPOCH)
    if phase is Phase.ONGOING:
        return replace(state, current=Participants.of(P0), started_ms=WALL_MS)
    if phase in (Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT):
        return closing_of(state, commit=last is Outcome.COMMIT, bumped=bumped)
    return state


def rows(table: str) -> list[tuple[str, str, str]]:
    """Row, column, cell."""
    head, *lines = (line.split() for line in table.strip().splitlines())
    return [(name, column, cell) for name, *cells in lines for column, cell in zip(head, cells, strict=True)]


def cell_of(desk: Desk, token: Token) -> str:
    """What the request got, in the words of the tables."""
    before, after = desk.state, desk.machine.state
    answer = desk.answers.get(token)
    if answer is None:
        assert token in desk.open
        return "wait"
    if answer.error:
        assert before is None or after == before
        return str(int(answer.error))
    assert isinstance(answer, ProducerAnswer)
    assert after is not None
    assert answer.producer == ProducerEpoch(after.producer_id, after.epoch)
    if after == before:
        return "same"
    assert before is not None
    if before.current is not None:
        assert after.closing is not None
        assert after.closing.awaited == before.current
        assert after.closing.number == before.number
        assert after.closing.coordinator_epoch == desk.machine.coordinator_epoch
        return "commit" if after.closing.commit else "abort"
    assert after.closing == before.closing
    assert (after.last, after.last_bumped, after.started_ms) == (Outcome.ABORT, True, desk.now.wall_ms)
    return "next"


END_TXN = """
                repeat/commit repeat/abort now/commit now/abort tv1/commit tv1/abort old/abort older/commit other/abort
Ongoing         90            90           commit     abort     commit     abort     90        90           49
Empty           90            90           48         next      48         48        90        90           49
PrepareCommit   same          48           48         next      same       48        90        90           49
PrepareAbort    48            same         48         next      48         same      90        90           49
CompleteCommit  same          48           48         next      same       48        90        90           49
CompleteAbort   48            same         48         next      48         same      90        90           49
"""
"""`repeat`: TV2, the epoch before. `now`: TV2. `old`: TV1, the epoch before. `older`: TV2, two epochs before."""


def end_in(state: TransactionState, column: str) -> str:
    who, outcome = column.split("/")
    epoch = {"repeat": EPOCH - 1, "old": EPOCH - 1, "older": EPOCH - 2}.get(who, EPOCH)
    producer = ProducerEpoch(OTHER_ID if who == "other" else ID, epoch)
    desk = Desk(state=state)
    return cell_of(desk, desk.end(producer, commit=outcome == "commit", tv2=who not in ("tv1", "old")))


@pytest.mark.parametrize(("phase", "column", "cell"), rows(END_TXN))
def test_end_txn_after_a_decision_that_raised_the_epoch(phase: str, column: str, cell: str) -> None:
    state = in_phase(Phase(phase), bumped=True)
    assert phase_of(state) is Phase(phase)
    assert end_in(state, column) == cell


@pytest.mark.parametrize(("phase", "column", "cell"), rows(END_TXN))
def test_end_txn_after_a_decision_of_tv1(phase: str, column: str, cell: str) -> None:
    """The epoch before is not the epoch of a repeat: its producer was fenced, and must not learn the present one."""
    assert end_in(in_phase(Phase(phase), bumped=False), column) == ("90" if "repeat" in column else cell)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("commit", [True, False])
def test_end_txn_of_the_last_epoch_is_a_repeat_after_the_producer_id_changed(
    phase: Phase, commit: bool
) -> None:
    state = replace(in_phase(phase, bumped=phase is not Phase.EMPTY), epoch=0, previous_id=OLD_ID)
    desk = Desk(state=state)
    wanted = {
        Phase.ONGOING: "90",
        Phase.EMPTY: "49",
        Phase.PREPARE_COMMIT: "same" if commit else "48",
        Phase.COMPLETE_COMMIT: "same" if commit else "48",
        Phase.PREPARE_ABORT: "48" if commit else "same",
        Phase.COMPLETE_ABORT: "48" if commit else "same",
    }
    assert cell_of(desk, desk.end(ProducerEpoch(OLD_ID, LAST_EPOCH), commit=commit)) == wanted[phase]
    assert cell_of(desk, desk.end(ProducerEpoch(OLD_ID, LAST_EPOCH - 1), commit=commit)) == "49"
    assert cell_of(desk, desk.end(ProducerEpoch(OLD_ID, LAST_EPOCH), commit=commit, tv2=False)) == "49"


@pytest.mark.parametrize("tv2", [True, False])
def test_end_txn_of_an_unknown_id(tv2: bool) -> None:
    desk = Desk()
    assert cell_of(desk, desk.end(ProducerEpoch(ID, 0), commit=True, tv2=tv2)) == "49"


@pytest.mark.parametrize("tv2", [True, False])
def test_end_txn_waits_for_the_end_of_the_transaction_before(tv2: bool) -> None:
    state = replace(closing_of(BASE, commit=True, bumped=True), number=6, current=Participants.of(P1))
    state = replace(state, started_ms=WALL_MS)
    desk = Desk(state=state)
    token = desk.end(ProducerEpoch(ID, EPOCH), commit=True, tv2=tv2)
    assert cell_of(desk, token) == "wait"
    desk.ended(P0)
    after = desk.machine.state
    assert after is not None
    assert after.closing is not None
    assert (after.closing.number, after.closing.awaited, after.closing.commit) == (
        6,
        Participants.of(P1),
        True,
    )
    assert after.closing.marker_epoch == EPOCH + tv2
    assert after.closing.bumped == tv2
    assert desk.answers[token] == ProducerAnswer(token=token, producer=ProducerEpoch(ID, EPOCH + tv2))


INIT = """
                 none   present  last   older  other
Empty            raise  raise    same   90     90
Ongoing          fence  fence    same   90     90
PrepareCommit    wait   wait     wait   90     90
PrepareAbort     wait   wait     wait   90     90
CompleteCommit   raise  raise    same   90     90
CompleteAbort    raise  raise    same   90     90
"""
"""By the epoch that the client expects. `fence`: the transaction is aborted, and the request waits for its end."""


@pytest.mark.parametrize(("phase", "column", "cell"), rows(INIT))
def test_init_producer_id(phase: str, column: str, cell: str) -> None:
    state = replace(in_phase(Phase(phase), bumped=True), last_epoch=EPOCH - 1)
    expected = {
        "none": None,
        "present": ProducerEpoch(ID, EPOCH),
        "last": ProducerEpoch(ID, EPOCH - 1),
        "older": ProducerEpoch(ID, EPOCH - 2),
        "other": ProducerEpoch(OTHER_ID, EPOCH),
    }[column]
    desk = Desk(state=state)
    token = desk.init(expected, timeout_ms=7)
    after = desk.machine.state
    assert after is not None
    last_epoch = NO_EPOCH if expected is None else EPOCH
    match cell:
        case "fence":
            assert token in desk.open
            assert after.closing is not None
            assert not after.closing.commit
            assert after.closing.marker_epoch == after.epoch == EPOCH + 1
            assert (after.last_epoch, after.timeout_ms) == (last_epoch, TIMEOUT_MS)
        case "raise":
            assert desk.answers[token] == ProducerAnswer(token=token, producer=ProducerEpoch(ID, EPOCH + 1))
            assert (after.last_epoch, after.timeout_ms, after.last) == (last_epoch, 7, Outcome.NONE)
        case _:
            assert cell_of(desk, token) == cell


def test_init_producer_id_of_a_new_id() -> None:
    desk = Desk()
    token = desk.init(ProducerEpoch(OTHER_ID, 3))
    assert desk.answers[token] == ProducerAnswer(token=token, producer=ProducerEpoch(desk.ids, 0))
    assert desk.machine.state is not None
    assert desk.machine.state.last_epoch == NO_EPOCH


@pytest.mark.parametrize("expects", [True, False])
def test_init_producer_id_after_the_last_epoch_gives_a_new_producer_id(expects: bool) -> None:
    desk = Desk(state=replace(BASE, epoch=LAST_EPOCH))
    present = ProducerEpoch(ID, LAST_EPOCH)
    token = desk.init(present if expects else None)
    fresh = ProducerEpoch(desk.ids, 0)
    assert desk.answers[token] == ProducerAnswer(token=token, producer=fresh)
    again = desk.init(present)
    if expects:  # its answer was lost
        assert desk.answers[again] == ProducerAnswer(token=again, producer=fresh)
    else:  # it was fenced by another client
        assert desk.answers[again].error == 90


def test_a_repeat_at_the_last_epoch_is_still_a_repeat() -> None:
    desk = Desk(state=replace(BASE, epoch=LAST_EPOCH, last_epoch=LAST_EPOCH - 1))
    assert cell_of(desk, desk.init(ProducerEpoch(ID, LAST_EPOCH - 1))) == "same"


@pytest.mark.parametrize("expects", [True, False])
def test_no_producer_gets_the_epoch_of_a_fence_after_the_last_one(expects: bool) -> None:
    present = ProducerEpoch(ID, LAST_EPOCH)
    state = replace(BASE, epoch=LAST_EPOCH, current=Participants.of(P0), started_ms=WALL_MS)
    desk = Desk(state=state)
    token = desk.init(present if expects else None)
    assert desk.machine.state is not None
    assert desk.machine.state.epoch == LAST_EPOCH + 1
    assert desk.answers[desk.end(present, commit=False)].error == 90
    desk.ended(P0)
    assert desk.answers[token] == ProducerAnswer(token=token, producer=ProducerEpoch(desk.ids - 1, 0))


JOINS = """
                   inside/add inside/verify outside/add outside/verify old/add other/verify
Ongoing            5          5             5           120            90      49
Empty              6          120           6           120            90      49
PrepareCommit      wait       wait          wait        wait           90      49
PrepareAbort       wait       wait          wait        wait           90      49
CompleteCommit     6          120           6           120            90      49
CompleteAbort      6          120           6           120            90      49
"""
"""A small number is that of the transaction joined. wait: if the closing transaction has the same epoch."""


def join_in(desk: Desk, column: str) -> tuple[str, Token]:
    where, how = column.split("/")
    producer = ProducerEpoch(OTHER_ID if where == "other" else ID, EPOCH - (where == "old"))
    token = desk.join(producer, P1 if where == "outside" else P0, add=how == "add")
    answer = desk.answers.get(token)
    if answer is None:
        return "wait", token
    assert isinstance(answer, JoinAnswer)
    return str(int(answer.error) or answer.number), token


@pytest.mark.parametrize(("phase", "column", "cell"), rows(JOINS))
def test_joins_beside_a_closing_transaction_of_another_epoch(phase: str, column: str, cell: str) -> None:
    """Overlap: as if it were complete. Who still awaits the end gets it with the answer."""
    state = in_phase(Phase(phase), bumped=True)
    desk = Desk(state=state)
    wanted = cell if cell != "wait" else {"add": "6", "verify": "120"}[column.split("/")[1]]
    got, token = join_in(desk, column)
    assert got == wanted
    answer = desk.answers[token]
    assert isinstance(answer, JoinAnswer)
    closes = state.closing is not None and got == "6" and column.startswith("inside")
    assert answer.ended == (state.closing if closes else None)


@pytest.mark.parametrize(("phase", "column", "cell"), rows(JOINS))
def test_no_transaction_begins_beside_a_closing_one_of_its_own_epoch(
    phase: str, column: str, cell: str
) -> None:
    desk = Desk(state=in_phase(Phase(phase), bumped=False))
    assert join_in(desk, column)[0] == cell


def test_a_join_of_an_unknown_id() -> None:
    desk = Desk()
    assert desk.answers[desk.join(ProducerEpoch(ID, 0), P0)].error == 49
