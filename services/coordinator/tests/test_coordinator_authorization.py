"""What the coordinator asks the authorizer: each API in every variant of its right, and what a denial hides."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from kafscale.access.authorizer import Authorizer
from kafscale.access.rules import NotEnforced, Side, needs_of
from kafscale.coordinator import handlers
from kafscale.coordinator.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    describe_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from kafscale.runtime.authorization import Authorization, enforced
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.apis import exported
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.testkit.acls import ALICE, VARIANTS, acl, allowing, authorizer, variant
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import error_codes
from kafscale.wire.schema import consumer_group_describe as describe_consumers_schema
from kafscale.wire.schema import consumer_group_heartbeat as heartbeat_schema
from kafscale.wire.schema import describe_groups as describe_schema
from kafscale.wire.schema import offset_commit as commit_schema
from kafscale.wire.schema import offset_delete as delete_schema
from kafscale.wire.schema import offset_fetch as fetch_schema

from services.coordinator.tests.shell_harness import Coordinator, make_topic, running, turns, until
from services.coordinator.tests.test_group_actor import stable
from services.coordinator.tests.test_offset_handlers import commit_request, fetch_request

T, X = (TopicId(name.encode().ljust(16, b".")) for name in ("t", "x"))
ABSENT_ID = b"absent".ljust(16, b".")
NO_OPERATIONS = -(2**31)


@pytest_asyncio.fixture
async def one(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[Coordinator]:
    for name in ("t", "x"):
        await make_topic(etcd, keyspace, name, partitions=2)
    async with running(etcd, keyspace) as coordinator:
        yield coordinator


def authorize(one: Coordinator, decides: Authorizer) -> None:
    one.context = replace(one.context, authorization=Authorization(decides, Metrics("coordinator")))


async def committed(one: Coordinator, version: int = 10, name: str = "t", topic_id: bytes = T) -> int:
    """The error of a commit for the topic's first partition."""
    request = commit_request()
    request.topics[0].name, request.topics[0].topic_id = name, topic_id
    answer = await one.ask(offset_commit, commit_schema, request, version, principal=ALICE)
    code: int = answer.topics[0].partitions[0].error_code
    return code


async def fetched(one: Coordinator, version: int, **more: Any) -> Any:
    request = fetch_request("g", version, **more)
    answer = await one.ask(offset_fetch, fetch_schema, request, version, principal=ALICE)
    return answer.groups[0] if version >= 8 else answer


async def offsets_deleted(one: Coordinator, *names: str) -> Any:
    part = delete_schema.OffsetDeleteRequestPartition(partition_index=0)
    topics = [delete_schema.OffsetDeleteRequestTopic(name=name, partitions=[part]) for name in names]
    request = delete_schema.OffsetDeleteRequest(group_id="g", topics=topics)
    return await one.ask(offset_delete, delete_schema, request, 0, principal=ALICE)


async def beat(
    one: Coordinator,
    epoch: int,
    *names: str,
    regex: str | None = None,
    principal: str = ALICE,
    member: str = "m",
) -> Any:
    request = heartbeat_schema.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=list(names),
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )
    return await one.ask(consumer_group_heartbeat, heartbeat_schema, request, 1, principal=principal)


def assigned(reply: Any) -> set[bytes]:
    return {bytes(each.topic_id) for each in reply.assignment.topic_partitions}


# ---- offsets


@pytest.mark.parametrize("version", [0, 9, 10])
async def test_offsets_are_committed_with_the_right_to_read_the_topic(one: Coordinator, version: int) -> None:
    for how, allowed in VARIANTS.items():
        authorize(one, variant(how, "TOPIC t READ"))
        assert await committed(one, version) == (0 if allowed else 29), how


async def test_a_denied_offset_is_not_stored_and_those_beside_it_are(one: Coordinator) -> None:
    authorize(one, allowing("TOPIC t READ"))
    request = commit_request(offset=9)
    request.topics.append(replace_topic(request.topics[0], "x", X))
    answer = await one.ask(offset_commit, commit_schema, request, 9, principal=ALICE)
    assert [topic.partitions[0].error_code for topic in answer.topics] == [0, 29]
    authorize(one, allowing("TOPIC * ALL"))
    group = await fetched(one, 10, every=True)
    assert [(topic.topic_id, topic.partitions[0].committed_offset) for topic in group.topics] == [(T, 9)]


