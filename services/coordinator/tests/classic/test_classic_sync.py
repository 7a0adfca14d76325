"""SyncGroup, and what the heartbeats and commits of a generation get."""

import pytest
from kafscale.coordinator.classic.machine import durable
from kafscale.coordinator.classic.model import Phase, Rules
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.classic.classic_desk import RANGE, REBALANCE_MS, SESSION_MS, Desk

OTHER = (("range", RANGE[0][1] + b"changed"),)


def completing(*names: str, **offers: tuple[tuple[str, bytes], ...]) -> Desk:
    """A generation that waits for its assignment."""
    desk = Desk()
    for name in names:
        desk.join(name, instance=name if name.startswith("s") else None, offer=offers.get(name, RANGE))
    desk.wait(6_000)
    assert desk.phase is Phase.COMPLETING_REBALANCE
    return desk


def test_everyone_waits_for_the_leader_and_gets_what_it_decided() -> None:
    desk = completing("a", "b", "c")
    assert desk.sync("c") is None
    assert desk.sync("b") is None
    assert desk.sync("a", given={"a": b"0", "b": b"1", "c": b"2"}) is ErrorCode.NONE
    assert [desk.synced(name).assignment for name in "abc"] == [b"0", b"1", b"2"]
    assert desk.synced("c").protocol_type == "consumer"
    assert desk.synced("c").protocol_name == "range"
    assert not desk.judge.open


def test_an_assignment_for_a_stranger_is_ignored_and_who_gets_none_gets_empty_bytes() -> None:
    desk = completing("a", "b")
    desk.sync("b")
    assert desk.sync("a", given={"a": b"0", "stranger": b"1"}) is ErrorCode.NONE
    assert desk.synced("b").assignment == b""
    assert {m.assignment for m in desk.group.members.values()} == {b"0", b""}


def test_only_the_leaders_assignments_count() -> None:
    desk = completing("a", "b")
    assert desk.sync("b", given={"b": b"all of it"}) is None
    desk.sync("a", given={"a": b"0", "b": b"1"})
    assert desk.synced("b").assignment == b"1"


def test_a_late_sync_gets_its_assignment_at_once() -> None:
    desk = completing("a", "b")
    desk.sync("a", given={"b": b"1"})
    assert desk.sync("b") is ErrorCode.NONE
    assert desk.synced("b").assignment == b"1"


@pytest.mark.parametrize("skew", [-1, 1])
def test_a_sync_of_another_generation_is_refused(skew: int) -> None:
    desk = completing("a")
    assert desk.sync("a", generation=1 + skew) is ErrorCode.ILLEGAL_GENERATION


def test_a_sync_names_the_protocol_from_v5_on_and_it_has_to_be_the_chosen_one() -> None:
    desk = completing("a")
    assert desk.sync("a", protocol_type="connect") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.sync("a", protocol_name="sticky") is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.sync("a", protocol_type="consumer", protocol_name="range") is ErrorCode.NONE


def test_a_sync_while_others_join_is_told_to_join() -> None:
    desk = Desk()
    desk.stable("a", "b")
    desk.join("c")
    assert desk.sync("a") is ErrorCode.REBALANCE_IN_PROGRESS


def test_assignments_that_are_too_big_are_refused_and_nothing_changes() -> None:
    desk = completing("a", "b")
    desk.judge.rules = Rules(state_bytes_max=1_000)
    desk.sync("b")
    assert desk.sync("a", given={"b": b"x" * 1_000}) is ErrorCode.INVALID_REQUEST
    assert desk.waits("b")
    assert desk.sync("a", given={"b": b"x"}) is ErrorCode.NONE


def test_a_second_sync_of_a_member_answers_the_first() -> None:
    desk = completing("a", "b")
    desk.sync("b")
    assert desk.sync("b") is None
    assert desk.error("b") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_leader_that_never_syncs_is_dropped_at_the_deadline_although_its_heart_beats() -> None:
    desk = completing("a", "b")
    desk.sync("b")
    desk.wait(REBALANCE_MS, "a")
    assert desk.error("b") is ErrorCode.REBALANCE_IN_PROGRESS
    assert [*desk.group.members] == [desk.ids["b"]]
    assert desk.group.leader == desk.ids["b"]


