"""DescribeLogDirs: the store is one directory, with the bytes that were committed."""

from __future__ import annotations

from typing import Any

import pytest
from kafscale.admin.handlers import (
    describe_log_dirs,
)
from kafscale.log.heads import Head, Meta, encode_head, encode_meta
from kafscale.storage.etcd.client import EtcdUnknown
from kafscale.storage.etcd.errors import UnknownKind
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_log_dirs as dirs_schema

from services.admin.tests.harness import Admin, condemned, created


async def directory(admin: Admin, wanted: dict[str, list[int]] | None, version: int = 4) -> Any:
    topics = None
    if wanted is not None:
        topics = [
            dirs_schema.DescribeLogDirsRequestDescribableDirTopic(topic=name, partitions=numbers)
            for name, numbers in wanted.items()
        ]
    request = dirs_schema.DescribeLogDirsRequest(topics=topics)
    answer = await admin.ask(describe_log_dirs, dirs_schema, request, version)
    assert answer.error_code == 0
    (result,) = answer.results
    return result


async def filled(admin: Admin, topic: Topic, **sizes: int) -> None:
    for number, size in sizes.items():
        key = admin.keys.head(topic.topic_id, int(number[1:]))
        await admin.etcd.put(key, encode_head(Head(epoch=1, topic=topic.name, bytes=size)))


def sizes_in(result: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, part.partition_index): part.partition_size
        for topic in result.topics
        for part in topic.partitions
    }


@pytest.mark.parametrize("version", range(6))
async def test_the_store_is_one_directory_with_the_bytes_that_were_committed(
    admin: Admin, version: int
) -> None:
    topic, other = await created(admin, "t"), await created(admin, "u", 1)
    await filled(admin, topic, p0=5, p2=2**40)
    await filled(admin, other, p0=7)
    result = await directory(admin, {"t": [2, 0, 1, 0]}, version)
    assert (result.error_code, result.log_dir) == (0, "objects")
    assert sizes_in(result) == {("t", 0): 5, ("t", 1): 0, ("t", 2): 2**40}
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)
    assert {(part.offset_lag, part.is_future_key) for part in result.topics[0].partitions} == {(0, False)}


async def test_bytes_that_retention_or_compaction_did_away_with_do_not_count(admin: Admin) -> None:
    topic = await created(admin, "t")
    await filled(admin, topic, p0=500, p1=500)
    await admin.etcd.put(admin.keys.meta(topic.topic_id, 1), encode_meta(Meta(freed=120)))
    assert sizes_in(await directory(admin, {"t": [0, 1]})) == {("t", 0): 500, ("t", 1): 380}


async def test_all_topics_are_those_that_are_not_being_deleted(admin: Admin) -> None:
    await filled(admin, await created(admin, "t", 1), p0=3)
    await condemned(admin, "u")
    assert sizes_in(await directory(admin, None)) == {("t", 0): 3}


async def test_what_does_not_exist_is_left_out(admin: Admin) -> None:
    await created(admin, "t", 1)
    assert sizes_in(await directory(admin, {"no": [0], "t": [1, -1]})) == {}
    assert sizes_in(await directory(admin, {})) == {}


async def test_more_partitions_than_one_reading_takes_are_all_there(admin: Admin) -> None:
    topic = await created(admin, "t", 205)
    await filled(admin, topic, **{f"p{number}": number + 1 for number in range(205)})
    assert sizes_in(await directory(admin, None)) == {("t", number): number + 1 for number in range(205)}


async def test_sizes_that_etcd_does_not_tell_are_an_error_of_the_directory(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object, **__: object) -> None:
        raise EtcdUnknown(UnknownKind.UNAVAILABLE, "away")

    await created(admin, "t", 1)
    monkeypatch.setattr(describe_log_dirs, "_sizes", away)
    result = await directory(admin, None)
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