def replace_topic(topic: Any, name: str, topic_id: bytes) -> Any:
    return commit_schema.OffsetCommitRequestTopic(
        name=name, topic_id=topic_id, partitions=list(topic.partitions)
    )


@pytest.mark.parametrize("version", range(11))
async def test_offsets_are_fetched_with_the_right_to_describe_the_topic(
    one: Coordinator, version: int
) -> None:
    assert await committed(one) == 0
    for how, allowed in VARIANTS.items():
        authorize(one, variant(how, "TOPIC t DESCRIBE"))
        group = await fetched(one, version)
        first = group.topics[0].partitions[0]
        expected = (7, 0) if allowed else (-1, 29)
        assert (first.committed_offset, first.error_code) == expected, how
        if version >= 2:
            everything = await fetched(one, version, every=True)
            assert (everything.error_code, len(everything.topics)) == (0, int(allowed)), how


async def test_an_id_that_no_topic_has_is_unknown_to_everybody(one: Coordinator) -> None:
    authorize(one, authorizer())
    assert await committed(one, 10, topic_id=ABSENT_ID) == 100
    group = await fetched(one, 10, topic_id=ABSENT_ID)
    assert set(error_codes(group)) == {100}


async def test_offsets_are_deleted_with_the_right_to_read_the_topic(one: Coordinator) -> None:
    for how, allowed in VARIANTS.items():
        authorize(one, allowing("TOPIC * READ"))
        assert await committed(one) == 0
        authorize(one, variant(how, "TOPIC t READ"))
        answer = await offsets_deleted(one, "t")
        assert answer.error_code == 0
        assert answer.topics[0].partitions[0].error_code == (0 if allowed else 29), how


