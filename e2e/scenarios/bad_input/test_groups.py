"""Invalid requests to a group, which do not change the group.

Law: each request gets the right Kafka error or a clean close. Before and after it, the group's member is in the same
generation, commits, and reads its commit back.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import (
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    offset_commit,
    offset_fetch,
    sync_group,
)

from e2e.harness.cluster import Cluster
from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import INT32_MAX, INT32_MIN, TOPIC, ask, usable

pytestmark = pytest.mark.timeout(120)

GROUP = "healthy"
SESSION_MS, REBALANCE_MS = 60_000, 60_000
SHORT_SESSION_MS = 6_000
METADATA_BYTES_MAX = 4_096
ELEMENTS_MAX = 131_072


def joining(group: str, member_id: str = "", *, session_ms: int = SESSION_MS, protocols: int = 1) -> Any:
    return join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[
            join_group.JoinGroupRequestProtocol(name=f"range{number}", metadata=b"m")
            for number in range(protocols)
        ],
    )


@dataclass(slots=True)
class Member:
    """A member of a classic group, with versions from before members had to request an id first."""

    raw: Raw
    group: str
    member_id: str = ""
    generation: int = 0

    def join(self) -> None:
        joined = ask(self.raw, join_group, 3, joining(self.group, self.member_id))
        assert joined.error_code == ErrorCode.NONE
        self.member_id, self.generation = joined.member_id, joined.generation_id

    def sync(self, *strangers: str, generation: int | None = None) -> tuple[int, bytes]:
        """Error and assignment. This leader also assigns something to unknown members."""
        given = {self.member_id: b"mine"} | dict.fromkeys(strangers, b"theirs")
        request = sync_group.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
            assignments=[
                sync_group.SyncGroupRequestAssignment(member_id=name, assignment=share)
                for name, share in given.items()
            ],
        )
        answer = ask(self.raw, sync_group, 3, request)
        return answer.error_code, answer.assignment

    def beat(self, generation: int | None = None) -> int:
        request = heartbeat.HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.member_id,
        )
        return int(ask(self.raw, heartbeat, 3, request).error_code)

    def commit(self, *metadata: str, generation: int | None = None, version: int = 7) -> list[int]:
        """Partition by partition, each with its metadata."""
        partitions = [
            offset_commit.OffsetCommitRequestPartition(
                partition_index=index, committed_offset=7, committed_metadata=text
            )
            for index, text in enumerate(metadata or ("m",))
        ]
        request = offset_commit.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation if generation is None else generation,
            member_id=self.member_id,
            topics=[offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
        )
        (topic,) = ask(self.raw, offset_commit, version, request).topics
        return [partition.error_code for partition in topic.partitions]

    def fetched(self, version: int = 7) -> list[tuple[int, int]]:
        """Offset and error of both partitions."""
        topic = offset_fetch.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])
        request = offset_fetch.OffsetFetchRequest(group_id=self.group, topics=[topic])
        (told,) = ask(self.raw, offset_fetch, version, request).topics
        return [(partition.committed_offset, partition.error_code) for partition in told.partitions]

    def is_healthy(self) -> bool:
        return self.beat() == 0 and self.commit() == [0] and self.fetched()[0] == (7, 0)


def members_of(raw: Raw, group: str) -> list[str]:
    (told,) = ask(raw, describe_groups, 5, describe_groups.DescribeGroupsRequest(groups=[group])).groups
    return [member.member_id for member in told.members]


@pytest.fixture(scope="module")
def member(cluster: Cluster) -> Iterator[Member]:
    with Raw.to(cluster.bootstrap) as raw:
        member = Member(raw, GROUP)
        member.join()
        assert member.sync() == (0, b"mine")
        yield member


@pytest.fixture(autouse=True)
def healthy(member: Member) -> Iterator[None]:
    assert member.is_healthy()
    generation = member.generation
    yield
    assert member.is_healthy()
    assert member.generation == generation
    assert members_of(member.raw, GROUP) == [member.member_id]


@pytest.mark.parametrize("skew", [-1, 1, INT32_MAX - 1, INT32_MIN])
def test_a_wrong_generation_is_illegal(raw: Raw, member: Member, skew: int) -> None:
    same = Member(raw, GROUP, member.member_id, member.generation)
    wrong = member.generation + skew
    assert same.beat(wrong) == ErrorCode.ILLEGAL_GENERATION
    assert same.sync(generation=wrong)[0] == ErrorCode.ILLEGAL_GENERATION
    assert same.commit(generation=wrong) == [ErrorCode.ILLEGAL_GENERATION]


@pytest.mark.parametrize("name", ["stranger", "", "n" * 30_000, "\0", "größe"])
def test_a_member_that_nobody_knows_is_unknown(raw: Raw, member: Member, name: str) -> None:
    nobody = Member(raw, GROUP, name, member.generation)
    leaving = leave_group.LeaveGroupRequest(group_id=GROUP, member_id=name)
    assert nobody.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert nobody.sync()[0] == ErrorCode.UNKNOWN_MEMBER_ID
    assert nobody.commit() == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert ask(raw, leave_group, 2, leaving).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    if name:
        assert ask(raw, join_group, 3, joining(GROUP, name)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", [0, 1, 2, 7])
def test_metadata_that_is_too_long_is_refused_with_its_partition_alone(raw: Raw, version: int) -> None:
    simple = Member(raw, f"simple-{version}", generation=-1)
    fits, too_long = "m" * METADATA_BYTES_MAX, "m" * (METADATA_BYTES_MAX + 1)
    assert simple.commit(fits, too_long, version=version) == [0, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert simple.fetched() == [(7, 0), (-1, 0)]
    assert simple.fetched(version=0) == [(7, 0), (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


@pytest.mark.parametrize("group", [GROUP, "new"])
def test_who_offers_no_protocol_is_inconsistent_with_any_group(raw: Raw, group: str) -> None:
    answer = ask(raw, join_group, 3, joining(group, protocols=0))
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert members_of(raw, "new") == []


@pytest.mark.parametrize("group", [GROUP, "new"])
def test_a_hundred_thousand_protocols_are_an_invalid_request(raw: Raw, group: str) -> None:
    answer = ask(raw, join_group, 3, joining(group, protocols=100_000))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert members_of(raw, "new") == []


def test_more_protocols_than_a_message_may_have_elements_end_the_connection(raw: Raw) -> None:
    request = joining(GROUP, protocols=ELEMENTS_MAX + 1)
    with pytest.raises(Closed):
        ask(raw, join_group, 3, request)


def test_an_assignment_for_a_stranger_is_nobodys(raw: Raw) -> None:
    leader = Member(raw, "leads")
    leader.join()
    assert leader.sync("stranger", "", "n" * 30_000) == (0, b"mine")
    assert members_of(raw, "leads") == [leader.member_id]
    assert leader.is_healthy()
    assert usable(raw)


def test_who_closes_its_half_while_it_waits_to_join_leaves_the_group_to_the_others(
    cluster: Cluster, raw: Raw
) -> None:
    first = Member(raw, "half")
    first.join()
    assert first.sync() == (0, b"mine")
    with Raw.to(cluster.bootstrap) as half:
        request = joining("half", session_ms=SHORT_SESSION_MS)
        half.request(join_group.API_KEY, 3, join_group.encode_request(request, 3))
        half.socket.shutdown(socket.SHUT_WR)
        assert half.is_closed(), "without an answer: it waited for the first member"
    assert first.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    first.join()
    assert first.generation == 2
    assert first.sync() == (0, b"mine")
    assert members_of(raw, "half") == [first.member_id]
    assert first.is_healthy()
