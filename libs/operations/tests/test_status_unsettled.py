"""The picture counts the slices that no owner has settled, of every partition."""

from __future__ import annotations

import pytest
from kafscale.operations.status import gather
from kafscale.operations.status.gather import look, read_unsettled
from kafscale.operations.status.picture import Unsettled, paint
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records

from .pictures import NOW_MS, with_slices


async def test_the_slices_of_all_partitions_are_counted_and_segments_are_not(
    etcd: EtcdClient, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "HEADS_PER_READ", 1)
    topic = await create_topic(etcd, keyspace, "orders", partitions=3)
    logs = [LogBuilder(etcd, keyspace, MemoryStore(), topic, number) for number in range(3)]
    for log in logs:
        await log.append(records(2))
        log.as_slices = True
    segs = [
        await logs[0].append(records(5)),
        await logs[0].append(records(50)),
        await logs[2].append(records(7)),
    ]
    found = await read_unsettled(etcd, keyspace)
    assert found == Unsettled(slices=3, bytes=sum(seg.size for seg in segs), oldest_created_ms=1)
    await logs[0].settle()
    assert await read_unsettled(etcd, keyspace) == Unsettled(
        slices=1, bytes=segs[2].size, oldest_created_ms=1
    )
    picture = await look(etcd, keyspace, ("e",), 0)
    assert (picture.slices, picture.slice_bytes) == (1, segs[2].size)
    await etcd.put(keyspace.head(topic.topic_id, 2), b"\xff")
    assert await read_unsettled(etcd, keyspace) == Unsettled()


def test_the_oldest_slice_has_an_age() -> None:
    picture = paint(
        with_slices(Unsettled(slices=2, bytes=3_000, oldest_created_ms=NOW_MS - 240_999)), {}, 1.0
    )
    assert (picture.slices, picture.slice_bytes, picture.oldest_slice_s) == (2, 3_000, 240)


def test_the_clock_of_an_instance_may_be_ahead() -> None:
    assert (
        paint(with_slices(Unsettled(slices=1, oldest_created_ms=NOW_MS + 5_000)), {}, 1.0).oldest_slice_s == 0
    )


def test_without_slices_no_age() -> None:
    picture = paint(with_slices(Unsettled()), {}, 1.0)
    assert (picture.slices, picture.oldest_slice_s) == (0, None)