async def test_of_a_denied_topic_nobody_learns_whether_it_exists(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is etcd read for it, which would take longer for an absent one."""
    assert await committed(one) == 0

    async def looked_up() -> bool:
        raise AssertionError("a denied name was looked up")

    monkeypatch.setattr(one.topics, "confirmed", looked_up)
    authorize(one, authorizer())
    for version in (0, 9):
        assert await committed(one, version) == await committed(one, version, "absent") == 29
    answer = await offsets_deleted(one, "t", "absent")
    exists, absent = (repr(topic) for topic in answer.topics)
    assert exists.replace("'t'", "?") == absent.replace("'absent'", "?")
    assert set(error_codes(answer)) == {29}


# ---- groups


async def test_authorized_operations_of_a_group_are_those_of_its_acls(one: Coordinator) -> None:
    await stable(one)
    for rights, expected in (
        ((), 0),
        (("GROUP g DESCRIBE",), 1 << 8),
        (("GROUP g DELETE",), 1 << 6 | 1 << 8),
        (("GROUP g ALL",), 0b1101_0100_1000),
    ):
        authorize(one, allowing(*rights))
        request = describe_schema.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
        answer = await one.ask(describe_groups, describe_schema, request, 6, principal=ALICE)
        assert answer.groups[0].authorized_operations == expected


async def described(one: Coordinator) -> Any:
    request = describe_consumers_schema.ConsumerGroupDescribeRequest(
        group_ids=["g"], include_authorized_operations=True
    )
    answer = await one.ask(consumer_group_describe, describe_consumers_schema, request, 1, principal=ALICE)
    return answer.groups[0]


async def test_a_group_with_a_hidden_topic_shows_no_members(one: Coordinator) -> None:
    await beat(one, 0, "t", "x")
    for how, allowed in VARIANTS.items():
        authorize(one, variant(how, "TOPIC t DESCRIBE", "TOPIC x DESCRIBE", "GROUP g READ"))
        group = await described(one)
        if allowed or how == "deny any over allow":
            expected = 0 if allowed else 29
            assert group.error_code == expected, how
        if allowed:
            assert len(group.members) == 1, how
            if how != "super user":
                assert group.authorized_operations == 1 << 3 | 1 << 8
        else:
            assert (group.error_code, group.members, group.group_state) == (29, [], ""), how
            assert group.authorized_operations == NO_OPERATIONS, how
            assert group.error_message == consumer_group_describe.HIDDEN


# ---- consumer groups


async def test_one_hidden_name_fails_the_whole_heartbeat(one: Coordinator) -> None:
    for how, allowed in VARIANTS.items():
        authorize(one, variant(how, "TOPIC t DESCRIBE", "TOPIC x DESCRIBE"))
        reply = await beat(one, 0, "t", "x", member=f"m-{how}")
        assert reply.error_code == (0 if allowed else 29), how
        assert (reply.assignment is not None) is allowed, how


async def test_a_hidden_name_and_an_absent_one_are_alike_in_a_heartbeat(one: Coordinator) -> None:
    authorize(one, authorizer())
    assert await beat(one, 0, "t") == await beat(one, 0, "absent")


@pytest.mark.parametrize("how", VARIANTS)
async def test_an_expression_matches_only_topics_that_its_member_may_describe(
    etcd: EtcdClient, keyspace: Keyspace, how: str
) -> None:
    for name in ("t", "x"):
        await make_topic(etcd, keyspace, name, partitions=2)
    decides = variant(how, "TOPIC t DESCRIBE", "TOPIC x DESCRIBE")
    async with running(etcd, keyspace, authorizer=decides) as one:
        reply = await beat(one, 0, regex=".*")
        assert reply.error_code == 0
        if how == "deny any over allow":
            assert assigned(reply) == set()
        else:
            assert assigned(reply) == ({T, X} if VARIANTS[how] else {X})


async def test_members_with_one_expression_get_what_each_of_them_may_describe(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    for name in ("t", "x"):
        await make_topic(etcd, keyspace, name, partitions=2)
    rights = [acl("TOPIC:LITERAL:t READ"), acl("TOPIC:LITERAL:x READ", principal="User:bob")]
    async with running(etcd, keyspace, authorizer=authorizer(*rights)) as one:
        assert assigned(await beat(one, 0, regex="[tx]")) == {T}
        assert assigned(await beat(one, 0, regex="[tx]", principal="User:bob", member="n")) == {X}


async def test_expressions_follow_the_acls_with_the_next_heartbeat(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    for name in ("t", "x"):
        await make_topic(etcd, keyspace, name, partitions=2)
    decides = allowing("TOPIC t READ")
    async with running(etcd, keyspace, authorizer=decides) as one:
        first = await beat(one, 0, regex=".")
        assert assigned(first) == {T}
        decides.acls.add(acl("TOPIC:LITERAL:x READ"))
        await beat(one, first.member_epoch, regex=".")
        await until(lambda: one.actor("g").group.persisted.epoch > first.member_epoch)
        assert assigned(await beat(one, first.member_epoch, regex=".")) == {T, X}
        decides.acls.remove(acl("TOPIC:LITERAL:t READ"))
        epoch = one.actor("g").group.persisted.epoch
        await beat(one, epoch, regex=".")
        await until(lambda: one.actor("g").group.persisted.epoch > epoch)
        assert T not in assigned(await beat(one, epoch, regex="."))


async def test_another_coordinator_resolves_an_expression_with_the_rights_of_its_member(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    for name in ("t", "x"):
        await make_topic(etcd, keyspace, name, partitions=2)
    decides = allowing("TOPIC t READ")
    async with running(etcd, keyspace, authorizer=decides) as one:
        reply = await beat(one, 0, regex=".")
        await turns()
    await one.lease_ends()
    async with running(etcd, keyspace, authorizer=decides) as next_one:
        group = next_one.actor("g").group
        assert list(group.matches.values()) == [frozenset("t")]
        assert group.persisted.epoch == reply.member_epoch, "nothing has changed for the members"


async def test_a_principal_that_is_too_long_to_be_stored_sees_what_everybody_may_describe(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    for name in ("t", "x"):
        await make_topic(etcd, keyspace, name, partitions=2)
    endless = "User:" + "n" * 600
    rights = [acl("TOPIC:LITERAL:t READ", principal=endless), acl("TOPIC:LITERAL:x READ", principal="User:*")]
    async with running(etcd, keyspace, authorizer=authorizer(*rights)) as one:
        assert assigned(await beat(one, 0, regex=".", principal=endless)) == {X}


async def test_without_an_authorizer_no_principal_is_stored(one: Coordinator) -> None:
    await beat(one, 0, regex=".")
    (member,) = one.actor("g").group.persisted.members.values()
    assert member.principal == ""


# ---- the start


def test_every_handler_asks_what_the_rules_say_of_a_service() -> None:
    asked = exported(handlers, "NEEDS", tuple)
    enforced(handlers, exported(handlers, "handler", object))
    for key, needs in asked.items():
        assert needs == needs_of(ApiKey(key), Side.SERVICE)


def test_an_api_that_this_service_does_not_ask_about_ends_the_start() -> None:
    with pytest.raises(NotEnforced, match="Metadata"):
        enforced(handlers, [int(ApiKey.METADATA)])
