"""The checker of groups finds each injected anomaly."""

from __future__ import annotations

import pytest

from e2e.checkers.group_history import Event, Kind, holders, holdings, violations

GAP_MAX_S = 9.0
ENDS = {0: 2, 1: 1}


def event(at: float, member: str, kind: Kind, *partitions: int, offset: int = -1) -> Event:
    return Event(member, kind, at, partitions, offset)


CLEAN = [
    event(1, "a", Kind.ASSIGNED, 0, 1),
    event(2, "a", Kind.RECORD, 0, offset=0),
    event(3, "a", Kind.COMMITTED, 0, offset=1),
    event(4, "a", Kind.REVOKED, 0, 1),
    event(5, "b", Kind.ASSIGNED, 0),
    event(5, "a", Kind.ASSIGNED, 1),
    event(6, "b", Kind.RECORD, 0, offset=1),
    event(7, "a", Kind.RECORD, 1, offset=0),
    event(7.5, "b", Kind.COMMITTED, 0, offset=2),
    event(8, "a", Kind.KILLED),
    event(16, "b", Kind.ASSIGNED, 1),
    event(17, "b", Kind.RECORD, 1, offset=0),
    event(18, "b", Kind.COMMITTED, 1, offset=1),
    event(19, "b", Kind.LEFT),
]
COMMITTED = {0: 2, 1: 1}


def judged(*more: Event, without: Event | None = None) -> list[str]:
    events = [each for each in CLEAN if each is not without]
    return violations([*events, *more], ENDS, COMMITTED, GAP_MAX_S)


def test_a_clean_history_has_no_violation() -> None:
    assert judged() == []


@pytest.mark.parametrize(
    ("more", "law"),
    [
        (event(5.5, "c", Kind.ASSIGNED, 0), "two owners: c got partition 0"),
        (event(4.5, "c", Kind.ASSIGNED, 1), "two owners: a got partition 1"),
        (event(6.5, "b", Kind.REVOKED, 0), "gap: nobody had partition 0 after 6.5"),
        (event(18.5, "b", Kind.RECORD, 0, offset=2), "phantom: partition 0"),
        (event(18.5, "b", Kind.COMMITTED, 0, offset=1), "committed went back: b committed 1"),
        (event(3.5, "a", Kind.COMMITTED, 0, offset=2), "committed went back: b began partition 0 at 1"),
        (event(18.5, "b", Kind.COMMITTED, 0, offset=3), "committed went back: partition 0 has 2 in the end"),
    ],
)
def test_an_anomaly_is_found_and_named(more: Event, law: str) -> None:
    assert any(law in sentence for sentence in judged(more))


def test_a_client_that_does_not_resume_may_begin_early_but_loses_no_commit() -> None:
    early = event(3.5, "a", Kind.COMMITTED, 0, offset=2)
    assert judged(early) != []
    assert violations([*CLEAN, early], ENDS, COMMITTED, GAP_MAX_S, resumes=False) == []
    lost = violations([*CLEAN, early], ENDS, {0: 1, 1: 1}, GAP_MAX_S, resumes=False)
    assert lost == ["committed went back: partition 0 has 1 in the end, 2 was committed"]


@pytest.mark.parametrize(
    ("without", "law"),
    [
        (CLEAN[2 + 1], "two owners: b got partition 0"),
        (CLEAN[6], "unread: 1 records of partition 0, from 1 to 1"),
        (CLEAN[10], "gap: nobody had partition 1 after 8.0"),
    ],
)
def test_what_did_not_happen_is_found_and_named(without: Event, law: str) -> None:
    assert any(law in sentence for sentence in judged(without=without))


def test_a_partition_without_a_member_for_too_long_is_a_gap() -> None:
    late = [
        event(1, "a", Kind.ASSIGNED, 0),
        event(2, "a", Kind.KILLED),
        event(11.5, "b", Kind.ASSIGNED, 0),
    ]
    assert violations(late, {0: 0}, {}, GAP_MAX_S) == ["gap: nobody had partition 0 for 9.500 s from 2.000"]
    assert violations([], {0: 0}, {}, GAP_MAX_S) == ["gap: nobody ever had partition 0"]


def test_holders_are_those_whose_partitions_nothing_took() -> None:
    assert holders(CLEAN[:6]) == {0: {"b"}, 1: {"a"}}
    assert holders(CLEAN) == {}
    assert sorted((h.member, h.partition, h.until) for h in holdings(CLEAN)) == [
        ("a", 0, 4),
        ("a", 1, 4),
        ("a", 1, 8),
        ("b", 0, 19),
        ("b", 1, 19),
    ]


@pytest.mark.parametrize("end", [Kind.KILLED, Kind.FENCED, Kind.FATAL])
def test_who_was_ended_by_another_holds_nothing_from_then_on(end: Kind) -> None:
    events = [event(1, "a", Kind.ASSIGNED, 0, 1), event(2, "a", end), event(3, "b", Kind.ASSIGNED, 0, 1)]
    assert holders(events) == {0: {"b"}, 1: {"b"}}
    assert [holding.until for holding in holdings(events) if holding.member == "a"] == [2, 2]
