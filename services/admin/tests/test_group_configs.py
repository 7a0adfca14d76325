"""Configs of groups (KIP-848): described, altered, listed; what is set, by which bounds, and how many may have some."""

from __future__ import annotations

from typing import Any

import pytest
from kafscale.admin.handlers import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.group_configs import decode_group_configs
from kafscale.storage.keys import Keyspace
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import alter_configs as alter_schema
from kafscale.wire.schema import describe_configs as describe_schema
from kafscale.wire.schema import incremental_alter_configs as incremental_schema
from kafscale.wire.schema import list_config_resources as list_schema

from services.admin.tests.harness import Admin

GROUP = 32
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
SET, DELETE, APPEND = 0, 1, 2
KAFKAS_DEFAULTS = {
    "consumer.assignment.interval.ms": "1000",
    "consumer.heartbeat.interval.ms": "5000",
    "consumer.session.timeout.ms": "45000",
    "share.assignment.interval.ms": "1000",
    "share.auto.offset.reset": "latest",
    "share.delivery.count.limit": "5",
    "share.heartbeat.interval.ms": "5000",
    "share.isolation.level": "read_uncommitted",
    "share.partition.max.record.locks": "2000",
    "share.record.lock.duration.ms": "30000",
    "share.renew.acknowledge.enable": "true",
    "share.session.timeout.ms": "45000",
    "streams.assignment.interval.ms": "1000",
    "streams.heartbeat.interval.ms": "5000",
    "streams.initial.rebalance.delay.ms": "3000",
    "streams.num.standby.replicas": "0",
    "streams.session.timeout.ms": "45000",
}


async def described(admin: Admin, *groups: str, keys: list[str] | None = None) -> Any:
    resources = [
        describe_schema.DescribeConfigsRequestResource(
            resource_type=GROUP, resource_name=group, configuration_keys=keys
        )
        for group in groups
    ]
    request = describe_schema.DescribeConfigsRequest(resources=resources, include_synonyms=True)
    return (await admin.ask(describe_configs, describe_schema, request, 4)).results


async def change(
    admin: Admin, group: str, *operations: tuple[str, int, str | None], validate_only: bool = False
) -> int:
    configs = [
        incremental_schema.IncrementalAlterConfigsRequestAlterableConfig(
            name=name, config_operation=operation, value=value
        )
        for name, operation, value in operations
    ]
    resource = incremental_schema.IncrementalAlterConfigsRequestResource(
        resource_type=GROUP, resource_name=group, configs=configs
    )
    request = incremental_schema.IncrementalAlterConfigsRequest(
        resources=[resource], validate_only=validate_only
    )
    (answer,) = (await admin.ask(incremental_alter_configs, incremental_schema, request, 1)).responses
    assert bool(answer.error_code) == bool(answer.error_message)
    return int(answer.error_code)


async def replace(admin: Admin, group: str, configs: dict[str, str]) -> int:
    entries = [
        alter_schema.AlterConfigsRequestAlterableConfig(name=name, value=value)
        for name, value in configs.items()
    ]
    resource = alter_schema.AlterConfigsRequestResource(
        resource_type=GROUP, resource_name=group, configs=entries
    )
    request = alter_schema.AlterConfigsRequest(resources=[resource])
    return int((await admin.ask(alter_configs, alter_schema, request, 2)).responses[0].error_code)


async def stored(admin: Admin, group: str) -> dict[str, str] | None:
    found = await admin.etcd.get(admin.keys.group_config(group))
    return None if found is None else dict(decode_group_configs(group, found.value).values)


async def listed(admin: Admin) -> list[str]:
    request = list_schema.ListConfigResourcesRequest(resource_types=[GROUP])
    answer = await admin.ask(list_config_resources, list_schema, request, 1)
    return [found.resource_name for found in answer.config_resources]


