"""Each law of the simulator's transactions is broken by the history that it forbids, and by no other law's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from kafscale.wire.schema.fetch import FetchResponseAbortedTransaction

from tools.simulator.transactions.history import WORN, Book, Outcome, Place, Session, Transaction, Written
from tools.simulator.transactions.laws import Entry, Judgement
from tools.simulator.transactions.reader import Aborting

PLACE: Place = ("ledger", 0)
OTHER: Place = ("ledger", 1)
PRODUCER = 7


def session(book: Book, name: str, epoch: int, asked_s: float, id_: str = "id") -> Session:
    """Its InitProducerId was asked at `asked_s` and answered a second later."""
    found = Session(id_, name, 10.0)
    ask = book.asks_init(found, asked_s)
    ask.answered_s = asked_s + 1
    book.begins(found, ask, PRODUCER, epoch)
    return found


def transaction(
    book: Book,
    whose: Session,
    outcome: Outcome,
    places: Mapping[bytes, tuple[Place, int | None]],
    sent_s: float = 5.0,
    may_commit: bool = True,
) -> Transaction:
    """`places`: value -> where it was sent, and the offset that was acknowledged."""
    found = Transaction(whose, began_s=sent_s, may_commit=may_commit)
    book.transactions.append(found)
    for value, (place, offset) in places.items():
        written = Written(value, place, sent_s, offset=offset)
        found.written.append(written)
        book.written[value] = found, written
    book.ends(found, outcome)
    return found


def records(base: int, *values: bytes, epoch: int = 0) -> Entry:
    return Entry(base, PRODUCER, epoch, None, values)


def marker(base: int, commit: bool, epoch: int = 0) -> Entry:
    return Entry(base, PRODUCER, epoch, commit, ())


def laws(broken: Sequence[str]) -> set[str]:
    return {each.partition(":")[0] for each in broken}


def judged(book: Book, *log: Entry, other: Sequence[Entry] = ()) -> set[str]:
    return laws(Judgement(book, {PLACE: log, OTHER: other}).judge())


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_committed_and_an_aborted_transaction_break_no_law(book: Book) -> None:
    who = session(book, "w#1", 0, 0.0)
    transaction(book, who, Outcome.COMMITTED, {b"w#1:0": (PLACE, 0), b"w#1:1": (OTHER, 0)})
    transaction(book, who, Outcome.ABORTED, {b"w#1:2": (PLACE, 2), b"w#1:3": (PLACE, None)})
    book.shows(PLACE, 0, b"w#1:0")
    book.hidden[PLACE, 2] = b"w#1:2"
    first, second = [records(0, b"w#1:0"), marker(1, True)], [records(2, b"w#1:2"), marker(3, False)]
    assert judged(book, *first, *second, other=[records(0, b"w#1:1"), marker(1, True)]) == set()
    assert book.broken == []


@pytest.mark.parametrize(
    ("outcome", "commits"),
    [
        (Outcome.COMMITTED, (True, False)),
        (Outcome.COMMITTED, (False, False)),
        (Outcome.ABORTED, (True, True)),
        (Outcome.ABORTED, (False, True)),
        (Outcome.UNKNOWN, (True, False)),
    ],
)
def test_a_part_of_a_transaction_breaks_atomicity(
    book: Book, outcome: Outcome, commits: tuple[bool, bool]
) -> None:
    transaction(book, session(book, "w#1", 0, 0.0), outcome, {b"a": (PLACE, 0), b"b": (OTHER, 0)})
    one, other = commits
    log = [records(0, b"b"), marker(1, other)]
    assert judged(book, records(0, b"a"), marker(1, one), other=log) == {"atomicity"}


@pytest.mark.parametrize("commit", [True, False])
def test_an_unknown_outcome_is_either(book: Book, commit: bool) -> None:
    transaction(book, session(book, "w#1", 0, 0.0), Outcome.UNKNOWN, {b"a": (PLACE, 0), b"b": (PLACE, 1)})
    assert judged(book, records(0, b"a", b"b"), marker(2, commit)) == set()


def test_a_commit_that_nobody_asked_for_breaks_atomicity(book: Book) -> None:
    whose = session(book, "w#1", 0, 0.0)
    transaction(book, whose, Outcome.UNKNOWN, {b"a": (PLACE, 0)}, may_commit=False)
    assert judged(book, records(0, b"a"), marker(1, True)) == {"atomicity"}


def test_what_the_log_must_not_have(book: Book) -> None:
    who = session(book, "w#1", 0, 0.0)
    transaction(book, who, Outcome.ABORTED, {b"a": (PLACE, 0), b"b": (PLACE, 1)})
    end = marker(5, False)
    assert judged(book, records(0, b"a", b"b"), end) == set()
    assert judged(book, records(0, b"a"), end) == {"lost write"}
    assert judged(book, records(0, b"a", b"b"), records(2, b"b"), end) == {"duplicate"}
    assert judged(book, records(0, b"a", b"b", b"c"), end) == {"phantom"}
    assert judged(book, records(0, b"a", b"b")) == {"hanging"}
    assert judged(book, records(0, b"a", epoch=1), records(1, b"b"), marker(2, False)) == {"older epoch"}


def test_records_that_change_places_break_the_order(book: Book) -> None:
    transaction(
        book, session(book, "w#1", 0, 0.0), Outcome.ABORTED, {b"a": (PLACE, None), b"b": (PLACE, None)}
    )
    assert judged(book, records(0, b"b", b"a"), marker(2, False)) == {"order"}


@pytest.mark.parametrize(("sent_s", "broken"), [(3.5, set()), (4.5, {"fenced write"})])
def test_a_fenced_producer_writes_nothing_more(book: Book, sent_s: float, broken: set[str]) -> None:
    first = session(book, "w#1", 0, 0.0)
    session(book, "w#2", 1, 3.0)
    session(book, "other#1", 5, 0.0, id_="other")
    transaction(book, first, Outcome.ABORTED, {b"a": (PLACE, None)}, sent_s)
    assert judged(book, records(0, b"a"), marker(1, False)) == broken


def test_readers_of_committed_data_get_what_is_committed_and_no_more(book: Book) -> None:
    who = session(book, "w#1", 0, 0.0)
    transaction(book, who, Outcome.COMMITTED, {b"a": (PLACE, 0)})
    transaction(book, who, Outcome.ABORTED, {b"b": (PLACE, 2)})
    log = [records(0, b"a"), marker(1, True), records(2, b"b"), marker(3, False)]
    book.shown[PLACE, 2] = b"b"
    assert judged(book, *log) == {"aborted read"}
    book.shown.clear()
    book.hidden[PLACE, 0] = b"a"
    assert judged(book, *log) == {"hidden"}
    judgement = Judgement(book, {PLACE: log})
    judgement.judge()
    assert judgement.judge_view({(PLACE, 0): b"a"}) == []
    assert laws(judgement.judge_view({})) == {"unseen"}


def test_a_record_is_read_before_its_commit_was_asked_for(book: Book) -> None:
    transaction(book, session(book, "w#1", 0, 0.0), Outcome.UNKNOWN, {b"a": (PLACE, 0)}, may_commit=False)
    book.shows(PLACE, 0, b"a")
    assert laws(book.broken) == {"aborted read"}


@pytest.mark.parametrize(
    ("copied", "broken"),
    [([0, 2], False), ([0], True), ([0, 2, 2], True), ([2, 0], True), ([0, 2, 4], True)],
)
def test_each_record_is_copied_once_and_in_order_up_to_where_the_group_is(
    book: Book, copied: list[int], broken: bool
) -> None:
    who = session(book, "c#1", 0, 0.0)
    log = []
    for offset in (0, 2, 4):
        transaction(book, who, Outcome.COMMITTED, {b"%d" % offset: (PLACE, offset)})
        log += [records(offset, b"%d" % offset), marker(offset + 1, True)]
    copies = {b"copy %d" % each: (("copies", 0), each) for each in range(len(copied))}
    transaction(book, who, Outcome.COMMITTED, copies)
    for value, source in zip(copies, copied, strict=True):
        book.written[value][1].source = 0, source
    target = [records(0, *copies), marker(len(copies), True)]
    judgement = Judgement(book, {PLACE: log, ("copies", 0): target})
    assert judgement.judge() == []
    assert bool(judgement.judge_copies("ledger", "copies", {0: 4})) is broken


def test_epochs_never_fall_and_no_two_producers_have_one(book: Book) -> None:
    first = session(book, "w#1", 3, 0.0)
    book.has_epoch(first, PRODUCER, 4)
    assert book.broken == []
    session(book, "w#2", 4, 3.0)
    assert laws(book.broken) == {"one epoch, two producers"}
    session(book, "w#3", 2, 6.0)
    assert laws(book.broken) == {"one epoch, two producers", "epoch fell"}
    book.has_epoch(first, PRODUCER + 1, 9)
    assert "another producer id" in laws(book.broken)


def test_an_id_whose_epochs_are_used_up_gets_one_more_producer_id(book: Book) -> None:
    book.producers[WORN] = [1]
    for number, (producer_id, epoch) in enumerate([(1, 32_766), (2, 0), (2, 1)]):
        found = Session(WORN, f"w#{number}", 10.0)
        ask = book.asks_init(found, 10.0 * number)
        ask.answered_s = 10.0 * number + 1
        book.begins(found, ask, producer_id, epoch)
    assert book.broken == []
    assert [book.replaced_s(each) for each in book.sessions] == [11.0, 21.0, float("inf")]
    book.has_epoch(book.sessions[-1], 3, 0)
    assert laws(book.broken) == {"another producer id"}


@pytest.mark.parametrize(
    ("later", "now_s", "clocks_are_right", "broken"),
    [
        (None, 6.0, True, {"fenced for no reason"}),
        (None, 6.0, False, set()),
        (None, 20.0, True, set()),  # its transaction timed out
        (3.0, 6.0, True, set()),  # a newer producer
        (0.5, 6.0, True, set()),  # one at the same time
        (-5.0, 6.0, True, {"fenced for no reason"}),  # an older one
    ],
)
def test_a_producer_is_fenced_for_a_reason(
    book: Book, later: float | None, now_s: float, clocks_are_right: bool, broken: set[str]
) -> None:
    if later == -5.0:
        session(book, "w#0", 0, later)
    who = session(book, "w#1", 1, 0.0)
    if later is not None and later != -5.0:
        session(book, "w#2", 2, later)
    book.is_fenced(Transaction(who, began_s=5.0), now_s, "PRODUCER_FENCED", clocks_are_right)
    assert laws(book.broken) == broken


def test_a_stable_offset_is_a_committed_one_and_the_newest(book: Book) -> None:
    who, position = session(book, "c#1", 0, 0.0), ("group", 0)
    for offset in (4, 9):
        found = transaction(book, who, Outcome.UNKNOWN, {})
        found.offsets = {position: offset}
        book.ends(found, Outcome.COMMITTED)
    floor = book.floors[position]
    book.has_offset(position, 9, floor)
    assert book.broken == []
    book.has_offset(position, 4, floor)
    assert laws(book.broken) == {"lost commit"}
    aborted = transaction(book, who, Outcome.ABORTED, {}, may_commit=False)
    aborted.offsets = {position: 12}
    book.has_offset(position, 12, floor)
    assert laws(book.broken) == {"lost commit", "aborted offset"}


def test_an_older_plain_commit_may_come_late_only_if_it_was_not_answered(book: Book) -> None:
    position = "group", 0
    book.plain[position] = {3, 4, 5}
    book.reaches(position, 3)
    book.reaches(position, 5)
    book.maybe[position] = {4}
    for offset in (5, 4):
        book.has_offset(position, offset, 5)
    assert book.broken == []
    book.has_offset(position, 3, 5)
    assert laws(book.broken) == {"lost commit"}


def test_a_reader_hides_from_the_first_offset_of_an_aborted_transaction_to_its_marker() -> None:
    aborting = Aborting([FetchResponseAbortedTransaction(producer_id=PRODUCER, first_offset=2)])
    log = [records(0, b"a"), marker(1, True), records(2, b"b"), marker(3, False), records(4, b"c")]
    assert [aborting.hides(each, each.base) for each in log] == [False, False, True, False, False]
