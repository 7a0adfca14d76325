"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs as clients see them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafscale.admin.configs import TOPIC_CONFIGS
from kafscale.admin.handlers import alter_configs, describe_configs, incremental_alter_configs
from kafscale.admin.plan import NewTopic
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import alter_configs as alter_schema
from kafscale.wire.schema import describe_configs as describe_schema
from kafscale.wire.schema import incremental_alter_configs as incremental_schema

from services.admin.tests.harness import Admin, running

TOPIC, BROKER, GROUP = 2, 4, 32


async def described(admin: Admin, kind: int, name: str, keys: list[str] | None = None) -> Any:
    resource = describe_schema.DescribeConfigsRequestResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = describe_schema.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    return (await admin.ask(describe_configs, describe_schema, request, 4)).results[0]


async def test_a_config_that_was_altered_is_described_with_its_source(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    resource = incremental_schema.IncrementalAlterConfigsRequestResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[
            incremental_schema.IncrementalAlterConfigsRequestAlterableConfig(
                name="retention.ms", value="120000"
            )
        ],
    )
    request = incremental_schema.IncrementalAlterConfigsRequest(resources=[resource])
    answer = await admin.ask(incremental_alter_configs, incremental_schema, request, 1)
    assert answer.responses[0].error_code == 0
    result = await described(admin, TOPIC, "t", ["retention.ms", "segment.bytes", "no.such.key"])
    assert [(config.name, config.value, config.config_source) for config in result.configs] == [
        ("retention.ms", "120000", 1),
        ("segment.bytes", "1073741824", 5),
    ]


