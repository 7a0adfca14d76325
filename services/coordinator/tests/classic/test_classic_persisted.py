"""What survives a crash, and what OffsetDelete, ListGroups and DescribeGroups are told."""

import struct

import pytest
from kafscale.coordinator.classic.machine import durable, next_deadline, restore
from kafscale.coordinator.classic.model import Phase
from kafscale.coordinator.classic.queries import describe, offset_delete_refusal, state_of, subscribed_topics
from kafscale.storage.groups import ClassicGroup, ClassicPhase
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.classic.classic_desk import RANGE, REBALANCE_MS, SESSION_MS, Desk

OTHER = (("range", RANGE[0][1] + b"changed"),)


def subscription(*topics: bytes, version: int = 3, rest: bytes = b"\xff\xff\xff\xff") -> bytes:
    named = b"".join(struct.pack(">h", len(topic)) + topic for topic in topics)
    return struct.pack(">hi", version, len(topics)) + named + rest


def persisted(desk: Desk) -> ClassicGroup:
    value = durable(desk.group)
    assert value is not None
    return value


def test_a_stable_group_is_stable_again_with_full_sessions() -> None:
    desk = Desk()
    desk.stable("a", "s1")
    desk.wait(9_000)
    desk.crash()
    assert desk.phase is Phase.STABLE
    assert next_deadline(desk.group) == desk.judge.now_ms + SESSION_MS
    assert desk.heartbeat("a") is desk.heartbeat("s1") is desk.commit("a") is ErrorCode.NONE
    assert desk.sync("s1") is ErrorCode.NONE
    assert desk.join("s1", anew=True) is ErrorCode.NONE, "a static member is one by its instance id"


def test_a_half_made_rebalance_starts_over_and_members_are_told_to_join_again() -> None:
    desk = Desk()
    desk.stable("a", "b")
    desk.join("c")
    desk.crash()
    assert desk.phase is Phase.PREPARING_REBALANCE
    assert desk.heartbeat("a") is ErrorCode.REBALANCE_IN_PROGRESS
    assert desk.sync("b") is ErrorCode.REBALANCE_IN_PROGRESS
    desk.join("a")
    desk.join("b")
    assert desk.generations["a"] == desk.generations["b"] == 2


def test_a_crash_before_the_assignment_loses_nobody() -> None:
    desk = Desk()
    desk.join("a")
    desk.join("b")
    desk.wait(6_000)
    desk.sync("b")
    desk.crash()
    assert [*desk.group.members] == [desk.ids["a"], desk.ids["b"]]
    assert desk.heartbeat("b") is ErrorCode.REBALANCE_IN_PROGRESS
    desk.join("b")
    desk.join("a")
    assert desk.generations == {"a": 2, "b": 2}


def test_a_rebalance_that_starts_over_has_an_end() -> None:
    desk = Desk()
    desk.stable("a", "b")
    desk.join("c")
    desk.crash()
    desk.join("a")
    desk.wait(REBALANCE_MS, "b")
    assert desk.joined("a").generation == 2
    assert len(desk.joined("a").members) == 1


def test_newcomers_are_not_saved_before_their_generation() -> None:
    desk = Desk()
    desk.stable("a")
    before = persisted(desk)
    desk.join("b", v4=True)
    assert persisted(desk) == before
    desk.join("b", v4=True)
    assert [m.id for m in persisted(desk).members] == [desk.ids["a"]]
    assert persisted(desk).phase is ClassicPhase.PREPARING_REBALANCE
    at_begin = persisted(desk)
    desk.join("c")
    assert persisted(desk) == at_begin, "each further one costs no write"


def test_a_first_rebalance_saves_nothing_until_it_is_done() -> None:
    desk = Desk()
    desk.join("a")
    assert durable(desk.group) is None
    desk.wait(3_000)
    assert persisted(desk).generation == 1


def test_after_a_crash_a_group_that_was_left_is_empty_and_its_generation_goes_on() -> None:
    desk = Desk()
    desk.stable("a")
    desk.leave("a")
    desk.crash()
    assert desk.phase is Phase.EMPTY
    assert desk.group.exists
    desk.stable("b")
    assert desk.generations["b"] == 3


