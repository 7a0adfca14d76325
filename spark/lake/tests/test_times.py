"""The offset of a time: the first record in the log's order that is not older."""

from __future__ import annotations

import pytest
from kafscale.lake.catalog import Lake, Log, read_lake
from kafscale.lake.scan import offset_at
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.logbuilder import LogBuilder, create_topic
from kafscale.wire.records import Record

TIMES = [[10, 30, 20], [25, 26, 40], [35, 50, 60]]
"""Of three segments of three records; not every record is newer than the one before."""


@pytest.fixture
async def builder(etcd: EtcdClient, keyspace: Keyspace) -> LogBuilder:
    topic = await create_topic(etcd, keyspace, "orders")
    log = LogBuilder(etcd, keyspace, MemoryStore(), topic)
    for times in TIMES:
        await log.append(*([Record(timestamp=time, key=None, value=b"v")] for time in times))
    return log


async def read(etcd: EtcdClient, keyspace: Keyspace, builder: LogBuilder) -> tuple[Lake, Log]:
    lake = Lake(etcd, keyspace, builder._store)
    (log,) = await read_lake(lake)
    return lake, log


def expected(time_ms: int, start: int = 0) -> int | None:
    flat = [time for times in TIMES for time in times]
    return next((offset for offset, time in enumerate(flat) if offset >= start and time >= time_ms), None)


async def test_each_time_has_its_first_record(
    etcd: EtcdClient, keyspace: Keyspace, builder: LogBuilder
) -> None:
    lake, log = await read(etcd, keyspace, builder)
    for time_ms in range(5, 70):
        assert await offset_at(lake, log, time_ms) == expected(time_ms), time_ms


async def test_what_was_deleted_is_not_found(
    etcd: EtcdClient, keyspace: Keyspace, builder: LogBuilder
) -> None:
    await builder.retain_from(2, delete=False)
    lake, log = await read(etcd, keyspace, builder)
    for time_ms in range(5, 70):
        assert await offset_at(lake, log, time_ms) == expected(time_ms, 2), time_ms


async def test_an_empty_log_stands_nowhere(etcd: EtcdClient, keyspace: Keyspace) -> None:
    await create_topic(etcd, keyspace, "orders")
    lake = Lake(etcd, keyspace, MemoryStore())
    (log,) = await read_lake(lake)
    assert await offset_at(lake, log, 5) is None
