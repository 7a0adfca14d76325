"""Heartbeats one by one: joining, the way of a partition, epochs, and each error."""

from typing import Any

import pytest
from kafscale.coordinator.consumer.machine import durable, next_deadline
from kafscale.coordinator.consumer.model import (
    Deadlines,
    GroupState,
    MemberState,
    Rules,
    TopicInfo,
    TopicsChanged,
)
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.consumer.consumer_desk import (
    SESSION_MS,
    TOPICS,
    A,
    B,
    C,
    Desk,
    pair_sharing_a,
    parts,
)

JOIN: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_names": ("a",), "owned": {}}


def test_the_first_member_gets_all_at_once_at_epoch_one() -> None:
    desk = Desk()
    assert desk.state is GroupState.DEAD
    told = desk.join("one", "a", "b", "nowhere")
    assert (told.error, told.member_id, told.member_epoch) == (ErrorCode.NONE, "one", 1)
    assert told.heartbeat_interval_ms == 5_000
    assert told.assignment == {A: frozenset(range(4)), B: frozenset(range(2))}
    assert desk.state is GroupState.STABLE


def test_in_version_0_the_server_draws_the_id_and_in_version_1_the_client() -> None:
    desk = Desk()
    assert desk.refused("", 0, **JOIN) is ErrorCode.INVALID_REQUEST
    assert desk.join("", "a", version=0).member_id == "drawn"
    assert desk.join("mine", "a", version=0).member_id == "mine"


@pytest.mark.parametrize(
    ("epoch", "said"),
    [
        (0, JOIN | {"rebalance_timeout_ms": -1}),
        (0, JOIN | {"rebalance_timeout_ms": 0}),
        (0, JOIN | {"owned": None}),
        (0, JOIN | {"owned": parts(A, 0)}),
        (0, JOIN | {"subscribed_names": None}),
        (0, JOIN | {"instance_id": ""}),
        (0, JOIN | {"rack_id": ""}),
        (0, JOIN | {"rack_id": "r" * 513}),
        (0, JOIN | {"instance_id": "i" * 513}),
        (0, JOIN | {"subscribed_names": ("n" * 513,)}),
        (0, JOIN | {"subscribed_names": tuple(str(number) for number in range(1_001))}),
        (0, JOIN | {"subscribed_regex": "x" * 2_049}),
        (1, {"rebalance_timeout_ms": -2}),
        (-2, {}),
        (-3, {}),
        (-3, {"instance_id": "i"}),
    ],
)
def test_a_malformed_heartbeat_is_an_invalid_request(epoch: int, said: dict[str, Any]) -> None:
    desk = Desk()
    assert desk.refused("one", epoch, **said) is ErrorCode.INVALID_REQUEST
    desk.join("one", "a")
    assert desk.refused("one", epoch, **said) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("epoch", [-1, 1])
def test_only_who_joins_by_version_0_may_have_no_id(epoch: int) -> None:
    assert Desk().refused("", epoch, version=0) is ErrorCode.INVALID_REQUEST


def test_a_member_id_has_a_bound_and_what_is_only_shown_is_cut() -> None:
    desk = Desk()
    assert desk.refused("m" * 513, 0, **JOIN) is ErrorCode.INVALID_REQUEST
    desk.join("one", "a", client_id="é" * 300, client_host="/10.0.0.1")
    assert desk.member("one").client_id == "é" * 256


def test_a_server_assignor_that_does_not_exist_is_unsupported() -> None:
    assert Desk().refused("one", 0, **JOIN, server_assignor="sticky") is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_a_full_group_takes_nobody_else_and_serves_those_it_has() -> None:
    desk = Desk(rules=Rules(members_max=1))
    desk.join("one", "a", instance_id="i")
    assert desk.refused("two", 0, **JOIN) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert desk.heartbeat("one", 1).error is ErrorCode.NONE
    desk.heartbeat("one", -2, instance_id="i")
    assert desk.join("two", "a", instance_id="i").error is ErrorCode.NONE


