"""Groups, their offsets and their lag as tables: joined with the others, and measured only for who asks."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from kafscale.lake.catalog import Lake, read_lake
from kafscale.lake.sources import Seen
from kafscale.lake.sql import stream
from kafscale.storage.consumer_groups import (
    Part,
    PartKind,
    encode_member_assignment,
    encode_member_metadata,
    part_key,
)
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.groups import (
    ClassicGroup,
    ClassicMember,
    ClassicPhase,
    CommittedOffset,
    ConsumerGroup,
    ConsumerGroupMetadata,
    ConsumerMember,
    ConsumerMemberState,
    GroupRecord,
    encode_committed,
    encode_group,
)
from kafscale.storage.keys import Keyspace
from kafscale.storage.slots import slot_of
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.testkit.objects import CountingStore
from kafscale.testkit.old_groups import encode_old_group

from .queries import query

T0 = 1_700_000_000_000


async def put_with_keys(etcd: EtcdClient, keys: Keyspace, name: str) -> None:
    """A consumer group of one member, as coordinators write it."""
    member = ConsumerMember(
        id="m", member_epoch=9, previous_epoch=8, state=ConsumerMemberState.STABLE, rebalance_timeout_ms=1
    )
    key = keys.group(slot_of(name), name)
    state = ConsumerGroupMetadata(group_epoch=9, assignment_epoch=9)
    await etcd.put(key, encode_group(GroupRecord(group=name, state=state)))
    await etcd.put(part_key(keys, key, Part(PartKind.METADATA, "m")), encode_member_metadata(member))
    await etcd.put(part_key(keys, key, Part(PartKind.ASSIGNMENT, "m")), encode_member_assignment(member))


@pytest.fixture
async def lake(etcd: EtcdClient, keyspace: Keyspace) -> Lake:
    """A topic of twenty records in two segments; of four groups one is classic, two are new (one in a
    record of old), one is of offsets alone."""
    lake = Lake(etcd, keyspace, CountingStore())
    topic = await create_topic(etcd, keyspace, "orders")
    log = LogBuilder(etcd, keyspace, lake.store, topic)
    for number in range(2):
        await log.append(records(10, timestamp=T0 + 10_000 * number, step_ms=1_000))
    member = ClassicMember(id="m", session_timeout_ms=1, rebalance_timeout_ms=1)
    states = {
        "old": ClassicGroup(generation=3, protocol="range", phase=ClassicPhase.STABLE, members=(member,)),
        "new": ConsumerGroup(group_epoch=7, assignment_epoch=7),
    }
    for name, state in states.items():
        value = GroupRecord(group=name, state=state, empty_since_ms=-1 if state.members else T0)
        await etcd.put(keyspace.group(slot_of(name), name), encode_old_group(value))
    await put_with_keys(etcd, keyspace, "keyed")
    for name, offset in (("old", 20), ("new", 13), ("alone", 4)):
        key = keyspace.committed(slot_of(name), name, topic.topic_id, 0)
        await etcd.put(key, encode_committed(CommittedOffset(offset=offset, commit_ms=T0, metadata="m")))
    return lake


async def ask(lake: Lake, text: str) -> list[dict[str, Any]]:
    logs = await read_lake(lake)
    lake.store.read.clear()  # type: ignore[attr-defined]
    return (await query(lake, logs, text)).to_pylist()


async def test_every_group_is_there_with_its_state(lake: Lake) -> None:
    text = "select group_id, type, state, members, generation, protocol from groups order by 1"
    assert [tuple(row.values()) for row in await ask(lake, text)] == [
        ("alone", "classic", "empty", 0, None, None),
        ("keyed", "consumer", "stable", 1, 9, None),
        ("new", "consumer", "empty", 0, 7, None),
        ("old", "classic", "stable", 1, 3, "range"),
    ]


async def test_offsets_join_the_records_at_which_they_stand(lake: Lake) -> None:
    text = (
        'select c.group_id, r.timestamp::varchar as at from commits c left join records r on r."offset" = committed '
        "and r.topic = c.topic and r.partition = c.partition order by 1"
    )
    assert [tuple(row.values()) for row in await ask(lake, text)] == [
        ("alone", "2023-11-14 22:13:24+00"),
        ("new", "2023-11-14 22:13:33+00"),
        ("old", None),
    ]


async def test_a_time_of_no_date_fails_no_query(lake: Lake) -> None:
    topic = (await read_lake(lake))[0].topic
    for name, at_ms in (("nanoseconds", T0 * 1_000_000), ("negative", -5)):  # OffsetCommit 1 takes any
        key = lake.keys.committed(slot_of(name), name, topic.topic_id, 0)
        await lake.etcd.put(key, encode_committed(CommittedOffset(offset=4, commit_ms=at_ms)))
    found = await ask(lake, "select group_id from commits where committed_at is null order by 1")
    assert [row["group_id"] for row in found] == ["nanoseconds", "negative"]


async def test_lag_is_measured_for_who_names_it(lake: Lake) -> None:
    text = (
        "select group_id, records, lost, time_ms > 0 as behind, expires_in_ms from lag order by records desc"
    )
    assert [tuple(row.values()) for row in await ask(lake, text)] == [
        ("alone", 16, 0, True, 0),
        ("new", 7, 0, True, 0),
        ("old", 0, 0, None, None),
    ]
    assert len(lake.store.read) == 2  # type: ignore[attr-defined]
    await ask(lake, "select * from groups join commits using (group_id)")
    assert lake.store.read == []  # type: ignore[attr-defined]


@pytest.mark.parametrize("table", ["groups", "commits", "lag"])
async def test_a_reader_who_sees_one_group_gets_one(lake: Lake, table: str) -> None:
    logs = await read_lake(lake)
    seen = Seen(groups=frozenset({"new"}), configs=frozenset())
    parts = [part async for part in stream(lake, logs, f"select distinct group_id from {table}", seen=seen)]
    assert pa.Table.from_batches(parts).to_pylist() == [{"group_id": "new"}]


@pytest.mark.parametrize(("configs", "policy"), [(frozenset({"orders"}), "delete"), (frozenset[str](), None)])
async def test_a_reader_who_does_not_see_configs_gets_nulls(
    lake: Lake, configs: frozenset[str], policy: str | None
) -> None:
    seen = Seen(groups=frozenset(), configs=configs)
    text = "select topic, cleanup_policy from topics"
    parts = [part async for part in stream(lake, await read_lake(lake), text, seen=seen)]
    assert pa.Table.from_batches(parts).to_pylist() == [{"topic": "orders", "cleanup_policy": policy}]


async def test_partitions_without_a_committed_offset_are_rows_too(lake: Lake) -> None:
    topic = await create_topic(lake.etcd, lake.keys, "payments", partitions=2)
    key = lake.keys.committed(slot_of("alone"), "alone", topic.topic_id, 1)
    await lake.etcd.put(key, encode_committed(CommittedOffset(offset=0, commit_ms=T0)))
    text = "select group_id, topic, partition, status from lag where committed is null"
    assert [tuple(row.values()) for row in await ask(lake, text)] == [("alone", "payments", 0, "OK")]
    assert len(await ask(lake, "select * from lag where committed is not null")) == 4


async def test_lag_of_one_group_costs_what_that_group_costs(lake: Lake) -> None:
    assert len(await ask(lake, "select * from lag where group_id = 'alone'")) == 1
    assert len(lake.store.read) == 1  # type: ignore[attr-defined]
