"""Static members: an instance id outlives the member that has it."""

from kafscale.coordinator.consumer.machine import durable
from kafscale.coordinator.consumer.model import GroupState, MemberState
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.consumer.consumer_desk import SESSION_MS, A, Desk, parts


def static_pair() -> Desk:
    desk = Desk()
    desk.join("one", "a", instance_id="i")
    desk.join("two", "a", instance_id="j")
    desk.heartbeat("one", 1, instance_id="i", owned=parts(A, 0, 1))
    desk.heartbeat("two", 2, instance_id="j")
    assert desk.state is GroupState.STABLE
    return desk


def test_an_instance_id_in_use_is_unreleased() -> None:
    desk = static_pair()
    join = {"rebalance_timeout_ms": 60_000, "subscribed_names": ("a",), "owned": {}}
    assert desk.refused("other", 0, instance_id="i", **join) is ErrorCode.UNRELEASED_INSTANCE_ID


def test_the_next_member_of_an_instance_takes_over_without_a_rebalance() -> None:
    desk = static_pair()
    left = desk.heartbeat("one", -2, instance_id="i")
    assert (left.error, left.member_id, left.member_epoch) == (ErrorCode.NONE, "one", -2)
    assert desk.state is GroupState.RECONCILING
    assert desk.heartbeat("two", 2, instance_id="j").assignment is None

    heir = desk.join("three", "a", instance_id="i")
    assert (heir.member_epoch, heir.assignment) == (2, parts(A, 0, 1))
    assert desk.group.persisted.epoch == 2
    assert set(desk.group.persisted.members) == set(desk.group.persisted.target) == {"two", "three"}
    assert desk.state is GroupState.STABLE


def test_the_member_before_is_fenced() -> None:
    desk = static_pair()
    desk.heartbeat("one", -2, instance_id="i")
    assert desk.refused("one", 2, instance_id="i") is ErrorCode.FENCED_MEMBER_EPOCH
    desk.join("three", "a", instance_id="i")
    assert desk.refused("one", 2, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert desk.refused("one", -2, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert desk.refused("one", 2, instance_id="unheard of") is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.refused("one", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_session_of_who_went_for_a_while_ends_as_it_would_have() -> None:
    desk = static_pair()
    desk.wait(20_000)
    desk.heartbeat("two", 2, instance_id="j")
    desk.heartbeat("one", -2, instance_id="i")
    desk.wait(SESSION_MS - 20_000)
    assert set(desk.group.persisted.members) == {"two"}
    assert desk.heartbeat("two", 2, instance_id="j").assignment == parts(A, 0, 1, 2, 3)


def test_who_comes_back_under_its_old_id_is_served() -> None:
    desk = static_pair()
    lost = desk.join("one", "a", instance_id="i")
    assert (lost.error, lost.member_epoch) == (ErrorCode.NONE, 2), "its answer was lost, or it was fenced"
    desk.heartbeat("one", -2, instance_id="i")
    back = desk.join("one", "a", instance_id="i")
    assert (back.member_epoch, back.assignment) == (2, parts(A, 0, 1))


def test_who_goes_while_it_revokes_owes_nothing_any_more() -> None:
    desk = static_pair()
    desk.join("three", "a")
    desk.heartbeat("two", 2, instance_id="j")
    assert desk.member("two").state is MemberState.UNREVOKED_PARTITIONS
    desk.heartbeat("two", -2, instance_id="j")
    gone = desk.member("two")
    assert (gone.state, gone.revoking) == (MemberState.STABLE, {})
    assert desk.group.deadlines["two"].rebalance_ms is None
    assert desk.heartbeat("three", 3).assignment == parts(A, 3)


def test_an_heir_under_the_id_of_another_member_replaces_both() -> None:
    desk = static_pair()
    desk.heartbeat("one", -2, instance_id="i")
    desk.join("two", "a", instance_id="i")
    assert set(desk.group.persisted.members) == {"two"}
    assert desk.member("two").instance_id == "i"
    assert desk.group.persisted.epoch == 3, "what it had under its own name is free"
    assert desk.member("two").assigned == parts(A, 0, 1, 2, 3)


def test_to_leave_for_good_an_instance_must_be_who_it_says() -> None:
    desk = static_pair()
    assert desk.refused("one", -1, instance_id="j") is ErrorCode.FENCED_INSTANCE_ID
    assert desk.heartbeat("one", -1, instance_id="i").member_epoch == -1
    assert desk.state is GroupState.ASSIGNING


def test_an_heir_may_bring_another_subscription() -> None:
    desk = static_pair()
    desk.heartbeat("one", -2, instance_id="i")
    desk.join("three", "b", instance_id="i")
    assert desk.group.persisted.epoch == 3
    assert desk.member("three").assigned.keys() == {bytes([2] * 16)}


def test_leaving_twice_for_a_while_is_leaving_once() -> None:
    desk = static_pair()
    desk.heartbeat("one", -2, instance_id="i")
    before = durable(desk.group)
    assert desk.heartbeat("one", -2, instance_id="i").error is ErrorCode.NONE
    assert durable(desk.group) == before