def test_a_follower_that_never_syncs_is_dropped_at_the_deadline_although_the_group_is_stable() -> None:
    desk = completing("a", "b")
    desk.sync("a")
    assert desk.phase is Phase.STABLE
    desk.wait(REBALANCE_MS - 1, "a", "b")
    assert len(desk.group.members) == 2
    desk.wait(1, "a")
    assert [*desk.group.members] == [desk.ids["a"]]
    assert desk.phase is Phase.PREPARING_REBALANCE


def test_a_sync_whose_connection_is_gone_has_to_come_again() -> None:
    desk = completing("a", "b")
    desk.sync("b")
    desk.vanish("b")
    desk.sync("a")
    assert desk.group.sync_deadline_ms is not None
    assert desk.sync("b") is ErrorCode.NONE
    assert desk.group.sync_deadline_ms is None


def test_who_waits_for_its_assignment_has_no_session_that_could_end() -> None:
    desk = completing("a", "b")
    desk.sync("b")
    desk.wait(2 * SESSION_MS, "a")
    assert desk.sync("a") is ErrorCode.NONE
    assert desk.synced("b").error is ErrorCode.NONE


def test_a_silent_member_is_dropped_when_its_session_ends() -> None:
    desk = Desk()
    desk.stable("a", "b")
    desk.wait(SESSION_MS - 1, "a")
    assert len(desk.group.members) == 2
    desk.wait(1, "a")
    assert [*desk.group.members] == [desk.ids["a"]]
    assert desk.phase is Phase.PREPARING_REBALANCE


def test_a_leader_whose_session_ends_before_its_sync_is_succeeded() -> None:
    desk = completing("a", "b")
    desk.sync("b")
    desk.wait(SESSION_MS)
    assert desk.error("b") is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.join("b") is ErrorCode.NONE
    assert desk.joined("b").leader == desk.ids["b"]


def test_what_a_heartbeat_gets_in_each_phase() -> None:
    desk = Desk()
    assert desk.heartbeat("a", generation=0) is ErrorCode.UNKNOWN_MEMBER_ID
    desk.join("a")
    desk.join("b")
    desk.wait(6_000)
    assert desk.heartbeat("a") is ErrorCode.NONE, "Completing"
    desk.sync("b")
    desk.sync("a")
    assert desk.heartbeat("a") is ErrorCode.NONE, "Stable"
    assert desk.heartbeat("a", generation=0) is ErrorCode.ILLEGAL_GENERATION
    desk.join("c")
    assert desk.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.heartbeat("a", generation=2) is ErrorCode.ILLEGAL_GENERATION


def test_heartbeats_save_nothing() -> None:
    desk = Desk()
    desk.stable("a", "b")
    persisted = durable(desk.group)
    desk.wait(5 * SESSION_MS, "a", "b")
    assert durable(desk.group) == persisted


# --- commits -----------------------------------------------------------------------------------


def test_a_simple_commit_needs_an_empty_group() -> None:
    desk = Desk()
    assert desk.commit("nobody", generation=-1) is ErrorCode.NONE
    assert desk.group.exists
    desk.stable("a")
    assert desk.commit("nobody", generation=-1) is ErrorCode.UNKNOWN_MEMBER_ID
    desk.leave("a")
    assert desk.commit("nobody", generation=-1) is ErrorCode.NONE