def test_a_leader_that_was_never_saved_is_succeeded_after_a_crash() -> None:
    desk = Desk()
    desk.stable("a", "b")
    desk.join("c")
    desk.join("b", offer=OTHER)
    desk.leave("a")
    desk.crash()
    assert desk.group.leader == desk.ids["b"]


def test_restoring_knows_only_the_chosen_protocol() -> None:
    desk = Desk()
    desk.stable("a", a=(("range", b"r"), ("sticky", b"s")))
    group = restore(persisted(desk), 0)
    assert group.members[desk.ids["a"]].protocols == (("range", b"r"),)


def test_a_simple_commit_makes_a_group_that_is_saved() -> None:
    desk = Desk()
    desk.commit("nobody", generation=-1)
    desk.crash()
    assert desk.group.exists
    assert state_of(desk.group) == "Empty"


# --- queries -----------------------------------------------------------------------------------


def test_a_stable_group_is_described_with_metadata_and_assignments() -> None:
    desk = Desk()
    desk.stable("a", "s1")
    told = describe("g", desk.group)
    assert (told.group_state, told.protocol_type, told.protocol_data) == ("Stable", "consumer", "range")
    member = told.members[1]
    assert member.group_instance_id == "s1"
    assert (member.client_id, member.client_host) == ("client-s1", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (RANGE[0][1], b"1/s1")


def test_the_states_are_printed_as_kafka_prints_them() -> None:
    desk = Desk()
    states = [state_of(desk.group)]
    desk.join("a", v4=True)
    states.append(state_of(desk.group))
    desk.join("a", v4=True)
    states.append(state_of(desk.group))
    desk.wait(3_000)
    told = describe("g", desk.group)
    states.append(told.group_state)
    assert (told.protocol_data, told.members[0].member_metadata) == ("", b""), "in Stable only"
    desk.sync("a")
    states.append(state_of(desk.group))
    desk.leave("a")
    desk.delete()
    states.append(state_of(desk.group))
    assert states == [
        "Dead",
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]


def test_the_subscribed_topics_are_read_from_the_members_metadata() -> None:
    desk = Desk()
    assert subscribed_topics(desk.group) == frozenset()
    one, two = (("range", subscription(b"t", b"u")),), (("range", subscription(b"u", b"v", version=0)),)
    desk.stable("a", "b", a=one, b=two)
    assert subscribed_topics(desk.group) == {"t", "u", "v"}
    desk.join("c", offer=(("range", subscription(b"w")),))
    assert subscribed_topics(desk.group) == {"t", "u", "v"}, "c is in no generation yet"


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\0",
        b"\0\0\0\0\0",
        b"\0\0\0\0\0\1",
        b"\0\0\0\0\0\1\0\5abc",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\0\0\0\1\xff\xff",
        b"\0\0\0\0\0\1\0\1\xff",
        b"\0\0\x7f\xff\xff\xff\0\1a",
    ],
)
def test_metadata_that_cannot_be_read_tells_nothing(metadata: bytes) -> None:
    desk = Desk()
    desk.stable("a", a=(("range", metadata),))
    assert subscribed_topics(desk.group) is None


def test_offsets_of_groups_with_members_that_are_no_consumers_cannot_be_deleted() -> None:
    desk = Desk()
    assert offset_delete_refusal(desk.group) is ErrorCode.GROUP_ID_NOT_FOUND
    desk.commit("nobody", generation=-1)
    assert offset_delete_refusal(desk.group) is ErrorCode.NONE
    desk.join("a", protocol_type="connect", v4=True)
    desk.join("a", protocol_type="connect", v4=True)
    assert offset_delete_refusal(desk.group) is ErrorCode.NON_EMPTY_GROUP
    assert subscribed_topics(desk.group) is None
    desk.leave("a")
    desk.join("b")
    assert offset_delete_refusal(desk.group) is ErrorCode.NONE
    assert subscribed_topics(desk.group) is None, "no protocol is chosen yet"