def test_who_is_no_member_is_told_so() -> None:
    desk = Desk()
    assert desk.refused("one", 1) is ErrorCode.GROUP_ID_NOT_FOUND
    desk.join("one", "a")
    assert desk.refused("two", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.refused("two", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.refused("two", 1, instance_id="i") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_partition_is_given_when_its_owner_says_that_it_revoked_it_and_not_before() -> None:
    desk = Desk()
    desk.join("one", "a")
    two = desk.join("two", "a")
    assert (two.member_epoch, two.assignment) == (2, {})
    assert desk.member("two").state is MemberState.UNRELEASED_PARTITIONS

    one = desk.heartbeat("one", 1)
    assert (one.member_epoch, one.assignment) == (1, parts(A, 0, 1))
    assert desk.member("one").state is MemberState.UNREVOKED_PARTITIONS
    assert desk.state is GroupState.RECONCILING
    assert desk.heartbeat("two", 2).assignment is None
    assert desk.heartbeat("one", 1).assignment is None, "it says nothing of what it owns"
    assert desk.heartbeat("one", 1, owned=parts(A, 0, 1, 2)).member_epoch == 1
    assert desk.heartbeat("two", 2).assignment is None

    assert desk.heartbeat("one", 1, owned=parts(A, 0, 1)).member_epoch == 2
    assert desk.heartbeat("two", 2).assignment == parts(A, 2, 3)
    assert desk.state is GroupState.STABLE


def test_a_plain_heartbeat_of_a_stable_group_changes_nothing_durable() -> None:
    desk = pair_sharing_a()
    before = durable(desk.group)
    desk.now_ms = 3_000
    reply = desk.heartbeat("one", 2)
    assert (reply.error, reply.member_epoch, reply.assignment) == (ErrorCode.NONE, 2, None)
    assert durable(desk.group) is before
    assert desk.heartbeat("one", 2, owned=parts(A, 0, 1)).assignment is None
    assert durable(desk.group) is before


def test_who_says_all_is_told_all_though_nothing_changed() -> None:
    desk = pair_sharing_a()
    all_said = {"rebalance_timeout_ms": 60_000, "subscribed_names": ("a",), "owned": parts(A, 0, 1)}
    before = durable(desk.group)
    assert desk.heartbeat("one", 2, **all_said).assignment == parts(A, 0, 1)
    assert durable(desk.group) is before


def test_another_epoch_is_fenced() -> None:
    desk = pair_sharing_a()
    assert desk.refused("one", 3) is ErrorCode.FENCED_MEMBER_EPOCH
    desk.join("three", "b")
    desk.heartbeat("one", 2)
    assert desk.member("one").epoch == 3
    assert desk.refused("one", 1, owned=parts(A, 0)) is ErrorCode.FENCED_MEMBER_EPOCH


def test_the_epoch_before_passes_when_the_answer_was_lost() -> None:
    desk = pair_sharing_a()
    desk.join("three", "b")
    lost = desk.heartbeat("one", 2)
    assert lost.member_epoch == 3
    assert desk.refused("one", 2) is ErrorCode.FENCED_MEMBER_EPOCH, "it does not say what it owns"
    foreign = parts(A, 0, 2)
    assert desk.refused("one", 2, owned=foreign) is ErrorCode.FENCED_MEMBER_EPOCH, "more than it may"
    again = desk.heartbeat("one", 2, owned=parts(A, 0, 1))
    assert (again.error, again.member_epoch, again.assignment) == (ErrorCode.NONE, 3, parts(A, 0, 1))


def test_a_join_whose_answer_was_lost_is_answered_again() -> None:
    desk = Desk()
    first = desk.join("one", "a")
    assert desk.join("one", "a") == first
    assert durable(desk.group).epoch == 1


def test_who_joins_again_owns_nothing_and_keeps_its_epoch() -> None:
    desk = pair_sharing_a()
    desk.join("three", "a")
    assert desk.heartbeat("two", 2).member_epoch == 2
    assert desk.member("two").state is MemberState.UNREVOKED_PARTITIONS
    again = desk.join("two", "a")
    assert again.member_epoch == 3
    assert desk.member("two").revoking == {}


def test_who_leaves_frees_its_partitions() -> None:
    desk = pair_sharing_a()
    left = desk.heartbeat("two", -1)
    assert (left.error, left.member_id, left.member_epoch) == (ErrorCode.NONE, "two", -1)
    assert desk.state is GroupState.ASSIGNING
    assert desk.heartbeat("one", 2).assignment == parts(A, 0, 1, 2, 3)
    desk.heartbeat("one", -1)
    assert desk.state is GroupState.EMPTY
    assert next_deadline(desk.group) is None


def test_who_is_silent_for_a_session_is_fenced() -> None:
    desk = pair_sharing_a()
    desk.wait(SESSION_MS - 1)
    desk.heartbeat("one", 2)
    desk.wait(1)
    assert list(desk.group.persisted.members) == ["one"]
    assert desk.refused("two", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert next_deadline(desk.group) == 2 * SESSION_MS - 1


def test_who_does_not_revoke_in_time_is_fenced_though_it_heartbeats() -> None:
    desk = Desk()
    desk.join("one", "a", rebalance_timeout_ms=30_000)
    desk.join("two", "a")
    desk.heartbeat("one", 1)
    for _ in range(2):
        desk.wait(10_000)
        assert desk.heartbeat("one", 1, owned=parts(A, 0, 1, 2, 3)).error is ErrorCode.NONE
    assert next_deadline(desk.group) == 30_000
    desk.wait(10_000)
    assert desk.refused("one", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert desk.heartbeat("two", 2).assignment == parts(A, 0, 1, 2, 3)


def test_an_impatient_rebalance_timeout_is_bounded_above() -> None:
    desk = Desk()
    desk.join("one", "a", rebalance_timeout_ms=2**31 - 1)
    assert desk.member("one").rebalance_timeout_ms == 3_600_000


def test_a_changed_subscription_makes_an_epoch_and_takes_what_is_not_wanted() -> None:
    desk = Desk()
    desk.join("one", "a", "b")
    reply = desk.heartbeat(
        "one", 1, subscribed_names=("b",), owned={A: frozenset(range(4)), B: frozenset((0, 1))}
    )
    assert reply.assignment == parts(B, 0, 1)
    assert (reply.member_epoch, desk.group.persisted.epoch) == (1, 2)
    assert desk.heartbeat("one", 1, owned=parts(B, 0, 1)).member_epoch == 2
    assert desk.heartbeat("one", 2, subscribed_names=("b", "b")).member_epoch == 2, "the same set"


def test_a_topic_that_changes_makes_an_epoch_only_if_somebody_is_subscribed() -> None:
    desk = Desk()
    desk.join("one", "a", "later")
    before = durable(desk.group)
    desk.set_topics({**TOPICS, "b": TopicInfo(B, 9), "other": TopicInfo(C, 1)})
    assert durable(desk.group) is before
    desk.set_topics({**TOPICS, "later": TopicInfo(C, 1)})
    assert desk.state is GroupState.ASSIGNING
    reply = desk.heartbeat("one", 1)
    assert (reply.member_epoch, reply.assignment) == (2, {A: frozenset(range(4)), C: frozenset((0,))})
    desk.set_topics({"later": TopicInfo(C, 1)})
    assert desk.heartbeat("one", 2).assignment == parts(C, 0)


def test_a_topic_made_again_under_its_name_is_another_one() -> None:
    desk = Desk()
    desk.join("one", "a")
    desk.set_topics({"a": TopicInfo(C, 4)})
    assert desk.heartbeat("one", 1).assignment == {}
    assert desk.heartbeat("one", 1, owned={}).assignment == parts(C, 0, 1, 2, 3)


def test_what_is_due_in_a_step_is_not_due_after_it() -> None:
    desk = pair_sharing_a()
    desk.now_ms = SESSION_MS
    desk.do(TopicsChanged(topics=TOPICS))
    assert desk.state is GroupState.EMPTY
    assert desk.group.deadlines == {}


def test_a_heartbeat_that_is_just_in_time_saves_its_member() -> None:
    desk = pair_sharing_a()
    desk.now_ms = SESSION_MS
    assert desk.heartbeat("one", 2).error is ErrorCode.NONE
    assert desk.group.deadlines == {"one": Deadlines(2 * SESSION_MS, None)}
