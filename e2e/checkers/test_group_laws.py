"""The laws that the simulator holds the members of a group to: each can be broken, and what is allowed breaks none."""

from __future__ import annotations

from collections.abc import Sequence

from tools.simulator.groups.laws import LATE_S, NOTHING_COMMITTED, Commit, Ledger

SESSION_S = 6.0


def ledger(*, eras_by_partition: bool = False) -> Ledger:
    return Ledger("group", SESSION_S, eras_by_partition)


def sent(laws: Ledger, offset: int, at_s: float, era: int = 1, partition: int = 0) -> Commit:
    commit = Commit(offset, era, at_s)
    laws.commit_sent(partition, commit)
    return commit


def acknowledged(laws: Ledger, offset: int, at_s: float, era: int = 1, partition: int = 0) -> None:
    laws.commit_acknowledged(partition, sent(laws, offset, at_s, era, partition), at_s + 0.1)


def is_lost(laws: Ledger, offset: int) -> bool:
    """Whether this answer of OffsetFetch breaks the law."""
    before = len(laws.broken)
    laws.offset_found(0, laws.of(0).asked(), offset)
    return laws.broken[before:] != [] and laws.broken[-1].startswith("lost commit")


def laws_of(laws: Ledger) -> Sequence[str]:
    return [each.partition(":")[0] for each in laws.broken]


def test_an_acknowledged_offset_is_read_back_and_nothing_older() -> None:
    laws = ledger()
    assert not is_lost(laws, NOTHING_COMMITTED)
    acknowledged(laws, 5, 1.0)
    acknowledged(laws, 9, 2.0)
    assert not is_lost(laws, 9)
    for offset in (NOTHING_COMMITTED, 5, 7, 10):
        assert is_lost(laws, offset)


def test_a_commit_without_an_answer_may_be_there_or_not() -> None:
    laws = ledger()
    acknowledged(laws, 5, 1.0)
    sent(laws, 7, 2.0)
    for offset in (5, 7):
        assert not is_lost(laws, offset)
    acknowledged(laws, 9, 3.0)
    assert not is_lost(laws, 7)  # it came late
    assert is_lost(laws, 5)
    acknowledged(laws, 11, 2.0 + LATE_S + 0.1)
    assert is_lost(laws, 7)


def test_a_commit_without_an_answer_of_an_older_generation_replaces_none_of_a_newer_one() -> None:
    laws = ledger()
    sent(laws, 7, 1.0, era=1)
    acknowledged(laws, 9, 1.5, era=2)
    assert is_lost(laws, 7)
    sent(laws, 8, 2.0, era=1)
    assert is_lost(laws, 8)


def test_a_refused_commit_took_no_effect() -> None:
    laws = ledger()
    laws.commit_refused(0, sent(laws, 7, 1.0))
    assert is_lost(laws, 7)
    assert laws.refused == 1


def test_an_answer_may_be_as_old_as_its_question() -> None:
    laws = ledger()
    acknowledged(laws, 5, 1.0)
    question = laws.of(0).asked()
    acknowledged(laws, 7, 2.0)
    acknowledged(laws, 9, 3.0)
    for offset in (5, 7, 9):
        laws.offset_found(0, question, offset)
    assert laws.broken == []


def test_a_commit_of_an_older_generation_is_refused_once_a_newer_one_has_committed() -> None:
    laws = ledger()
    early = sent(laws, 5, 1.0, era=1)
    acknowledged(laws, 7, 2.0, era=2, partition=1)
    laws.commit_acknowledged(0, early, 3.0)  # it may have been first
    assert laws.broken == []
    acknowledged(laws, 6, 3.0, era=1)
    assert laws_of(laws) == ["zombie"]


def test_members_with_epochs_of_their_own_are_compared_by_partition() -> None:
    laws = ledger(eras_by_partition=True)
    acknowledged(laws, 7, 2.0, era=2, partition=1)
    acknowledged(laws, 6, 3.0, era=1)
    assert laws.broken == []
    acknowledged(laws, 8, 4.0, era=1, partition=1)
    assert laws_of(laws) == ["zombie"]


