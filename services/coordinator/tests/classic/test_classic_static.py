"""Static members (KIP-345): they come back without a rebalance, and fence their former selves."""

import pytest
from kafscale.coordinator.classic.machine import durable
from kafscale.coordinator.classic.model import Phase, Rules
from kafscale.storage.groups import ClassicPhase
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.classic.classic_desk import RANGE, REBALANCE_MS, SESSION_MS, Desk
from services.coordinator.tests.classic.classic_laws import made_for

OTHER = (("range", RANGE[0][1] + b"changed"),)
BOTH = (("range", b"r"), ("sticky", b"s"))
STICKY = (("sticky", b"s"),)
STICKY_FIRST = (("sticky", b"s"), ("range", b"r"))


def test_a_static_follower_comes_back_without_a_rebalance() -> None:
    desk = Desk()
    desk.stable("a", "s1")
    former = desk.ids["s1"]
    assert desk.join("s1", anew=True) is ErrorCode.NONE
    assert desk.phase is Phase.STABLE
    assert desk.ids["s1"] != former
    assert desk.joined("s1").generation == 1
    assert desk.joined("s1").leader == desk.ids["a"]
    assert desk.joined("s1").members == ()
    assert desk.sync("s1") is ErrorCode.NONE
    assert desk.synced("s1").assignment == made_for(1, "s1")


def test_a_static_leader_before_v9_is_not_told_that_it_leads() -> None:
    desk = Desk()
    desk.stable("s1", "b")
    former = desk.ids["s1"]
    assert desk.join("s1", anew=True) is ErrorCode.NONE
    assert desk.joined("s1").leader == former
    assert desk.joined("s1").members == ()
    assert not desk.joined("s1").skip_assignment
    assert desk.group.leader == desk.ids["s1"]
    assert desk.sync("s1") is ErrorCode.NONE
    assert desk.synced("s1").assignment == made_for(1, "s1")


def test_a_static_leader_from_v9_on_is_told_to_skip_the_assignment() -> None:
    desk = Desk()
    desk.stable("s1", "b")
    assert desk.join("s1", anew=True, v9=True) is ErrorCode.NONE
    assert desk.joined("s1").leader == desk.ids["s1"]
    assert [m.member_id for m in desk.joined("s1").members] == [desk.ids["s1"], desk.ids["b"]]
    assert desk.joined("s1").skip_assignment
    assert desk.join("s1", v9=True) is None, "joining again with its id it leads as before"


def test_a_static_follower_skips_nothing() -> None:
    desk = Desk()
    desk.stable("a", "s1")
    desk.join("s1", anew=True, v9=True)
    assert not desk.joined("s1").skip_assignment


def test_a_replacement_is_saved_and_keeps_the_place_of_the_former() -> None:
    desk = Desk()
    desk.stable("s1", "b")
    desk.join("s1", anew=True)
    persisted = durable(desk.group)
    assert persisted is not None
    assert [m.id for m in persisted.members] == [desk.ids["s1"], desk.ids["b"]]
    assert persisted.leader == desk.ids["s1"]
    assert persisted.phase is ClassicPhase.STABLE


def test_the_former_self_is_fenced_everywhere() -> None:
    desk = Desk()
    desk.stable("a", "s1")
    desk.ids["old"], desk.instances["old"] = desk.ids["s1"], desk.instances["s1"]
    desk.generations["old"] = desk.generations["s1"]
    desk.join("s1", anew=True)
    assert desk.heartbeat("old") is ErrorCode.FENCED_INSTANCE_ID
    assert desk.sync("old", given={}) is ErrorCode.FENCED_INSTANCE_ID
    assert desk.commit("old") is ErrorCode.FENCED_INSTANCE_ID
    assert desk.join("old") is ErrorCode.FENCED_INSTANCE_ID
    assert desk.leave("old") == [ErrorCode.FENCED_INSTANCE_ID]
    del desk.instances["old"]
    assert desk.heartbeat("old") is ErrorCode.UNKNOWN_MEMBER_ID, "without the instance id it is nobody"
    assert len(desk.group.members) == 2


def test_a_parked_join_of_the_former_self_is_fenced() -> None:
    desk = Desk()
    desk.stable("a", "s1")
    desk.join("s1", offer=OTHER)
    former = desk.ids["s1"]
    assert desk.join("s1", anew=True) is None
    assert desk.error("s1") is ErrorCode.FENCED_INSTANCE_ID
    assert desk.joined("s1").member_id == former
    desk.join("a")
    assert desk.joined("s1").generation == 2


