"""What the admin service asks the authorizer: each API in every variant of its right, and what a denial hides."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from kafscale.access.acl import ResourceType
from kafscale.access.authorizer import SUPPORTED_MASKS
from kafscale.access.rules import NotEnforced, Side, needs_of
from kafscale.admin import handlers
from kafscale.admin.handlers import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    incremental_alter_configs,
    metadata,
)
from kafscale.runtime.authorization import enforced
from kafscale.runtime.stream.apis import exported
from kafscale.testkit.acls import ALICE, VARIANTS, allowing, authorizer, variant
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import error_codes
from kafscale.wire.schema import module_of

from services.admin.tests.harness import Admin, created

ORDERS, ABSENT = "orders", "absent"
DENIALS = {29, 30, 31}
NO_OPERATIONS = -(2**31)
OPEN = ("TOPIC * ALL", "GROUP * ALL", "CLUSTER kafka-cluster ALL")


def schema(api: Any) -> Any:
    return module_of(ApiKey[api.__name__.rpartition(".")[2].upper()])


async def ask(admin: Admin, api: Any, version: int, **fields: Any) -> Any:
    """The answer to alice."""
    module = schema(api)
    name = min((name for name in vars(module) if name.endswith("Request")), key=len)
    return await admin.ask(api, module, getattr(module, name)(**fields), version, ALICE)


def described(admin: Admin, name: str, kind: int = 2) -> Awaitable[Any]:
    resource = schema(describe_configs).DescribeConfigsRequestResource(resource_type=kind, resource_name=name)
    return ask(admin, describe_configs, 4, resources=[resource])


def altered(admin: Admin, name: str, kind: int = 2) -> Awaitable[Any]:
    resource = schema(alter_configs).AlterConfigsRequestResource(
        resource_type=kind, resource_name=name, configs=[]
    )
    return ask(admin, alter_configs, 2, resources=[resource], validate_only=True)


def altered_a_little(admin: Admin, name: str, kind: int = 2) -> Awaitable[Any]:
    module = schema(incremental_alter_configs)
    resource = module.IncrementalAlterConfigsRequestResource(
        resource_type=kind, resource_name=name, configs=[]
    )
    return ask(admin, incremental_alter_configs, 1, resources=[resource], validate_only=True)


def new_topic(admin: Admin, *names: str, version: int = 7, **fields: Any) -> Awaitable[Any]:
    module = schema(create_topics)
    topics = [
        module.CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=1, **fields)
        for name in names
    ]
    return ask(admin, create_topics, version, topics=topics, validate_only=True)


def deleted(admin: Admin, name: str) -> Awaitable[Any]:
    wanted = schema(delete_topics).DeleteTopicsRequestTopicState(name=name)
    return ask(admin, delete_topics, 6, topics=[wanted], timeout_ms=5_000)


def deleted_by_id(admin: Admin, topic_id: bytes) -> Awaitable[Any]:
    wanted = schema(delete_topics).DeleteTopicsRequestTopicState(name=None, topic_id=topic_id)
    return ask(admin, delete_topics, 6, topics=[wanted], timeout_ms=5_000)


def records_deleted(admin: Admin, name: str) -> Awaitable[Any]:
    module = schema(delete_records)
    part = module.DeleteRecordsRequestPartition(partition_index=0, offset=0)
    topic = module.DeleteRecordsRequestTopic(name=name, partitions=[part])
    return ask(admin, delete_records, 2, topics=[topic], timeout_ms=1_000)


def grown(admin: Admin, name: str) -> Awaitable[Any]:
    topic = schema(create_partitions).CreatePartitionsRequestTopic(name=name, count=9, assignments=None)
    return ask(admin, create_partitions, 3, topics=[topic], validate_only=True)


def named(admin: Admin, *names: str, create: bool = False, version: int = 12) -> Awaitable[Any]:
    topics = [schema(metadata).MetadataRequestTopic(name=name) for name in names]
    return ask(
        admin,
        metadata,
        version,
        topics=topics,
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=True,
    )


def by_id(admin: Admin, topic_id: bytes) -> Awaitable[Any]:
    wanted = schema(metadata).MetadataRequestTopic(topic_id=topic_id, name=None)
    return ask(admin, metadata, 12, topics=[wanted], include_topic_authorized_operations=True)


def pages(admin: Admin, *names: str) -> Awaitable[Any]:
    module = schema(describe_topic_partitions)
    topics = [module.DescribeTopicPartitionsRequestTopicRequest(name=name) for name in names]
    return ask(admin, describe_topic_partitions, 0, topics=topics)


@dataclass(frozen=True)
class Question:
    """A request about `orders`, and the right that it needs."""

    right: str
    ask: Callable[[Admin, str], Awaitable[Any]]
    code: int = 29
    name: str = ORDERS


QUESTIONS: Mapping[str, Question] = {
    "Metadata": Question("TOPIC orders DESCRIBE", named),
    "DescribeTopicPartitions": Question("TOPIC orders DESCRIBE", pages),
    "CreateTopics": Question("TOPIC orders CREATE", new_topic),
    "CreateTopics by the cluster": Question("CLUSTER kafka-cluster CREATE", new_topic),
    "DeleteRecords": Question("TOPIC orders DELETE", records_deleted),
    "CreatePartitions": Question("TOPIC orders ALTER", grown),
    "DescribeConfigs of a topic": Question("TOPIC orders DESCRIBE_CONFIGS", described),
    "AlterConfigs of a topic": Question("TOPIC orders ALTER_CONFIGS", altered),
    "IncrementalAlterConfigs of a topic": Question("TOPIC orders ALTER_CONFIGS", altered_a_little),
    **{
        f"{what.__name__} of {kind}": Question(
            f"{resource} {operation}",
            lambda admin, name, what=what, number=number: what(admin, name, number),  # type: ignore[misc]
            code,
            name,
        )
        for what, operation in (
            (described, "DESCRIBE_CONFIGS"),
            (altered, "ALTER_CONFIGS"),
            (altered_a_little, "ALTER_CONFIGS"),
        )
        for kind, number, resource, code, name in (
            ("a group", 32, "GROUP orders", 30, ORDERS),
            ("a broker", 4, "CLUSTER kafka-cluster", 31, "1"),
            ("a logger", 8, "CLUSTER kafka-cluster", 31, "1"),
            ("client metrics", 16, "CLUSTER kafka-cluster", 31, "m"),
        )
        if (what, kind) != (altered, "a logger")
    },
}


@pytest.mark.parametrize("what", QUESTIONS)
async def test_an_api_needs_its_right_in_every_variant(admin: Admin, what: str) -> None:
    question = QUESTIONS[what]
    await admin.register(1)
    await created(admin, ORDERS)
    for how, allowed in VARIANTS.items():
        admin.authorize(variant(how, question.right))
        codes = set(error_codes(await question.ask(admin, question.name)))
        assert (question.code in codes) is not allowed, how
        if not allowed:
            assert codes == {question.code}, how
        else:
            assert not codes & DENIALS, how


@pytest.mark.parametrize("what", [what for what, each in QUESTIONS.items() if each.name == ORDERS])
async def test_of_a_denied_name_nobody_learns_whether_it_exists(admin: Admin, what: str) -> None:
    question = QUESTIONS[what]
    await admin.register(1)
    await created(admin, ORDERS)
    admin.authorize(authorizer())
    exists, absent = await question.ask(admin, ORDERS), await question.ask(admin, ABSENT)
    assert repr(exists).replace(ORDERS, "?") == repr(absent).replace(ABSENT, "?")


async def test_alter_configs_knows_no_loggers_for_anybody(admin: Admin) -> None:
    for rights in (authorizer(), allowing(*OPEN)):
        admin.authorize(rights)
        assert set(error_codes(await altered(admin, "1", 8))) == {42}


@pytest.mark.parametrize("how", VARIANTS)
async def test_a_topic_is_deleted_with_the_right_and_in_no_other_case(admin: Admin, how: str) -> None:
    topic = await created(admin, ORDERS)
    admin.authorize(variant(how, "TOPIC orders DELETE"))
    deletions = asyncio.create_task(admin.deletions.run())
    try:
        (result,) = (await deleted(admin, ORDERS)).responses
        (absent,) = (await deleted(admin, ABSENT)).responses
    finally:
        deletions.cancel()
    assert (result.error_code == 0) is VARIANTS[how]
    assert (admin.topics.by_id(topic.topic_id) is None) is VARIANTS[how]
    if not VARIANTS[how]:
        assert repr(result).replace(ORDERS, "?") == repr(absent).replace(ABSENT, "?")
        assert (result.error_code, result.topic_id) == (29, bytes(16))


async def test_a_deletion_by_id_shows_the_name_only_to_those_who_may_describe_the_topic(admin: Admin) -> None:
    topic = await created(admin, ORDERS)
    for rights, name in (((), None), (("TOPIC orders DESCRIBE",), ORDERS), (("TOPIC orders READ",), ORDERS)):
        admin.authorize(allowing(*rights))
        (result,) = (await deleted_by_id(admin, topic.topic_id)).responses
        assert (result.error_code, result.name, result.topic_id) == (29, name, topic.topic_id)
    (unknown,) = (await deleted_by_id(admin, b"x" * 16)).responses
    assert (unknown.error_code, unknown.name) == (100, None)
    admin.authorize(allowing("CLUSTER kafka-cluster DELETE"))
    deletions = asyncio.create_task(admin.deletions.run())
    try:
        (result,) = (await deleted_by_id(admin, topic.topic_id)).responses
    finally:
        deletions.cancel()
    assert (result.error_code, result.name) == (0, ORDERS)


# ---- Metadata


async def test_by_id_a_denied_topic_has_its_id_and_no_name(admin: Admin) -> None:
    await admin.register(1)
    topic = await created(admin, ORDERS)
    for how, allowed in VARIANTS.items():
        admin.authorize(variant(how, "TOPIC orders DESCRIBE"))
        (found,) = (await by_id(admin, topic.topic_id)).topics
        assert found.topic_id == topic.topic_id
        if allowed:
            assert (found.error_code, found.name, len(found.partitions)) == (0, ORDERS, 3), how
        else:
            assert (found.error_code, found.name, found.partitions) == (29, None, []), how
            assert found.topic_authorized_operations == NO_OPERATIONS
    (unknown,) = (await by_id(admin, b"x" * 16)).topics
    assert unknown.error_code == 100


@pytest.mark.parametrize("version", [0, 1, 8, 12, 13])
async def test_of_all_topics_those_that_may_not_be_described_are_left_out(admin: Admin, version: int) -> None:
    await admin.register(1)
    for name in (ORDERS, "mine"):
        await created(admin, name)
    for rights, expected in ((("TOPIC mine DESCRIBE",), ["mine"]), ((), []), (OPEN, ["mine", ORDERS])):
        admin.authorize(allowing(*rights))
        answer = await ask(admin, metadata, version, topics=None if version else [])
        assert [topic.name for topic in answer.topics] == expected
        assert len(answer.brokers) == 1


async def test_of_all_topics_in_pages_too(admin: Admin) -> None:
    await admin.register(1)
    for name in (ORDERS, "mine"):
        await created(admin, name)
    admin.authorize(allowing("TOPIC mine DESCRIBE"))
    assert [topic.name for topic in (await pages(admin)).topics] == ["mine"]
    answer = await pages(admin, "mine", ORDERS, ABSENT)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("mine", 0),
        (ABSENT, 29),
        (ORDERS, 29),
    ]


DESCRIBE_NEW = "TOPIC new DESCRIBE"
CREATIONS = [
    ((DESCRIBE_NEW,), 29, False),
    ((DESCRIBE_NEW, "TOPIC new CREATE"), 3, True),
    ((DESCRIBE_NEW, "CLUSTER kafka-cluster CREATE"), 3, True),
    (("TOPIC new CREATE",), 29, False),
]


@pytest.mark.parametrize(("rights", "code", "made"), CREATIONS)
async def test_a_topic_is_created_by_asking_only_with_both_rights(
    admin: Admin, rights: tuple[str, ...], code: int, made: bool
) -> None:
    await admin.register(1)
    admin.authorize(allowing(*rights))
    (topic,) = (await named(admin, "new", create=True)).topics
    assert (topic.error_code, topic.topic_id) == (code, bytes(16))
    assert (admin.topics.by_name("new") is not None) is made


async def test_without_creation_an_absent_topic_needs_no_right_to_create(admin: Admin) -> None:
    await admin.register(1)
    admin.authorize(allowing(DESCRIBE_NEW))
    (topic,) = (await named(admin, "new")).topics
    assert topic.error_code == 3


OPERATIONS = [
    (("TOPIC orders READ",), {3, 8}),
    (("TOPIC orders DESCRIBE", "TOPIC orders ALTER_CONFIGS"), {8, 10, 11}),
    (("TOPIC orders ALL",), {3, 4, 5, 6, 7, 8, 10, 11}),
]


@pytest.mark.parametrize(("rights", "operations"), OPERATIONS)
async def test_authorized_operations_of_a_topic_are_those_of_its_acls(
    admin: Admin, rights: tuple[str, ...], operations: set[int]
) -> None:
    await admin.register(1)
    await created(admin, ORDERS)
    admin.authorize(allowing(*rights))
    expected = sum(1 << operation for operation in operations)
    assert (await named(admin, ORDERS)).topics[0].topic_authorized_operations == expected
    assert (await pages(admin, ORDERS)).topics[0].topic_authorized_operations == expected


CLUSTER_OPERATIONS = [
    ((), 0),
    (("CLUSTER kafka-cluster CREATE",), 0),
    (("CLUSTER kafka-cluster DESCRIBE",), 1 << 8),
    (("CLUSTER kafka-cluster ALTER", "CLUSTER kafka-cluster CREATE"), 1 << 5 | 1 << 7 | 1 << 8),
]


@pytest.mark.parametrize(("rights", "expected"), CLUSTER_OPERATIONS)
async def test_authorized_operations_of_the_cluster_are_0_if_it_may_not_be_described(
    admin: Admin, rights: tuple[str, ...], expected: int
) -> None:
    await admin.register(1)
    admin.authorize(allowing(*rights))
    wanted = {"include_cluster_authorized_operations": True}
    answers = [
        await ask(admin, describe_cluster, 2, **wanted),
        await ask(admin, metadata, 10, topics=[], **wanted),
    ]
    assert [answer.cluster_authorized_operations for answer in answers] == [expected] * 2


async def test_without_an_authorizer_everything_is_allowed(admin: Admin) -> None:
    await admin.register(1)
    await created(admin, ORDERS)
    (topic,) = (await named(admin, ORDERS)).topics
    assert (topic.error_code, topic.topic_authorized_operations) == (
        0,
        SUPPORTED_MASKS[ResourceType.TOPIC],
    )
    answer = await ask(admin, describe_cluster, 2, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == SUPPORTED_MASKS[ResourceType.CLUSTER]


# ---- CreateTopics


@pytest.mark.parametrize("version", [5, 7])
async def test_configs_of_a_new_topic_are_hidden_from_those_who_may_not_describe_them(
    admin: Admin, version: int
) -> None:
    for how, allowed in VARIANTS.items():
        admin.authorize(variant(how, "TOPIC orders DESCRIBE_CONFIGS", "TOPIC orders CREATE"))
        (topic,) = (await new_topic(admin, ORDERS, version=version)).topics
        if allowed:
            assert (topic.error_code, topic.topic_config_error_code, topic.num_partitions) == (0, 0, 1), how
            assert topic.configs, how
        elif how != "deny any over allow":
            assert (topic.error_code, topic.topic_config_error_code) == (0, 29), how
            assert (topic.num_partitions, topic.replication_factor, topic.configs) == (-1, -1, []), how


async def test_a_creation_is_denied_in_kafkas_words_which_are_not_those_of_a_deletion(admin: Admin) -> None:
    admin.authorize(authorizer())
    (created_topic,) = (await new_topic(admin, ORDERS)).topics
    (deleted_topic,) = (await deleted(admin, ORDERS)).responses
    assert (created_topic.error_code, created_topic.error_message) == (29, "Authorization failed.")
    assert (deleted_topic.error_code, deleted_topic.error_message) == (29, "Topic authorization failed.")


async def test_a_denied_topic_does_not_count_in_the_limit_of_a_request(admin: Admin) -> None:
    admin.authorize(allowing("TOPIC orders ALL"))
    module = schema(create_topics)
    topics = [
        module.CreateTopicsRequestTopic(name=name, num_partitions=9_999, replication_factor=1)
        for name in (ORDERS, "theirs")
    ]
    answer = await ask(admin, create_topics, 7, topics=topics, validate_only=True)
    assert {topic.name: topic.error_code for topic in answer.topics} == {ORDERS: 0, "theirs": 29}


async def test_a_name_that_is_given_twice_is_refused_before_rights_are_asked(admin: Admin) -> None:
    admin.authorize(authorizer())
    for answer in (await new_topic(admin, ORDERS, ORDERS), await deleted_twice(admin)):
        assert set(error_codes(answer)) == {42}


def deleted_twice(admin: Admin) -> Awaitable[Any]:
    wanted = schema(delete_topics).DeleteTopicsRequestTopicState(name=ORDERS)
    return ask(admin, delete_topics, 6, topics=[wanted, wanted])


# ---- reports, and the start


async def test_a_denial_is_counted_and_names_left_out_are_not(admin: Admin) -> None:
    await admin.register(1)
    await created(admin, ORDERS)
    counted = admin.authorize(authorizer())
    await named(admin, ORDERS, ABSENT)
    await ask(admin, metadata, 12, topics=None)
    assert [(labels, tally.value) for labels, tally in counted._denials.rows()] == [(("Metadata",), 2)]


def test_every_handler_asks_what_the_rules_say_of_a_service() -> None:
    asked = exported(handlers, "NEEDS", tuple)
    enforced(handlers, exported(handlers, "handler", object))
    for key, needs in asked.items():
        assert needs == needs_of(ApiKey(key), Side.SERVICE)


def test_an_api_that_this_service_does_not_ask_about_ends_the_start() -> None:
    with pytest.raises(NotEnforced, match="OffsetCommit"):
        enforced(handlers, [int(ApiKey.OFFSET_COMMIT)])
