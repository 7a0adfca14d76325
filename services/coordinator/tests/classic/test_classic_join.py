"""JoinGroup as Kafka answers it: who waits, who is told at once, who is refused."""

import pytest
from kafscale.coordinator.classic.model import Member, MemberId, Phase, Rules
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.classic.classic_desk import RANGE, REBALANCE_MS, SESSION_MS, Desk

OTHER = (("range", RANGE[0][1] + b"changed"),)
BOTH = (("range", b"r"), ("sticky", b"s"))
STICKY_FIRST = (("sticky", b"s"), ("range", b"r"))
PROMPT = Rules(initial_rebalance_delay_ms=0)


def test_the_first_rebalance_waits_for_the_initial_delay() -> None:
    desk = Desk()
    desk.join("a")
    desk.wait(2_999)
    assert desk.waits("a")
    desk.wait(1)
    assert desk.joined("a").generation == 1


def test_without_a_delay_the_first_member_is_answered_at_once() -> None:
    assert Desk(PROMPT).join("a") is ErrorCode.NONE


def test_the_initial_delay_is_prolonged_while_members_come_up_to_the_rebalance_timeout() -> None:
    desk = Desk()
    desk.join("a", rebalance_ms=10_000)
    for number, name in enumerate("bcdefg"):
        desk.wait(2_000)
        assert desk.waits("a") == (number < 4), name
        desk.join(name, rebalance_ms=10_000)
    assert len(desk.joined("a").members) == 5, "the last of them came too late"


def test_a_quiet_delay_ends_the_first_rebalance() -> None:
    desk = Desk()
    desk.join("a")
    desk.wait(1_000)
    desk.join("b")
    desk.wait(2_000)
    assert desk.waits("a"), "b has come since"
    desk.wait(3_000)
    assert len(desk.joined("a").members) == 2


def test_only_the_leader_hears_of_the_members_and_their_metadata() -> None:
    desk = Desk()
    desk.stable("a", "b", b=OTHER)
    assert [(m.member_id, m.metadata) for m in desk.joined("a").members] == [
        (desk.ids["a"], RANGE[0][1]),
        (desk.ids["b"], OTHER[0][1]),
    ]
    assert desk.joined("b").members == ()
    assert desk.joined("b").leader == desk.ids["a"]
    assert desk.joined("b").protocol_type == "consumer"


def test_an_empty_member_id_gets_one_from_v4_on_and_is_to_come_back_with_it() -> None:
    desk = Desk(PROMPT)
    assert desk.join("a", v4=True) is ErrorCode.MEMBER_ID_REQUIRED
    assert desk.group.phase is Phase.EMPTY
    assert desk.join("a", v4=True) is ErrorCode.NONE
    assert [*desk.group.members] == [desk.ids["a"]]
    assert not desk.group.pending


def test_before_v4_and_for_static_members_no_id_is_required() -> None:
    desk = Desk(PROMPT)
    assert desk.join("a") is ErrorCode.NONE
    assert desk.join("s", instance="s", v4=True) is None


def test_an_id_that_nobody_takes_up_is_forgotten_after_the_session_timeout() -> None:
    desk = Desk(PROMPT)
    desk.join("a", v4=True)
    desk.wait(SESSION_MS)
    assert not desk.group.pending
    assert desk.join("a", v4=True) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_nobody_takes_up_does_not_stall_a_rebalance() -> None:
    desk = Desk()
    desk.stable("a", "b")
    desk.join("c", v4=True)
    desk.join("a")
    desk.join("b")
    assert desk.joined("a").generation == 2


def test_ids_given_out_are_bounded_and_the_oldest_goes_first() -> None:
    desk = Desk(Rules(group_size_max=2))
    for name in "abc":
        desk.join(name, v4=True)
    assert [*desk.group.pending] == [desk.ids["b"], desk.ids["c"]]
    assert desk.join("a", v4=True) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_protocol_with_the_most_votes_among_the_common_ones_is_chosen() -> None:
    desk = Desk()
    desk.stable("a", "b", "c", a=BOTH, b=STICKY_FIRST, c=(("roundrobin", b""), *STICKY_FIRST))
    assert desk.group.protocol_name == "sticky"
    assert {m.metadata for m in desk.joined("a").members} == {b"s"}