def test_a_parked_sync_of_the_former_self_is_fenced_and_the_group_rebalances() -> None:
    desk = Desk()
    desk.join("a")
    desk.join("s1", instance="s1")
    desk.wait(6_000)
    desk.sync("s1")
    assert desk.join("s1", anew=True) is None
    assert desk.error("s1") is ErrorCode.FENCED_INSTANCE_ID
    assert desk.phase is Phase.PREPARING_REBALANCE, "the leader may have assigned to the former id"


def test_a_static_member_that_changes_the_chosen_protocol_makes_a_rebalance() -> None:
    desk = Desk()
    desk.stable("a", "s1", a=BOTH, s1=STICKY_FIRST)
    assert desk.group.protocol_name == "range", "the earlier member breaks the tie"
    assert desk.join("s1", anew=True, offer=STICKY) is None
    desk.join("a", offer=BOTH)
    assert desk.group.protocol_name == "sticky"


def test_a_static_member_that_turns_the_vote_makes_a_rebalance() -> None:
    desk = Desk()
    desk.stable("a", "s1", "b", a=BOTH, s1=BOTH, b=STICKY_FIRST)
    assert desk.group.protocol_name == "range"
    assert desk.join("s1", anew=True, offer=STICKY_FIRST) is None


def test_new_metadata_alone_makes_none_and_is_what_the_group_knows_from_then_on() -> None:
    desk = Desk()
    desk.stable("a", "s1")
    assert desk.join("s1", anew=True, offer=OTHER) is ErrorCode.NONE
    assert desk.group.members[desk.ids["s1"]].metadata == OTHER[0][1]


def test_a_static_member_is_unknown_by_another_instance_id() -> None:
    desk = Desk()
    desk.stable("a", "s1")
    assert desk.join("s1", instance="s2") is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.heartbeat("s1") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_pending_id_cannot_be_taken_up_by_a_static_member() -> None:
    desk = Desk()
    desk.join("a", v4=True)
    assert desk.join("a", instance="s1") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_join_in_time_stays_until_it_does_not_sync_either() -> None:
    """As in Kafka: it survives the joins of a rebalance, not the whole of it."""
    desk = Desk()
    desk.join("a")
    desk.join("s1", instance="s1", session_ms=1_800_000)
    desk.wait(6_000)
    desk.sync("s1")
    desk.sync("a")
    desk.join("a")
    desk.wait(REBALANCE_MS)
    assert len(desk.joined("a").members) == 2
    assert desk.sync("a") is ErrorCode.NONE
    desk.wait(REBALANCE_MS, "a")
    assert [*desk.group.members] == [desk.ids["a"]]


def test_static_members_alone_are_waited_for_until_their_sessions_end() -> None:
    desk = Desk()
    desk.join("a")
    desk.join("s1", instance="s1", session_ms=200_000)
    desk.wait(6_000)
    desk.sync("s1")
    desk.sync("a")
    desk.leave("a")
    desk.wait(3 * REBALANCE_MS)
    assert desk.phase is Phase.PREPARING_REBALANCE
    desk.wait(20_000)
    assert desk.phase is Phase.EMPTY


def test_a_static_member_that_is_waited_for_may_come_back() -> None:
    desk = Desk()
    desk.stable("a", "s1")
    desk.leave("a")
    assert desk.join("s1", anew=True) is ErrorCode.NONE
    assert desk.joined("s1").leader == desk.ids["s1"]
    assert desk.joined("s1").generation == 2


def test_a_full_group_takes_a_static_member_back() -> None:
    desk = Desk(Rules(group_size_max=2))
    desk.stable("a", "s1")
    assert desk.join("s1", anew=True) is ErrorCode.NONE
    assert desk.join("b") is ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("by", ["=s1", "s1"])
def test_a_static_member_leaves_by_its_instance_id_or_both(by: str) -> None:
    desk = Desk()
    desk.stable("a", "s1")
    assert desk.leave(by) == [ErrorCode.NONE]
    assert [*desk.group.members] == [desk.ids["a"]]


def test_a_static_members_session_ends_like_anothers() -> None:
    desk = Desk()
    desk.stable("a", "s1")
    desk.wait(SESSION_MS, "a")
    assert [*desk.group.members] == [desk.ids["a"]]


def test_the_lead_once_passed_on_is_not_taken_back_by_whoever_was_there_first() -> None:
    desk = Desk()
    desk.join("s1", instance="s1", session_ms=1_800_000)
    desk.join("b")
    desk.wait(6_000)
    desk.sync("b")
    desk.sync("s1")
    desk.join("b", offer=OTHER)
    desk.wait(REBALANCE_MS)
    assert desk.joined("b").leader == desk.ids["b"]
    desk.sync("b")
    assert desk.join("s1", anew=True) is ErrorCode.NONE
    desk.join("b", offer=RANGE)
    desk.join("s1")
    assert desk.joined("s1").leader == desk.ids["b"]