async def test_a_group_that_nobody_altered_has_kafkas_defaults(admin: Admin) -> None:
    (result,) = await described(admin, "g")
    assert result.error_code == 0
    assert {config.name: config.value for config in result.configs} == KAFKAS_DEFAULTS
    assert {config.config_source for config in result.configs} == {5}
    synonyms = {config.name: [each.name for each in config.synonyms] for config in result.configs}
    assert synonyms[SESSION] == ["group.consumer.session.timeout.ms"]
    assert synonyms["share.isolation.level"] == ["share.isolation.level"]


async def test_what_was_altered_is_described_with_its_source_and_what_it_hides(admin: Admin) -> None:
    assert await change(admin, "g", (SESSION, SET, "50000"), (HEARTBEAT, SET, " 6000 ")) == 0
    (result,) = await described(admin, "g", keys=[SESSION, HEARTBEAT, "no.such.key"])
    assert [(config.name, config.value, config.config_source) for config in result.configs] == [
        (HEARTBEAT, "6000", 8),
        (SESSION, "50000", 8),
    ]
    assert [(each.name, each.value, each.source) for each in result.configs[1].synonyms] == [
        (SESSION, "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert await stored(admin, "g") == {SESSION: "50000", HEARTBEAT: "6000"}
    assert await stored(admin, "h") is None


async def test_a_group_of_which_nothing_is_set_any_more_leaves_no_record(admin: Admin) -> None:
    assert await change(admin, "g", (SESSION, SET, "50000"), (HEARTBEAT, SET, "6000")) == 0
    assert await replace(admin, "g", {SESSION: "46000"}) == 0
    assert await stored(admin, "g") == {SESSION: "46000"}
    assert await listed(admin) == ["g"]
    assert await change(admin, "g", (SESSION, DELETE, None)) == 0
    assert await stored(admin, "g") is None
    assert await listed(admin) == []
    assert await replace(admin, "g", {}) == 0
    assert await stored(admin, "g") is None


async def test_what_is_only_validated_is_not_kept(admin: Admin) -> None:
    assert await change(admin, "g", (SESSION, SET, "50000"), validate_only=True) == 0
    refused = await change(admin, "g", (SESSION, SET, "1"), validate_only=True)
    assert refused == ErrorCode.INVALID_CONFIG
    assert await stored(admin, "g") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (SESSION, "44999"),
        (SESSION, "60001"),
        (SESSION, "x"),
        (HEARTBEAT, "4999"),
        (HEARTBEAT, "15001"),
        ("no.such.key", "1"),
        ("retention.ms", "1"),
        ("share.auto.offset.reset", "LATEST"),
        ("share.auto.offset.reset", "none"),
        ("share.auto.offset.reset", "by_duration:"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.auto.offset.reset", "by_duration:PT"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.delivery.count.limit", "1"),
        ("share.delivery.count.limit", "11"),
        ("share.isolation.level", "READ_COMMITTED"),
        ("share.partition.max.record.locks", "99"),
        ("share.record.lock.duration.ms", "14999"),
        ("share.renew.acknowledge.enable", "x"),
        ("streams.num.standby.replicas", "3"),
        ("streams.initial.rebalance.delay.ms", "-1"),
        ("consumer.assignment.interval.ms", "15001"),
    ],
)
async def test_what_kafka_refuses_of_a_group_is_invalid_config(admin: Admin, name: str, value: str) -> None:
    assert await change(admin, "g", (name, SET, value)) == ErrorCode.INVALID_CONFIG
    assert await replace(admin, "g", {name: value}) == ErrorCode.INVALID_CONFIG
    assert await stored(admin, "g") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (SESSION, "45000"),
        (SESSION, "60000"),
        (HEARTBEAT, "15000"),
        ("share.auto.offset.reset", "earliest"),
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S"),
        ("share.isolation.level", "read_committed"),
        ("share.record.lock.duration.ms", "15000"),
        ("streams.num.standby.replicas", "2"),
    ],
)
async def test_what_kafka_accepts_of_a_group_is_kept(admin: Admin, name: str, value: str) -> None:
    assert await change(admin, "g", (name, SET, value)) == 0
    assert await stored(admin, "g") == {name: value}