def test_two_members_of_a_generation_share_no_partition() -> None:
    laws = ledger()
    laws.made(1, {"a": frozenset({0, 1}), "b": frozenset({1, 2})})
    laws.assigned(1, "seat-0", frozenset({0, 1}), 1.0)
    laws.assigned(1, "seat-0", frozenset({0, 1}), 1.0)
    assert laws.broken == []
    laws.assigned(1, "seat-1", frozenset({1, 2}), 1.0)
    assert laws_of(laws) == ["two owners"]


def test_an_assignment_is_one_that_the_leader_of_its_generation_made() -> None:
    laws = ledger()
    laws.made(1, {"a": frozenset({0, 1})})
    laws.assigned(2, "seat-0", frozenset(), 1.0)
    assert laws.broken == []
    laws.assigned(2, "seat-0", frozenset({0, 1}), 1.0)
    assert laws_of(laws) == ["foreign assignment"]


def test_no_call_of_a_past_generation_is_answered_once_a_newer_one_has_its_assignment() -> None:
    laws = ledger()
    laws.assigned(2, "seat-0", frozenset(), 5.0)
    laws.answered_in(2, "seat-1", "Heartbeat", 6.0)
    laws.answered_in(1, "seat-1", "Heartbeat", 4.9)
    assert laws.broken == []
    laws.answered_in(1, "seat-1", "Heartbeat", 5.0)
    assert laws_of(laws) == ["past generation"]


def test_a_partition_is_given_after_its_holder_has_released_it_or_is_no_member() -> None:
    for released in ("released", "left", "silent", "not"):
        laws = ledger(eras_by_partition=True)
        laws.alive("seat-0", 1.0)
        laws.holds(1, "seat-0", {0, 1}, 1.1)
        match released:
            case "released":
                laws.released("seat-0", {0})
            case "left":
                laws.gone("seat-0")
        now_s = 1.0 + SESSION_S if released == "silent" else 2.0
        laws.holds(2, "seat-1", {1}, now_s)
        assert laws_of(laws) == (["two owners"] if released == "not" else []), released


def test_a_member_that_was_answered_within_its_session_is_not_expelled() -> None:
    laws = ledger()
    laws.expelled("seat-0", "UNKNOWN_MEMBER_ID", 1.0)  # nobody knew it yet
    laws.alive("seat-0", 1.0)
    laws.expelled("seat-0", "UNKNOWN_MEMBER_ID", 1.0 + SESSION_S)
    assert laws.broken == []
    laws.alive("seat-0", 10.0)
    laws.expelled("seat-0", "UNKNOWN_MEMBER_ID", 9.9 + SESSION_S)
    assert laws_of(laws) == ["expelled"]


def test_generations_do_not_fall() -> None:
    laws = ledger()
    laws.reached("seat-0", 3, 3)
    assert laws.broken == []
    laws.reached("seat-0", 3, 2)
    assert laws_of(laws) == ["era"]


def test_a_group_goes_on_where_its_members_have_read() -> None:
    laws = ledger()
    laws.begun(0, 0, 1)
    laws.given(0, 5)
    laws.begun(0, 5, 1)
    laws.begun(0, 3, 1)
    assert laws.broken == []
    laws.begun(0, 6, 1)
    assert laws_of(laws) == ["unread"]


def test_the_next_owner_begins_behind_what_the_one_before_committed_even_if_the_answer_comes_later() -> None:
    for offset, laws_broken in ((7, []), (6, ["overtaken"])):
        laws = ledger()
        laws.begun(0, 0, 1)
        laws.given(0, 7)
        pending = sent(laws, 7, 1.0, era=1)
        laws.begun(0, offset, 2)
        laws.commit_acknowledged(0, pending, 2.0)
        assert laws_of(laws) == laws_broken
        laws = ledger()
        laws.begun(0, 0, 1)
        laws.given(0, 7)
        acknowledged(laws, 7, 1.0, era=1)
        laws.begun(0, 5, 1)
        assert laws.broken == []
        laws.begun(0, offset, 2)
        assert laws_of(laws) == laws_broken


def test_a_group_is_done_when_all_records_are_delivered_and_committed() -> None:
    laws = ledger()
    laws.begun(0, 0, 1)
    laws.given(0, 5)
    assert laws.behind({0: 5, 1: 0}, {0: 5, 1: -1}) == []
    assert len(laws.behind({0: 5}, {0: 4})) == 1
    assert len(laws.behind({0: 6}, {0: 6})) == 1
    assert len(laws.behind({0: 5, 1: 1}, {0: 5})) == 1
