"""Beside heartbeats: commits and fetches of offsets, expressions, deletion, description, restoration."""

import pytest
from kafscale.coordinator.consumer import subscriptions
from kafscale.coordinator.consumer.machine import durable, next_deadline, restore, state_of
from kafscale.coordinator.consumer.model import (
    Deadlines,
    Delete,
    GroupState,
    PersistedGroup,
    Rules,
    TopicInfo,
)
from kafscale.coordinator.handlers.consumer_group_describe import describe
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.consumer_group_describe import ConsumerGroupDescribeResponseAssignment as Assignment
from kafscale.wire.schema.consumer_group_describe import (
    ConsumerGroupDescribeResponseMember as DescribedMember,
)
from kafscale.wire.schema.consumer_group_describe import (
    ConsumerGroupDescribeResponseTopicPartitions as TopicPartitions,
)

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

NONE, STALE, UNKNOWN, NO_GROUP = (
    ErrorCode.NONE,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


@pytest.mark.parametrize(
    ("member_id", "epoch", "commit", "fetch"),
    [
        ("one", 2, NONE, NONE),
        ("one", 1, STALE, STALE),
        ("one", 3, STALE, STALE),
        ("one", -1, STALE, STALE),
        ("who", 2, UNKNOWN, UNKNOWN),
        ("", 2, UNKNOWN, UNKNOWN),
        ("", -1, UNKNOWN, UNKNOWN),
    ],
)
def test_offsets_are_for_members_at_their_epoch(
    member_id: str, epoch: int, commit: ErrorCode, fetch: ErrorCode
) -> None:
    desk = pair_sharing_a()
    before = desk.group
    assert desk.commit(member_id, epoch) is commit
    assert desk.fetch(member_id, epoch) is fetch
    assert desk.group == before


def test_without_members_an_admin_client_may_commit() -> None:
    desk = Desk()
    assert (desk.commit("", -1), desk.fetch(None, -1)) == (NONE, NONE)
    assert (desk.commit("one", 1), desk.fetch("one", 1)) == (NO_GROUP, NONE)
    desk.join("one", "a")
    assert (desk.commit("", -1), desk.fetch(None, -1)) == (UNKNOWN, NONE)
    desk.wait(SESSION_MS)
    assert desk.state is GroupState.EMPTY
    assert (desk.commit("", -1), desk.commit("one", 1)) == (NONE, UNKNOWN)


@pytest.mark.parametrize(
    ("member_id", "epoch", "instance_id", "error"),
    [
        ("one", 2, None, NONE),
        ("one", 1, None, ErrorCode.ILLEGAL_GENERATION),
        ("one", -1, None, ErrorCode.ILLEGAL_GENERATION),
        ("who", 2, None, UNKNOWN),
        ("", 2, None, UNKNOWN),
        ("", -1, "static", UNKNOWN),
        ("", -1, None, NONE),
    ],
)
def test_a_transactional_commit_has_a_member_or_none(
    member_id: str, epoch: int, instance_id: str | None, error: ErrorCode
) -> None:
    """The version says nothing of members, and another epoch is the error that its clients know."""
    desk = pair_sharing_a()
    assert desk.commit(member_id, epoch, instance_id=instance_id, version=3, transactional=True) is error


def test_a_transactional_commit_of_a_group_that_does_not_exist() -> None:
    desk = Desk()
    assert desk.commit("one", 1, transactional=True) is ErrorCode.ILLEGAL_GENERATION
    assert desk.commit("", -1, transactional=True) is NONE


def test_a_member_commits_by_a_version_that_knows_member_epochs() -> None:
    desk = pair_sharing_a()
    assert desk.commit("one", 2, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert desk.commit("who", 2, version=8) is UNKNOWN


# --- expressions -------------------------------------------------------------------------------


def test_an_expression_subscribes_to_what_it_matches_as_a_whole_beside_the_names() -> None:
    desk = Desk({**TOPICS, "ab": TopicInfo(C, 1)})
    desk.join("one", "b", subscribed_regex="a")
    assert desk.member("one").assigned.keys() == {A, B}
    desk.heartbeat("one", 1, subscribed_regex="a.*")
    desk.heartbeat("one", 2)
    assert desk.member("one").assigned.keys() == {A, B, C}
    reply = desk.heartbeat("one", 2, subscribed_names=(), subscribed_regex="")
    assert reply.assignment == {}
    assert describe(desk.group, desk.rules).members[0].subscribed_topic_regex == ""


def test_an_expression_alone_is_a_subscription() -> None:
    desk = Desk()
    reply = desk.join("one", subscribed_names=None, subscribed_regex="b|c")
    assert reply.assignment == parts(B, 0, 1)
    desk.set_topics({**TOPICS, "c": TopicInfo(C, 1)})
    assert desk.heartbeat("one", 1).assignment == parts(B, 0, 1) | parts(C, 0)
    assert subscriptions.subscribed_topics(desk.group) == {"b", "c"}


@pytest.mark.parametrize("expression", ["(", "a**", r"(a)\1", "(?=a)", "a{1001}", "\ud800"])
def test_what_re2_does_not_take_is_no_expression(expression: str) -> None:
    desk = Desk()
    join = {"rebalance_timeout_ms": 1, "subscribed_regex": expression, "owned": {}}
    assert desk.refused("one", 0, **join) is ErrorCode.INVALID_REGULAR_EXPRESSION
    desk.join("one", "a", subscribed_regex="b")
    assert (
        desk.refused("one", 1, subscribed_regex=expression, rack_id="moved")
        is ErrorCode.INVALID_REGULAR_EXPRESSION
    )
    assert desk.member("one").assigned.keys() == {A, B}


def test_an_expression_takes_time_linear_in_the_name() -> None:
    """With `re` this would outlast the universe."""
    assert not subscriptions.matching("(a*)*b", {"a" * 200: TopicInfo(A, 1)})


# --- deletion, description, restoration --------------------------------------------------------


def delete(desk: Desk) -> ErrorCode:
    (reply,) = desk.do(Delete(token=7))
    error: ErrorCode = reply.error
    return error


def test_only_an_empty_group_can_be_deleted() -> None:
    desk = Desk()
    assert delete(desk) is ErrorCode.GROUP_ID_NOT_FOUND
    desk.join("one", "a")
    assert delete(desk) is ErrorCode.NON_EMPTY_GROUP
    desk.heartbeat("one", -1)
    assert delete(desk) is NONE
    assert (desk.state, durable(desk.group)) == (GroupState.DEAD, PersistedGroup(group_id="g"))
    assert desk.join("one", "a").member_epoch == 1


def test_a_description_tells_what_is_and_what_will_be() -> None:
    desk = Desk()
    desk.join("one", "a", client_id="cid", client_host="/h", rack_id="r", server_assignor="range")
    desk.join("two", "a", subscribed_regex="a|z", instance_id="i")
    described = describe(desk.group, desk.rules)
    assert (described.group_id, described.group_state, described.assignor_name) == (
        "g",
        "Reconciling",
        "range",
    )
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)

    def some_of_a(*numbers: int) -> Assignment:
        topic = TopicPartitions(topic_id=A, topic_name="a", partitions=[*numbers])
        return Assignment(topic_partitions=[topic])

    assert described.members == [
        DescribedMember(
            member_id="one",
            instance_id=None,
            rack_id="r",
            member_epoch=1,
            client_id="cid",
            client_host="/h",
            subscribed_topic_names=["a"],
            subscribed_topic_regex="",
            assignment=some_of_a(0, 1, 2, 3),
            target_assignment=some_of_a(2, 3),
            member_type=1,
        ),
        DescribedMember(
            member_id="two",
            instance_id="i",
            rack_id=None,
            member_epoch=2,
            client_id="",
            client_host="",
            subscribed_topic_names=["a"],
            subscribed_topic_regex="a|z",
            assignment=Assignment(),
            target_assignment=some_of_a(0, 1),
            member_type=1,
        ),
    ]
    desk.set_topics({})
    assert describe(desk.group, desk.rules).members[0].assignment == Assignment()


def test_the_assignor_is_what_most_ask_for_and_the_default_among_equals() -> None:
    desk = Desk()
    desk.join("one", "a", server_assignor="range")
    assert describe(desk.group, desk.rules).assignor_name == "range"
    desk.join("two", "a", server_assignor="uniform")
    assert describe(desk.group, desk.rules).assignor_name == "uniform"
    desk.join("three", "a", server_assignor="range")
    assert describe(desk.group, desk.rules).assignor_name == "range"


def test_restored_is_the_same_group_with_full_sessions() -> None:
    desk = pair_sharing_a()
    desk.join("three", "a", rebalance_timeout_ms=9_000)
    desk.heartbeat("two", 2)
    persisted = durable(desk.group)
    group = restore(persisted, 1_000_000, TOPICS, desk.rules)
    assert durable(group) is persisted
    assert group.topics == TOPICS
    full = 1_000_000 + SESSION_MS
    assert group.deadlines == {
        "one": Deadlines(full, None),
        "two": Deadlines(full, 1_000_000 + 60_000),
        "three": Deadlines(full, None),
    }
    assert next_deadline(group) == full


def test_restored_among_other_topics_a_group_is_in_a_new_epoch() -> None:
    desk = pair_sharing_a()
    persisted = durable(desk.group)
    group = restore(persisted, 0, {**TOPICS, "a": TopicInfo(A, 5)}, desk.rules)
    assert durable(group).epoch == persisted.epoch + 1
    assert state_of(durable(group)) is GroupState.ASSIGNING
    unmade = restore(PersistedGroup(group_id="g"), 0, TOPICS, Rules())
    assert durable(unmade) == PersistedGroup(group_id="g")