async def test_a_number_is_not_appended_to(admin: Admin) -> None:
    assert await change(admin, "g", (SESSION, APPEND, "1")) == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("group", ["", "g" * 1_025])
async def test_a_group_that_cannot_be_has_no_configs(admin: Admin, group: str) -> None:
    assert await change(admin, group, (SESSION, SET, "50000")) == ErrorCode.INVALID_REQUEST
    (result, other) = await described(admin, group, "sound")
    assert (result.error_code, result.configs, other.error_code) == (ErrorCode.INVALID_REQUEST, [], 0)


async def test_any_other_name_is_a_groups(admin: Admin) -> None:
    for group in ("a/b c", "ü\0", "g" * 1_024):
        assert await change(admin, group, (SESSION, SET, "50000")) == 0
        assert await stored(admin, group) == {SESSION: "50000"}
    assert sorted(await listed(admin)) == sorted(["a/b c", "ü\0", "g" * 1_024])


async def test_a_record_that_cannot_be_read_hides_no_other_group(admin: Admin) -> None:
    assert await change(admin, "sound", (SESSION, SET, "50000")) == 0
    await admin.etcd.put(admin.keys.group_config("broken"), b"\xff\xff")
    broken, sound = await described(admin, "broken", "sound", keys=[SESSION])
    assert (broken.error_code, sound.error_code) == (ErrorCode.KAFKA_STORAGE_ERROR, 0)
    assert "broken" in broken.error_message
    assert [config.value for config in sound.configs] == ["50000"]
    assert await change(admin, "broken", (SESSION, SET, "50000")) == ErrorCode.KAFKA_STORAGE_ERROR


async def test_more_groups_than_one_read_takes_are_all_described(admin: Admin) -> None:
    assert await change(admin, "g249", (SESSION, SET, "50000")) == 0
    results = await described(admin, *(f"g{n}" for n in range(250)), keys=[SESSION])
    assert [result.resource_name for result in results] == [f"g{n}" for n in range(250)]
    assert [config.value for config in results[249].configs] == ["50000"]


async def test_no_more_groups_than_allowed_have_configs(etcd: EtcdClient, keyspace: Keyspace) -> None:
    admin = Admin(etcd, keyspace, {"group_configs_max": 2})
    for group in ("a", "b"):
        assert await change(admin, group, (SESSION, SET, "50000")) == 0
    assert await change(admin, "c", (SESSION, SET, "50000")) == ErrorCode.POLICY_VIOLATION
    assert await change(admin, "a", (SESSION, SET, "51000")) == 0
    assert await change(admin, "b", (SESSION, DELETE, None)) == 0
    assert await change(admin, "c", (SESSION, SET, "50000")) == 0


async def test_bounds_and_defaults_are_the_settings(etcd: EtcdClient, keyspace: Keyspace) -> None:
    settings = {
        "group_consumer_session_timeout_ms": 9_000,
        "group_consumer_min_session_timeout_ms": 3_000,
        "group_consumer_min_heartbeat_interval_ms": 1_000,
    }
    admin = Admin(etcd, keyspace, settings)
    (result,) = await described(admin, "g", keys=[SESSION])
    assert [(config.value, config.config_source) for config in result.configs] == [("9000", 4)]
    assert await change(admin, "g", (SESSION, SET, "3000"), (HEARTBEAT, SET, "1000")) == 0
    for clash in ("3000", "3001"):
        assert await change(admin, "g", (HEARTBEAT, SET, clash)) == ErrorCode.INVALID_CONFIG
    assert await change(admin, "h", (HEARTBEAT, SET, "9000")) == ErrorCode.INVALID_CONFIG