def test_a_commit_of_a_member_passes_in_its_generation_only() -> None:
    desk = Desk()
    desk.stable("a", "b")
    assert desk.commit("a") is ErrorCode.NONE
    assert desk.commit("a", generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert desk.commit("a", generation=2) is ErrorCode.ILLEGAL_GENERATION
    assert desk.commit("a", generation=-1) is ErrorCode.ILLEGAL_GENERATION
    assert desk.commit("x", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_what_was_consumed_before_a_rebalance_can_still_be_committed_while_others_join() -> None:
    desk = Desk()
    desk.stable("a", "b")
    desk.join("c")
    assert desk.commit("a") is ErrorCode.NONE
    desk.join("a")
    desk.join("b")
    assert desk.phase is Phase.COMPLETING_REBALANCE
    assert desk.commit("a", generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert desk.commit("a") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_transactional_commit_of_a_member_passes_in_its_generation_whatever_the_rebalance() -> None:
    desk = Desk()
    desk.stable("a")
    assert desk.commit("a", transactional=True) is ErrorCode.NONE
    assert desk.commit("a", generation=0, transactional=True) is ErrorCode.ILLEGAL_GENERATION
    assert desk.commit("a", generation=-1, transactional=True) is ErrorCode.ILLEGAL_GENERATION
    assert desk.commit("x", generation=1, transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID
    desk.join("b")
    desk.join("a")
    assert desk.phase is Phase.COMPLETING_REBALANCE
    assert desk.commit("a") is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.commit("a", transactional=True) is ErrorCode.NONE


def test_a_transactional_commit_without_a_member_passes_beside_members() -> None:
    desk = Desk()
    assert desk.commit("a", generation=3, transactional=True) is ErrorCode.ILLEGAL_GENERATION
    assert desk.commit("nobody", generation=-1, transactional=True) is ErrorCode.NONE
    desk.stable("a")
    assert desk.commit("nobody", generation=-1, transactional=True) is ErrorCode.NONE
    assert desk.commit("nobody", generation=1, transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_transactional_commit_is_no_heartbeat() -> None:
    desk = Desk()
    desk.stable("a")
    before = desk.group
    assert desk.commit("a", transactional=True) is ErrorCode.NONE
    assert desk.group.members == before.members


def test_a_commit_is_a_heartbeat_too() -> None:
    desk = Desk()
    desk.stable("a", "b")
    for _ in range(4):
        desk.wait(SESSION_MS // 2, "b")
        assert desk.commit("a") is ErrorCode.NONE


def test_a_commit_for_a_group_that_does_not_exist() -> None:
    desk = Desk()
    assert desk.commit("a", generation=3) is ErrorCode.ILLEGAL_GENERATION
    assert desk.commit("a", generation=3, names_missing_groups=True) is ErrorCode.GROUP_ID_NOT_FOUND
    desk.commit("nobody", generation=-1)
    assert desk.commit("a", generation=3, names_missing_groups=True) is ErrorCode.UNKNOWN_MEMBER_ID


# --- leaving, deleting -------------------------------------------------------------------------


def test_the_last_one_to_leave_makes_the_group_empty() -> None:
    desk = Desk()
    desk.stable("a")
    assert desk.leave("a") == [ErrorCode.NONE]
    assert desk.phase is Phase.EMPTY
    assert desk.group.generation == 2
    assert desk.leave("a") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_batch_of_leavers_is_one_rebalance_with_an_answer_for_each() -> None:
    desk = Desk()
    desk.stable("a", "b", "c", "s")
    assert desk.leave("a", "nobody", "a", "=s", "=t") == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert {*desk.group.members} == {desk.ids["b"], desk.ids["c"]}
    assert desk.phase is Phase.PREPARING_REBALANCE


def test_who_leaves_while_it_waits_is_answered() -> None:
    desk = completing("a", "b")
    desk.sync("b")
    desk.leave("b")
    assert desk.synced("b").error is ErrorCode.UNKNOWN_MEMBER_ID
    desk.join("c", v4=True)
    desk.join("c", v4=True)
    desk.leave("c")
    assert desk.joined("c").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_not_taken_up_leaves_without_a_rebalance() -> None:
    desk = Desk()
    desk.stable("a")
    desk.join("b", v4=True)
    assert desk.leave("b") == [ErrorCode.NONE]
    assert desk.phase is Phase.STABLE
    assert not desk.group.pending


def test_all_newcomers_may_go_before_the_first_rebalance_ends() -> None:
    desk = Desk()
    desk.join("a", v4=True)
    desk.join("a", v4=True)
    desk.leave("a")
    assert desk.phase is Phase.EMPTY


def test_deleting_needs_a_group_without_members() -> None:
    desk = Desk()
    assert desk.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    desk.stable("a")
    assert desk.delete() is ErrorCode.NON_EMPTY_GROUP
    desk.leave("a")
    assert desk.delete() is ErrorCode.NONE
    assert desk.phase is Phase.DEAD
    assert durable(desk.group) is None
    assert desk.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    assert desk.join("a", anew=True) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_several_rebalances_in_a_row_as_cooperative_members_make_them() -> None:
    desk = Desk()
    desk.stable("a", "b")
    for generation in range(2, 6):
        owned = (("range", RANGE[0][1] + bytes([generation])),)
        desk.join("b", offer=owned)
        desk.join("a", offer=owned)
        assert desk.generations == {"a": generation, "b": generation}
        desk.sync("a", given={"a": b"0", "b": b"1"})
        assert desk.sync("b") is ErrorCode.NONE
    assert {m.metadata for m in desk.group.members.values()} == {owned[0][1]}