@pytest.mark.parametrize(
    ("protocol_type", "offer"),
    [("connect", RANGE), ("consumer", ()), ("consumer", (("other", b""),))],
)
def test_who_has_nothing_in_common_with_the_group_is_refused(
    protocol_type: str, offer: tuple[tuple[str, bytes], ...]
) -> None:
    desk = Desk()
    desk.stable("a")
    error = desk.join("b", protocol_type=protocol_type, offer=offer)
    assert error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert desk.phase is Phase.STABLE


@pytest.mark.parametrize(("protocol_type", "offer"), [("", RANGE), ("consumer", ())])
def test_an_empty_group_needs_a_type_and_a_protocol(
    protocol_type: str, offer: tuple[tuple[str, bytes], ...]
) -> None:
    error = Desk().join("a", protocol_type=protocol_type, offer=offer)
    assert error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_may_change_its_type() -> None:
    desk = Desk(PROMPT)
    desk.stable("a")
    desk.leave("a")
    assert desk.join("b", protocol_type="connect") is ErrorCode.NONE
    assert desk.group.protocol_type == "connect"


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_timeout_out_of_range_is_refused(session_ms: int) -> None:
    assert Desk().join("a", session_ms=session_ms) is ErrorCode.INVALID_SESSION_TIMEOUT


def test_too_many_protocols_or_bytes_are_refused_and_nothing_changes() -> None:
    desk = Desk(Rules(protocols_max=2, metadata_bytes_max=200, state_bytes_max=280))
    assert desk.join("a", offer=(*BOTH, ("third", b""))) is ErrorCode.INVALID_REQUEST
    assert desk.join("a", offer=(("range", b"x" * 200),)) is ErrorCode.INVALID_REQUEST
    assert not desk.group.members
    assert desk.join("a", offer=(("range", b"x" * 120),)) is None
    assert desk.join("b", offer=(("range", b"x" * 120),)) is ErrorCode.INVALID_REQUEST, "together"
    assert len(desk.group.members) == 1


def test_a_newcomer_makes_a_stable_group_rebalance_until_all_have_joined() -> None:
    desk = Desk()
    desk.stable("a", "b")
    desk.join("c")
    assert desk.heartbeat("a") is desk.heartbeat("b") is ErrorCode.REBALANCE_IN_PROGRESS
    desk.join("b")
    assert desk.waits("c")
    desk.join("a")
    assert not desk.judge.open
    assert desk.generations == {"a": 2, "b": 2, "c": 2}
    assert desk.group.leader == desk.ids["a"], "it keeps the lead"


def test_the_leaders_own_join_rebalances_although_nothing_changed() -> None:
    desk = Desk()
    desk.stable("a", "b")
    assert desk.join("a") is None
    assert desk.phase is Phase.PREPARING_REBALANCE


def test_a_followers_unchanged_join_gets_the_generation_back() -> None:
    desk = Desk()
    desk.stable("a", "b")
    assert desk.join("b") is ErrorCode.NONE
    assert desk.joined("b").generation == 1
    assert desk.joined("b").leader == desk.ids["a"]
    assert desk.phase is Phase.STABLE


def test_a_followers_changed_metadata_rebalances() -> None:
    desk = Desk()
    desk.stable("a", "b")
    assert desk.join("b", offer=OTHER) is None
    assert desk.phase is Phase.PREPARING_REBALANCE


def test_a_join_repeated_while_completing_gets_the_same_generation() -> None:
    desk = Desk()
    desk.join("a")
    desk.join("b")
    desk.wait(6_000)
    assert desk.phase is Phase.COMPLETING_REBALANCE
    first = desk.joined("a")
    assert desk.join("a") is ErrorCode.NONE
    again = desk.joined("a")
    assert [(m.member_id, m.metadata) for m in again.members] == [
        (m.member_id, m.metadata) for m in first.members
    ]
    assert desk.join("b", offer=OTHER) is None
    assert desk.phase is Phase.PREPARING_REBALANCE


