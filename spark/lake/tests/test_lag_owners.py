"""Owners of partitions and subscribed topics are read from the groups of both protocols; bytes of a client that cannot
be decoded name nothing."""

from __future__ import annotations

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from kafscale.lake.lag.owners import Owner, is_managed, owners, subscriptions
from kafscale.storage.groups import (
    ClassicGroup,
    ClassicMember,
    ClassicProtocol,
    ConsumerGroup,
    ConsumerMember,
    ConsumerMemberState,
    GroupState,
    TopicPartitions,
)
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic

TOPIC = Topic(name="orders", topic_id=TopicId(b"1" * 16), partitions=3)


def member(name: str, assignment: bytes) -> ClassicMember:
    return ClassicMember(
        id=name,
        client_id=f"{name}-client",
        client_host="/10.0.0.1",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        assignment=assignment,
    )


def classic(*members: ClassicMember, protocol_type: str = "consumer") -> GroupState:
    return GroupState(group="g", state=ClassicGroup(protocol_type=protocol_type, members=members))


def encoded(topics: list[tuple[str, list[int]]], version: int = 0) -> bytes:
    return bytes(ConsumerProtocolMemberAssignment(version, topics, b"user data").encode())


def test_a_classic_members_assignment_says_what_it_reads() -> None:
    found = owners(
        [
            classic(
                member("a", encoded([("orders", [0, 2])])),
                member("b", encoded([("orders", [1]), ("x", [0])], 3)),
            )
        ],
        [TOPIC],
    )
    assert {place: owner.member for place, owner in found.items()} == {
        ("g", "orders", 0): "a",
        ("g", "orders", 2): "a",
        ("g", "orders", 1): "b",
        ("g", "x", 0): "b",
    }
    assert found["g", "orders", 1] == Owner(member="b", client="b-client", host="/10.0.0.1")


def offering(name: str, *topics: str, version: int = 0) -> ClassicMember:
    metadata = bytes(ConsumerProtocolMemberMetadata(version, list(topics), b"user data").encode())
    protocols = (ClassicProtocol(name="range", metadata=metadata),)
    return ClassicMember(id=name, session_timeout_ms=1, rebalance_timeout_ms=1, protocols=protocols)


def test_a_groups_topics_are_those_that_its_members_subscribe_to() -> None:
    group = classic(offering("a", "orders"), offering("b", "orders", "payments", version=3))
    assert subscriptions(group) == {"orders", "payments"}
    assert subscriptions(classic(offering("a", "orders"), protocol_type="connect")) == frozenset()
    subscriber = ConsumerMember(
        id="m",
        member_epoch=1,
        previous_epoch=0,
        state=ConsumerMemberState.STABLE,
        rebalance_timeout_ms=1,
        subscribed=("orders",),
    )
    new = ConsumerGroup(group_epoch=1, assignment_epoch=1, members=(subscriber,))
    assert subscriptions(GroupState(group="k", state=new)) == {"orders"}


@pytest.mark.parametrize(
    ("state", "managed"),
    [
        (ClassicGroup(protocol_type="consumer"), True),
        (ConsumerGroup(group_epoch=1, assignment_epoch=1), True),
        (ClassicGroup(), False),
    ],
)
def test_a_group_that_only_commits_offsets_is_not_managed(
    state: ClassicGroup | ConsumerGroup, managed: bool
) -> None:
    assert is_managed(GroupState(group="g", state=state)) is managed
    assert not is_managed(None)


def test_a_consumer_groups_member_owns_what_it_was_given_of_topics_that_exist() -> None:
    gone = TopicId(b"2" * 16)
    given_to = ConsumerMember(
        id="m",
        client_id="c",
        client_host="/h",
        member_epoch=1,
        previous_epoch=0,
        state=ConsumerMemberState.STABLE,
        rebalance_timeout_ms=1,
        assigned=(
            TopicPartitions(topic_id=TOPIC.topic_id, partitions=(1, 2)),
            TopicPartitions(topic_id=gone, partitions=(0,)),
        ),
    )
    group = ConsumerGroup(group_epoch=1, assignment_epoch=1, members=(given_to,))
    found = owners([GroupState(group="k", state=group)], [TOPIC])
    assert set(found) == {("k", "orders", 1), ("k", "orders", 2)}


def test_groups_of_other_protocols_own_no_partitions() -> None:
    assert owners([classic(member("w", encoded([("orders", [0])])), protocol_type="connect")], [TOPIC]) == {}


def test_bytes_that_cannot_be_decoded_own_and_want_nothing() -> None:
    protocols = (ClassicProtocol(name="range", metadata=b"\0"),)
    broken = ClassicMember(
        id="m", session_timeout_ms=1, rebalance_timeout_ms=1, protocols=protocols, assignment=b"\0"
    )
    assert owners([classic(broken)], [TOPIC]) == {}
    assert subscriptions(classic(broken)) == frozenset()
