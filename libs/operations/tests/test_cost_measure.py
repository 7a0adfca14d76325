"""What is counted of a running cluster's requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from kafscale.log.heads import Head
from kafscale.operations.cost.changes import Changes, slice_bytes_of
from kafscale.operations.cost.load import Prices, Requests
from kafscale.operations.cost.measure import Heads, loads_per_s, measure
from kafscale.operations.cost.rows import rows_of
from kafscale.operations.status.picture import Totals
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.records import Instance, InstanceState
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records

LOADS = "kafscale_fetch_cache_loads_total"
SETTLED = "kafscale_produce_settle_reads_total"
MANIFESTS = "kafscale_fetch_manifest_loads_total"


async def changes_of(log: LogBuilder, *steps: Callable[[], Awaitable[Any]]) -> Changes:
    found = Changes()
    for step in steps:
        before = log.head
        await step()
        found.note(before, log.head)
    return found


@pytest.fixture
async def log(etcd: EtcdClient, keyspace: Keyspace) -> LogBuilder:
    return LogBuilder(etcd, keyspace, MemoryStore(), await create_topic(etcd, keyspace, "orders"))


async def append(log: LogBuilder) -> None:
    await log.append(records(10))


async def test_a_segment_is_two_objects(log: LogBuilder) -> None:
    found = await changes_of(log, lambda: append(log), lambda: append(log))
    requests = found.requests(2.0, loads_per_s=0.0, slice_bytes=0)
    assert requests == Requests(puts=2.0, gets=0.0, deletes=2.0, head_commits=1.0, redundant_bytes=0)


async def test_a_bundle_is_one_object_for_all_partitions_in_it(log: LogBuilder) -> None:
    log.as_slices = True
    found = await changes_of(log, lambda: append(log))
    found.note(Head(epoch=1, topic="other"), replace(log.head, topic="other"))
    assert (found.head_commits, len(found.bundles), found.segments) == (2, 1, 0)
    assert found.requests(1.0, loads_per_s=7.0, slice_bytes=5).puts == 1
    assert slice_bytes_of(log.head) == log.head.tail[0].size


async def test_a_bundle_is_divided_among_its_topics_by_their_bytes(log: LogBuilder) -> None:
    log.as_slices = True
    found = await changes_of(log, lambda: append(log))
    other = replace(log.head, topic="other")
    found.note(None, replace(other, tail=tuple(replace(seg, size=3 * seg.size) for seg in other.tail)))
    assert found.puts_by_topic() == {"orders": 0.25, "other": 0.75}
    log.as_slices = False
    before = log.head
    await append(log)
    found.note(before, log.head)
    assert found.puts_by_topic() == {"orders": 2.25, "other": 0.75}
    await log.checkpoint()
    found.note(before, replace(log.head, snap_key="a"))
    puts = found.requests(1.0, loads_per_s=None, slice_bytes=0).puts
    assert sum(found.puts_by_topic().values()) == pytest.approx(puts)


async def test_a_settled_run_is_one_segment_and_no_checkpoint(log: LogBuilder) -> None:
    log.as_slices = True
    await append(log)
    found = await changes_of(log, lambda: log.settle())
    assert (found.head_commits, found.bundles, found.segments, found.manifests) == (1, {}, 1, 0)
    assert slice_bytes_of(log.head) == 0


async def test_a_checkpoint_is_a_manifest_and_a_snapshot(log: LogBuilder) -> None:
    await append(log)
    await append(log)
    before = log.head
    found = await changes_of(log, lambda: log.checkpoint())
    assert (found.head_commits, found.segments, found.manifests, found.snapshots) == (1, 0, 1, 0)
    found.note(before, replace(before, snap_key="a"))
    found.note(replace(before, snap_key="a"), replace(before, snap_key="a"))
    assert (found.manifests, found.snapshots) == (1, 1)
    requests = found.requests(1.0, loads_per_s=0.0, slice_bytes=0)
    assert requests.puts == pytest.approx(2 + 1 / 31)
    assert requests.gets == pytest.approx(32 / 31), "a merge reads the manifest later"


async def test_a_claim_is_a_commit_without_objects(log: LogBuilder) -> None:
    await append(log)
    found = await changes_of(log, lambda: log.claim(2))
    assert found.requests(1.0, loads_per_s=0.0, slice_bytes=0).puts == 0
    assert found.head_commits == 1


async def test_a_running_cluster_is_counted_from_now_on(
    etcd: EtcdClient, keyspace: Keyspace, log: LogBuilder
) -> None:
    await append(log)  # before
    counting = asyncio.create_task(measure(etcd, keyspace, 2.0))
    await asyncio.sleep(0.5)
    await append(log)
    log.as_slices = True
    await append(log)
    await log.append(records(20))
    await log.delete_head()
    found = await counting
    assert (found.partitions, found.silent) == (0, 0)
    assert 2.0 <= found.over_s < 4.0
    assert found.requests.puts * found.over_s == pytest.approx(2 + 1 + 1)
    assert found.requests.head_commits * found.over_s == pytest.approx(3)
    assert found.requests.gets == 0


async def test_a_head_that_cannot_be_read_is_a_commit(
    etcd: EtcdClient, keyspace: Keyspace, log: LogBuilder
) -> None:
    await append(log)
    heads = Heads()
    counting = asyncio.create_task(heads.watched(etcd, keyspace, 1.0))
    await asyncio.sleep(0.3)
    await etcd.put(keyspace.head(log.topic.topic_id, 0), b"\xff")
    found, _ = await counting
    assert (found.head_commits, found.segments, len(heads)) == (1, 0, 0)


def reader(node_id: int, role: str = "fetch") -> Instance:
    address = f"10.0.0.{node_id}"
    return Instance(
        role=role,
        node_id=node_id,
        boot_id="b",
        address=f"{address}:7000",
        http_address=f"{address}:8000",
        state=InstanceState.READY,
        started_ms=0,
        create_revision=1,
    )


def test_the_gets_of_all_instances_are_added_up() -> None:
    readers = [reader(1), reader(2), reader(1, "produce")]
    one, two, owner = (each.role + each.id for each in readers)
    before: dict[str, Totals] = {one: {LOADS: 10.0, MANIFESTS: 1.0}, two: {LOADS: 0.0}, owner: {SETTLED: 6.0}}
    after: dict[str, Totals] = {
        one: {LOADS: 30.0, MANIFESTS: 3.0},
        two: {LOADS: 4.0, "kafscale_fetch_bytes_total": 9.0},
        owner: {SETTLED: 10.0},
    }
    assert loads_per_s(readers, before, after, 2.0) == (15.0, 0)
    assert loads_per_s(readers, before, {**after, two: {}}, 2.0) == (None, 1)
    assert loads_per_s(readers, {**before, one: {}}, after, 2.0) == (None, 1)


def test_unknown_gets_are_not_zero() -> None:
    requests = Requests(puts=1, gets=None, deletes=1, head_commits=1, redundant_bytes=0)
    second, month = rows_of(requests, Prices())
    assert (second["gets"], month["gets"], month["get_usd"], month["usd"]) == (None, None, None, 12.96)