def test_changed_metadata_while_completing_sends_the_waiting_back() -> None:
    desk = Desk()
    desk.join("a")
    desk.join("b")
    desk.wait(6_000)
    assert desk.sync("b") is None
    desk.join("a", offer=OTHER)
    assert desk.error("b") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_second_join_of_a_member_answers_the_first() -> None:
    desk = Desk()
    desk.stable("a", "b")
    desk.join("b", offer=OTHER)
    assert desk.join("b", offer=OTHER) is None
    assert desk.error("b") is ErrorCode.REBALANCE_IN_PROGRESS
    desk.join("a")
    assert desk.joined("b").generation == 2


def test_the_rebalance_waits_for_the_longest_rebalance_timeout_and_drops_who_has_not_joined() -> None:
    desk = Desk()
    desk.join("a", rebalance_ms=20_000)
    desk.join("b", rebalance_ms=40_000)
    desk.wait(6_000)
    desk.sync("b")
    desk.sync("a")
    desk.join("c", rebalance_ms=20_000)
    desk.join("a", rebalance_ms=20_000)
    desk.wait(39_999, "b")
    assert desk.waits("a"), "b lives, and still processes what it had"
    desk.wait(1, "b")
    assert [m.member_id for m in desk.joined("a").members] == [desk.ids["a"], desk.ids["c"]]
    assert desk.heartbeat("b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_join_in_time_loses_the_lead() -> None:
    desk = Desk()
    desk.stable("a", "b")
    desk.join("b", offer=OTHER)
    desk.wait(REBALANCE_MS, "a")
    assert desk.group.leader == desk.ids["b"]
    assert len(desk.joined("b").members) == 1


def test_a_leader_that_leaves_during_the_joins_is_succeeded() -> None:
    desk = Desk()
    desk.stable("a", "b", "c")
    desk.join("b", offer=OTHER)
    assert desk.leave("a") == [ErrorCode.NONE]
    desk.join("c")
    assert desk.joined("b").leader == desk.ids["b"]
    assert len(desk.joined("b").members) == 2


def test_the_group_has_a_maximal_size() -> None:
    desk = Desk(Rules(group_size_max=2))
    desk.stable("a", "b")
    assert desk.join("c") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.phase is Phase.STABLE
    assert desk.join("b") is ErrorCode.NONE


def test_while_members_join_the_ones_that_have_joined_count() -> None:
    desk = Desk(Rules(group_size_max=2))
    desk.stable("a", "b")
    desk.join("b", offer=OTHER)
    assert desk.join("c") is None, "a has not joined yet"
    assert desk.join("a") is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.joined("b").generation == 2, "the one that was turned away is not waited for"
    assert {*desk.group.members} == {desk.ids["b"], desk.ids["c"]}


def test_a_member_id_that_nobody_has_is_unknown() -> None:
    desk = Desk()
    desk.stable("a")
    desk.ids["x"] = MemberId("somebody")
    assert desk.join("x") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_newcomers_parked_join_does_not_wait_for_ever() -> None:
    desk = Desk(Rules(new_member_join_timeout_ms=20_000))
    desk.join("a", rebalance_ms=400_000)
    desk.wait(6_000)
    desk.sync("a")
    desk.join("b", rebalance_ms=400_000)
    desk.wait(20_000, "a")
    assert desk.error("b") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_newcomer_whose_connection_is_gone_is_dropped_after_a_session() -> None:
    desk = Desk()
    desk.stable("a")
    desk.join("b")
    desk.vanish("b")
    desk.join("a")
    assert desk.waits("a")
    desk.wait(SESSION_MS)
    assert len(desk.joined("a").members) == 1


def test_version_0_has_no_rebalance_timeout_and_means_the_session_timeout() -> None:
    desk = Desk()
    desk.join("a", rebalance_ms=-1)
    member: Member = next(iter(desk.group.members.values()))
    assert member.rebalance_timeout_ms == SESSION_MS
