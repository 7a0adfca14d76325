"""The checker of histories finds each injected anomaly."""

from __future__ import annotations

import pytest

from e2e.checkers.history import Answer, History, Log, Sent

A, B, C = Sent("p", 0, 0), Sent("p", 1, 0), Sent("p", 2, 0)
CLEAN: Log = {0: [(0, A.value), (1, B.value)]}


def history() -> History:
    return History(idempotent={"p"}, sent=[A, B, C], acknowledged={A: 0, B: 1}, failed=[C])


def test_a_clean_history_has_no_violation() -> None:
    assert history().violations(CLEAN) == []


@pytest.mark.parametrize(
    ("log", "law"),
    [
        ({0: [(0, A.value)]}, "lost write"),
        ({0: [(0, B.value), (1, A.value)]}, "lost write"),
        ({0: [(0, A.value), (1, B.value), (2, b"x:9:0")]}, "phantom"),
        ({0: [(0, A.value), (1, B.value), (2, C.value)]}, "aborted read"),
        ({0: [(0, A.value), (1, B.value), (2, B.value)]}, "duplicate"),
        ({0: [(0, A.value), (1, B.value), (2, A.value)]}, "order"),
        ({0: [(0, A.value), (2, B.value)]}, "not dense"),
    ],
)
def test_an_anomaly_is_found_and_named(log: Log, law: str) -> None:
    assert any(law in sentence for sentence in history().violations(log))


def test_a_record_without_an_outcome_may_be_there_or_not() -> None:
    found, maybe = history(), Sent("p", 3, 0)
    found.sent.append(maybe)
    assert found.undecided() == [maybe]
    for log in (CLEAN, {0: [*CLEAN[0], (2, maybe.value)]}):
        assert found.violations(log) == []


def test_answers_that_follow_on_skip_nothing() -> None:
    for batches in ([], [(4, 9, 6)], [(7, 7, 1), (8, 10, 3)]):
        assert Answer(0, 7, batches).skips() == []


@pytest.mark.parametrize(
    "batches",
    [
        [(8, 9, 2)],  # begins after the requested offset
        [(4, 6, 3)],  # ends before it
        [(4, 9, 6), (11, 12, 2)],  # a gap
        [(4, 9, 6), (9, 12, 4)],  # offsets twice
        [(4, 9, 5)],  # a batch with a gap
    ],
)
def test_an_answer_that_skips_is_found(batches: list[tuple[int, int, int]]) -> None:
    (sentence,) = Answer(0, 7, batches).skips()
    assert sentence.startswith("skip: partition 0 was asked for 7: ")
