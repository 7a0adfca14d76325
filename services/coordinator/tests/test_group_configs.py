"""A group's own configs are obeyed by its members of the new protocol, from their next heartbeat on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from kafscale.coordinator.consumer.model import Tick
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.group_configs import (
    HEARTBEAT_INTERVAL_MS,
    SESSION_TIMEOUT_MS,
    GroupConfigs,
    encode_group_configs,
)
from kafscale.storage.keys import Keyspace

from services.coordinator.tests.shell_harness import Coordinator, known_topic, running, until
from services.coordinator.tests.test_group_actor import CONSUMER_SESSION_S, consumer_beat, live

DEFAULT_INTERVAL_MS = 5_000


@pytest_asyncio.fixture
async def one(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[Coordinator]:
    async with running(etcd, keyspace) as coordinator:
        await known_topic(coordinator, partitions=2)
        yield coordinator


async def configure(one: Coordinator, group: str, **values: int) -> None:
    names = {"session_ms": SESSION_TIMEOUT_MS, "heartbeat_ms": HEARTBEAT_INTERVAL_MS}
    configs = GroupConfigs(group=group, values={names[name]: str(value) for name, value in values.items()})
    await one.etcd.put(one.keys.group_config(group), encode_group_configs(configs))
    await one.parts.group_configs.view.refresh()


async def interval_ms(one: Coordinator, group: str, epoch: int = 0) -> int:
    answer = await consumer_beat(one, epoch, group=group)
    assert answer.error_code == 0
    told: int = answer.heartbeat_interval_ms
    return told


async def test_the_heartbeat_interval_is_the_groups_own(one: Coordinator) -> None:
    assert await interval_ms(one, "g") == DEFAULT_INTERVAL_MS
    await configure(one, "g", heartbeat_ms=7_000)
    assert await interval_ms(one, "g", epoch=1) == 7_000
    assert await interval_ms(one, "other") == DEFAULT_INTERVAL_MS
    await one.etcd.delete(one.keys.group_config("g"))
    await one.parts.group_configs.view.refresh()
    assert await interval_ms(one, "g", epoch=1) == DEFAULT_INTERVAL_MS


@pytest.mark.parametrize(
    ("session_s", "stays"), [(CONSUMER_SESSION_S // 3, False), (3 * CONSUMER_SESSION_S, True)]
)
async def test_the_session_timeout_is_the_groups_own(one: Coordinator, session_s: int, stays: bool) -> None:
    await configure(one, "g", session_ms=1_000 * session_s)
    for group in ("g", "other"):
        await consumer_beat(one, 0, group=group)
    await live(one, CONSUMER_SESSION_S - 5 if not stays else CONSUMER_SESSION_S + 5)
    for group in ("g", "other"):
        one.actor(group).tell(Tick())
    await until(lambda: one.actor("g").idle and one.actor("other").idle)
    assert bool(one.actor("g").group.persisted.members) is stays
    assert bool(one.actor("other").group.persisted.members) is not stays


async def test_configs_count_after_a_restart_and_damaged_ones_harm_no_other_group(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with running(etcd, keyspace) as one:
        await known_topic(one, partitions=2)
        await configure(one, "g", heartbeat_ms=7_000)
        await one.etcd.put(keyspace.group_config("damaged"), b"\xff")
        assert await interval_ms(one, "g") == 7_000
    async with running(etcd, keyspace) as again:
        assert await interval_ms(again, "g", epoch=1) == 7_000
        assert await interval_ms(again, "damaged") == DEFAULT_INTERVAL_MS
