"""DeleteRecords as clients see it, over a real etcd."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from kafscale.admin import log_starts, plan
from kafscale.admin.handlers import delete_records
from kafscale.log.heads import TAIL_MAX, Head, Meta, Seg, decode_meta, encode_head, encode_meta
from kafscale.storage.etcd.client import EtcdUnknown, Txn, TxnResult, UnknownKind
from kafscale.storage.etcd.swap import TRIES_MAX
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic, encode_topic
from kafscale.testkit.logbuilder import create_topic
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_records as schema

from services.admin.tests.harness import Admin

END = 9
Answers = list[tuple[str, int, int, int]]
"""(topic, partition, low watermark, error code)"""


async def ask(admin: Admin, asked: Mapping[str, Mapping[int, int]], version: int = 2) -> Answers:
    request = schema.DeleteRecordsRequest(
        topics=[
            schema.DeleteRecordsRequestTopic(
                name=name,
                partitions=[
                    schema.DeleteRecordsRequestPartition(partition_index=partition, offset=offset)
                    for partition, offset in offsets.items()
                ],
            )
            for name, offsets in asked.items()
        ],
        timeout_ms=30_000,
    )
    answer = await admin.ask(delete_records, schema, request, version)
    return [
        (topic.name, part.partition_index, part.low_watermark, part.error_code)
        for topic in answer.topics
        for part in topic.partitions
    ]


async def one(admin: Admin, offset: int, version: int = 2) -> tuple[int, int]:
    """Low watermark and error code of partition 0 of `t`."""
    ((_, _, low_watermark, error),) = await ask(admin, {"t": {0: offset}}, version)
    return low_watermark, error


async def put_head(admin: Admin, topic: Topic, partition: int = 0, *, end: int = END) -> None:
    head = Head(epoch=1, topic=topic.name, next=end)
    await admin.etcd.put(admin.keys.head(topic.topic_id, partition), encode_head(head))


async def meta_of(admin: Admin, topic: Topic, partition: int = 0) -> Meta | None:
    kv = await admin.etcd.get(admin.keys.meta(topic.topic_id, partition))
    return decode_meta(kv.value) if kv else None


@pytest.fixture
async def topic(admin: Admin) -> Topic:
    made = await create_topic(admin.etcd, admin.keys, "t", partitions=200)
    await put_head(admin, made)
    return made


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_every_version_moves_the_start(admin: Admin, topic: Topic, version: int) -> None:
    assert await one(admin, 4, version) == (4, ErrorCode.NONE)
    assert await meta_of(admin, topic) == Meta(log_start=4)
    assert await one(admin, -1, version) == (END, ErrorCode.NONE)
    assert await one(admin, 2, version) == (END, ErrorCode.NONE)
    for offset in (END + 1, -2):
        assert await one(admin, offset, version) == (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert await meta_of(admin, topic) == Meta(log_start=END)


async def test_what_checkpoints_have_written_stays(admin: Admin, topic: Topic) -> None:
    before = Meta(log_start=1, manifest_end=6, gc_seq=3)
    await admin.etcd.put(admin.keys.meta(topic.topic_id, 0), encode_meta(before))
    assert await one(admin, 7) == (7, ErrorCode.NONE)
    assert await meta_of(admin, topic) == replace(before, log_start=7)


async def test_a_log_that_nobody_wrote_starts_and_ends_at_0(admin: Admin, topic: Topic) -> None:
    answers = await ask(admin, {"t": {1: 0, 2: -1, 3: 1}})
    out_of_range = ErrorCode.OFFSET_OUT_OF_RANGE
    assert answers == [("t", 1, 0, 0), ("t", 2, 0, 0), ("t", 3, -1, out_of_range)]
    assert await meta_of(admin, topic, 1) is None


async def test_what_is_not_there_is_unknown_and_does_not_disturb_the_rest(admin: Admin, topic: Topic) -> None:
    answers = await ask(
        admin, {"nowhere": {0: 0}, "t": {-1: 0, 200: 0, 0: 3}, "a/b": {0: 0}, "x" * 20_000: {0: 0}}
    )
    by_error = {(name[:7], partition): (low, error) for name, partition, low, error in answers}
    unknown = (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert by_error == {
        ("nowhere", 0): unknown,
        ("t", -1): unknown,
        ("t", 200): unknown,
        ("t", 0): (3, ErrorCode.NONE),
        ("a/b", 0): unknown,
        ("xxxxxxx", 0): unknown,
    }


async def test_a_topic_on_its_way_out_is_unknown(admin: Admin, topic: Topic) -> None:
    await admin.store.change("t", plan.mark_deleting)
    assert await one(admin, 4) == (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_a_topic_that_is_only_compacted_keeps_its_records(admin: Admin, topic: Topic) -> None:
    async def set_policy(policy: str) -> None:
        await admin.store.change("t", lambda old: plan.with_configs(old, {"cleanup.policy": policy}))

    await set_policy("compact")
    assert await one(admin, 4) == (-1, ErrorCode.POLICY_VIOLATION)
    await set_policy("compact,delete")
    assert await one(admin, 4) == (4, ErrorCode.NONE)


async def test_many_partitions_of_one_request_all_move(admin: Admin, topic: Topic) -> None:
    for partition in range(120):
        await put_head(admin, topic, partition, end=partition)
    answers = await ask(admin, {"t": dict.fromkeys(range(120), -1)})
    assert answers == [("t", partition, partition, 0) for partition in range(120)]


async def test_the_reply_carries_the_revision_from_which_on_the_start_is_known(
    admin: Admin, topic: Topic
) -> None:
    await one(admin, 4)
    moved = await admin.etcd.get(admin.keys.meta(topic.topic_id, 0))
    assert moved is not None
    assert admin.replied_revision == moved.mod_revision
    await one(admin, 3)
    assert admin.replied_revision >= moved.mod_revision


@pytest.mark.parametrize("moment", [1, 2])
async def test_a_topic_deleted_while_its_records_are_leaves_nothing_behind(
    admin: Admin, topic: Topic, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """The topic goes, and comes back under its name: before its log is read, and before its start is moved."""
    again = replace(topic, topic_id=TopicId(b"2" * 16))
    txn = admin.etcd.txn
    calls = 0

    async def at_the_change(asked: Txn) -> TxnResult:
        nonlocal calls
        calls += 1
        if calls == moment:
            await admin.etcd.delete(admin.keys.head(topic.topic_id, 0))
            await put_head(admin, again, end=5)
            await admin.etcd.put(admin.keys.topic("t"), encode_topic(again))
        return await txn(asked)

    monkeypatch.setattr(admin.etcd, "txn", at_the_change)
    assert await one(admin, 4) == (4, ErrorCode.NONE)
    assert await meta_of(admin, topic) is None
    assert await meta_of(admin, again) == Meta(log_start=4)


async def test_an_unknown_outcome_is_a_time_out_and_what_was_known_before_is_told(
    admin: Admin, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn = admin.etcd.txn

    async def answer_lost(asked: Txn) -> TxnResult:
        result = await txn(asked)
        if any(op.success and not op.failure and op.compare[0].target == "create" for op in asked.success):
            raise EtcdUnknown(UnknownKind.TIMEOUT, "the answer was lost")
        return result

    monkeypatch.setattr(admin.etcd, "txn", answer_lost)
    answers = await ask(admin, {"t": {1: 5, 0: 4}})
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert answers == [("t", 1, -1, ErrorCode.OFFSET_OUT_OF_RANGE), ("t", 0, -1, timed_out)]
    assert await meta_of(admin, topic) == Meta(log_start=4), "it was done all the same"


def full_tail() -> tuple[Seg, ...]:
    return tuple(
        Seg(
            base=n, last_delta=0, size=100, etag="e", crc32c=0, index_size=1, index_etag="i", epoch=1,
            min_ts=0, max_ts=0, records=1, batches=1, created_ms=0,
        )
        for n in range(TAIL_MAX)
    )  # fmt: skip


async def test_a_deletion_gives_way_to_the_checkpoint_that_commits_wait_for(
    admin: Admin, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_starts, "DEFER_S", 0.01)
    full = Head(epoch=1, topic="t", next=TAIL_MAX, tail=full_tail())
    head_key, meta_key = admin.keys.head(topic.topic_id, 0), admin.keys.meta(topic.topic_id, 0)
    await admin.etcd.put(head_key, encode_head(full))
    txn = admin.etcd.txn
    looks = 0

    async def look(asked: Txn) -> TxnResult:
        nonlocal looks
        looks += 1
        assert await meta_of(admin, topic) == (None if looks <= 4 else Meta(manifest_end=24)), (
            "it did not wait"
        )
        if looks == 4:
            await admin.etcd.put(head_key, encode_head(replace(full, tail=full.tail[24:])))
            await admin.etcd.put(meta_key, encode_meta(Meta(manifest_end=24)))
        return await txn(asked)

    monkeypatch.setattr(admin.etcd, "txn", look)
    assert await one(admin, 7) == (7, ErrorCode.NONE)
    assert looks == 5, "four looks, and the change"
    assert await meta_of(admin, topic) == Meta(log_start=7, manifest_end=24)


async def test_a_checkpoint_that_never_comes_does_not_hold_a_deletion(
    admin: Admin, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_starts, "DEFER_S", 0.0)
    full = Head(epoch=1, topic="t", next=TAIL_MAX, tail=full_tail())
    await admin.etcd.put(admin.keys.head(topic.topic_id, 0), encode_head(full))
    assert await one(admin, 7) == (7, ErrorCode.NONE)


async def test_who_is_always_overtaken_gives_up_with_a_time_out(
    admin: Admin, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn = admin.etcd.txn
    overtaken = 0

    async def overtake(asked: Txn) -> TxnResult:
        nonlocal overtaken
        overtaken += 1
        await admin.etcd.put(admin.keys.meta(topic.topic_id, 0), encode_meta(Meta(gc_seq=overtaken)))
        return await txn(asked)

    monkeypatch.setattr(admin.etcd, "txn", overtake)
    assert await one(admin, 4) == (-1, ErrorCode.REQUEST_TIMED_OUT)
    assert overtaken == 2 * TRIES_MAX