async def test_alter_configs_puts_unnamed_keys_back_to_their_defaults(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t", configs={"retention.ms": "1"}), now_ms=1)
    resource = alter_schema.AlterConfigsRequestResource(
        resource_type=TOPIC,
        resource_name="t",
        configs=[alter_schema.AlterConfigsRequestAlterableConfig(name="segment.bytes", value="1048576")],
    )
    request = alter_schema.AlterConfigsRequest(resources=[resource])
    assert (await admin.ask(alter_configs, alter_schema, request, 2)).responses[0].error_code == 0
    stored = await admin.store.read("t")
    assert stored is not None
    assert stored.configs == {"segment.bytes": "1048576"}


async def test_a_resource_named_twice_is_not_altered(admin: Admin) -> None:
    for name in ("t", "u"):
        await admin.store.create(NewTopic(name=name), now_ms=1)

    def resource(name: str, value: str) -> alter_schema.AlterConfigsRequestResource:
        config = alter_schema.AlterConfigsRequestAlterableConfig(name="retention.ms", value=value)
        return alter_schema.AlterConfigsRequestResource(
            resource_type=TOPIC, resource_name=name, configs=[config]
        )

    request = alter_schema.AlterConfigsRequest(
        resources=[resource("t", "1"), resource("u", "2"), resource("t", "3")]
    )
    answer = await admin.ask(alter_configs, alter_schema, request, 2)
    twice = ErrorCode.INVALID_REQUEST
    assert [each.error_code for each in answer.responses] == [twice, 0, twice]
    stored = {name: await admin.store.read(name) for name in ("t", "u")}
    assert [topic.configs if topic else None for topic in stored.values()] == [{}, {"retention.ms": "2"}]


@pytest.mark.parametrize("validate_only", [True, False])
async def test_what_is_only_validated_is_not_changed(admin: Admin, validate_only: bool) -> None:
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    for value, expected in (("-2", ErrorCode.INVALID_CONFIG), ("5", 0)):
        config = alter_schema.AlterConfigsRequestAlterableConfig(name="retention.ms", value=value)
        resource = alter_schema.AlterConfigsRequestResource(
            resource_type=TOPIC, resource_name="t", configs=[config]
        )
        request = alter_schema.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
        answer = await admin.ask(alter_configs, alter_schema, request, 1)
        assert answer.responses[0].error_code == expected
    stored = await admin.store.read("t")
    assert stored is not None
    assert stored.configs == ({} if validate_only else {"retention.ms": "5"})


async def test_brokers_are_described_by_node_id_and_cannot_be_altered(admin: Admin) -> None:
    await admin.register(3)
    result = await described(admin, BROKER, "3")
    values = {config.name: config.value for config in result.configs}
    assert values["broker.id"] == "3"
    assert values["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9003"
    assert "kafscale.segment.bytes" in values
    assert all(config.read_only for config in result.configs)
    for broker, key, code in (
        ("3", "message.max.bytes", ErrorCode.INVALID_CONFIG),
        ("", "message.max.bytes", ErrorCode.INVALID_CONFIG),
        ("3", None, ErrorCode.NONE),  # no key: every dynamic config is reset, and there is none
        ("4", "message.max.bytes", ErrorCode.INVALID_REQUEST),
        ("x", "message.max.bytes", ErrorCode.INVALID_REQUEST),
        ("\N{ARABIC-INDIC DIGIT THREE}", "message.max.bytes", ErrorCode.INVALID_REQUEST),
    ):
        configs = [alter_schema.AlterConfigsRequestAlterableConfig(name=key, value="1")] if key else []
        resource = alter_schema.AlterConfigsRequestResource(
            resource_type=BROKER, resource_name=broker, configs=configs
        )
        request = alter_schema.AlterConfigsRequest(resources=[resource])
        answer = await admin.ask(alter_configs, alter_schema, request, 2)
        assert answer.responses[0].error_code == code, (broker, key)


async def test_every_key_that_tools_read_has_a_value_a_type_a_chain_and_a_sentence(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t", configs={"cleanup.policy": "compact"}), now_ms=1)
    request = describe_schema.DescribeConfigsRequest(
        resources=[
            describe_schema.DescribeConfigsRequestResource(
                resource_type=TOPIC, resource_name="t", configuration_keys=None
            )
        ],
        include_synonyms=True,
        include_documentation=True,
    )
    (result,) = (await admin.ask(describe_configs, describe_schema, request, 4)).results
    configs = {config.name: config for config in result.configs}
    assert set(configs) == {key.name for key in TOPIC_CONFIGS.shown({})}
    assert all(config.documentation and config.config_type for config in result.configs)
    policy = configs["cleanup.policy"]
    assert [(each.name, each.value, each.source) for each in policy.synonyms] == [
        ("cleanup.policy", "compact", 1),
        ("log.cleanup.policy", "delete", 5),
    ]
    assert (policy.value, policy.config_source, policy.read_only, policy.config_type) == (
        "compact",
        1,
        False,
        7,
    )
    lag = configs["max.compaction.lag.ms"]
    assert [(each.name, each.source) for each in lag.synonyms] == [("log.cleaner.max.compaction.lag.ms", 5)]
    assert not configs["min.insync.replicas"].read_only


@pytest.mark.parametrize("version", range(5))
async def test_configs_are_described_in_every_version(admin: Admin, version: int) -> None:
    await admin.store.create(NewTopic(name="t", configs={"retention.ms": "5"}), now_ms=1)
    keys = ["retention.ms", "max.message.bytes"]
    resource = describe_schema.DescribeConfigsRequestResource(
        resource_type=TOPIC, resource_name="t", configuration_keys=keys
    )
    request = describe_schema.DescribeConfigsRequest(resources=[resource])
    (result,) = (await admin.ask(describe_configs, describe_schema, request, version)).results
    values = {config.name: config.value for config in result.configs}
    assert values == {"retention.ms": "5", "max.message.bytes": "1048588"}
    if version == 0:
        assert [config.is_default for config in result.configs] == [True, False]


KAFKAS_SYNONYMS = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    **{
        name: name
        for name in (
            "compression.gzip.level",
            "compression.lz4.level",
            "compression.type",
            "compression.zstd.level",
            "min.insync.replicas",
            "unclean.leader.election.enable",
        )
    },
}


async def test_synonyms_are_those_that_kafka_4_lists(admin: Admin) -> None:
    """Where it has no value for the broker's side, as for log.retention.ms beside its hours, there is none."""
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    result = await described(admin, TOPIC, "t")
    listed = {config.name: [each.name for each in config.synonyms] for config in result.configs}
    assert {name: names for name, names in listed.items() if names} == {
        name: [synonym] for name, synonym in KAFKAS_SYNONYMS.items()
    }


async def test_a_config_without_effect_is_kept_and_shown_with_what_it_was_set_to(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t", configs={"min.insync.replicas": " 2 "}), now_ms=1)
    (config,) = (await described(admin, TOPIC, "t", ["min.insync.replicas"])).configs
    assert (config.value, config.config_source, config.read_only) == ("2", 1, False)
    assert [(each.value, each.source) for each in config.synonyms] == [("2", 1), ("1", 5)]


async def test_where_the_store_is_stays_untold(admin: Admin) -> None:
    await admin.register(3)
    result = await described(admin, BROKER, "3")
    assert not [config.name for config in result.configs if "s3" in config.name]


async def test_a_broker_shows_what_topics_inherit_and_what_it_was_set_to(admin: Admin) -> None:
    await admin.register(3)
    configs = {config.name: config for config in (await described(admin, BROKER, "3")).configs}
    for name, value, source in (
        ("message.max.bytes", "1048588", 5),
        ("log.retention.bytes", "-1", 5),
        ("group.consumer.session.timeout.ms", "45000", 5),
        ("default.replication.factor", "1", 5),
        ("num.partitions", "3", 4),
        ("auto.create.topics.enable", "true", 5),
        ("broker.id", "3", 4),
        ("node.id", "3", 4),
        ("delete.topic.enable", "true", 5),
        ("connections.max.reauth.ms", "0", 5),
        ("log.cleaner.backoff.ms", "3600000", 5),
        ("log.dirs", "objects", 5),
        ("log.retention.hours", "168", 5),
        ("offsets.topic.replication.factor", "1", 5),
        ("offsets.retention.minutes", "10080", 5),
    ):
        assert (configs[name].value, configs[name].config_source) == (value, source), name
        assert [each.value for each in configs[name].synonyms] == [value]
    unset = configs["log.retention.ms"]
    assert (unset.value, unset.synonyms, unset.config_source) == (None, [], 5), "the hours apply, as in Kafka"
    assert len(configs) == len((await described(admin, BROKER, "3")).configs), "each config is there once"
    asked = await described(admin, BROKER, "3", ["num.partitions", "no.such.key"])
    assert [config.name for config in asked.configs] == ["num.partitions"]


@pytest.mark.parametrize("name", ["4", "x", "9" * 5_000, "-1"])
async def test_a_broker_that_is_not_there_is_an_invalid_request(admin: Admin, name: str) -> None:
    await admin.register(3)
    assert (await described(admin, BROKER, name)).error_code == ErrorCode.INVALID_REQUEST


async def test_what_is_asked_twice_is_answered_once(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t"), now_ms=1)

    def resource(*keys: str) -> describe_schema.DescribeConfigsRequestResource:
        return describe_schema.DescribeConfigsRequestResource(
            resource_type=TOPIC, resource_name="t", configuration_keys=list(keys)
        )

    asked = [resource("segment.ms", "flush.ms"), resource("flush.ms", "segment.ms"), resource("flush.ms")]
    request = describe_schema.DescribeConfigsRequest(resources=asked * 3)
    answer = await admin.ask(describe_configs, describe_schema, request, 4)
    assert [len(result.configs) for result in answer.results] == [2, 1]


async def test_configs_that_do_not_fit_into_the_answer_are_refused_resource_by_resource(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    room = 1 << 20
    async with running(Admin(etcd, keyspace, {"answer_bytes_max": room})) as admin:
        resources = [
            describe_schema.DescribeConfigsRequestResource(
                resource_type=GROUP, resource_name=f"g{n}", configuration_keys=None
            )
            for n in range(1_000)
        ]
        request = describe_schema.DescribeConfigsRequest(
            resources=resources, include_synonyms=True, include_documentation=True
        )
        answer = await admin.ask(describe_configs, describe_schema, request, 4)
        assert len(answer.results) == len(resources)
        told = [result for result in answer.results if not result.error_code]
        refused = [result for result in answer.results if result.error_code]
        assert told
        assert {result.error_code for result in refused} == {ErrorCode.INVALID_REQUEST}
        assert "KAFSCALE_ANSWER_BYTES_MAX" in refused[0].error_message
        answer.results = told
        size = sum(map(len, describe_schema.encode_response(answer, 4)))
        assert room * 0.7 < size <= room


async def test_nothing_was_set_for_all_brokers(admin: Admin) -> None:
    result = await described(admin, BROKER, "")
    assert (result.error_code, result.configs) == (0, [])


async def test_a_change_is_in_every_view_soon_after_the_answer(admin: Admin) -> None:
    await admin.store.create(NewTopic(name="t"), now_ms=1)
    seen = asyncio.Event()
    admin.topics.subscribe(
        lambda name, topic: seen.set() if topic and topic.segment_bytes == 1048576 else None
    )
    await admin.store.change(
        "t", lambda old: Topic(**{**_fields(old), "configs": {"segment.bytes": "1048576"}})
    )
    await asyncio.wait_for(seen.wait(), 1)


def _fields(topic: Topic) -> dict[str, Any]:
    return {name: getattr(topic, name) for name in topic.__slots__}
