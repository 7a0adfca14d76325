"""A produce instance over a real etcd: what a client may rely on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from kafscale.runtime.stream.frame import ReplyStatus
from kafscale.storage.coordination import rendezvous
from kafscale.storage.etcd.client import EtcdUnknown, UnknownKind
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic, TopicState, encode_topic
from kafscale.wire.errors import ErrorCode
from produce_harness import SEGMENTS, Cluster, batch, until


async def test_what_is_acknowledged_is_in_the_store_and_committed(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    first = await node.send(topic, 0, batch(b"a", b"b"))
    second = await node.send(topic, 0, batch(b"c"))
    assert (first.base_offset, second.base_offset) == (0, 2)
    assert first.status is ReplyStatus.FINAL
    head = await cluster.head(topic)
    assert (head.next, head.epoch, head.owner) == (3, 1, node.id)
    assert 0 < first.revision < second.revision
    assert await cluster.log(topic) == [b"a", b"b", b"c"]


async def test_the_owner_record_says_what_the_head_says(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"a"))
    record = await cluster.owner(topic)
    assert record is not None
    assert (record.epoch, record.owner, record.handoff_to) == (1, node.id, "")


async def test_epochs_of_a_topic_start_above_the_floor_that_its_name_left(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    floored = Topic(name="again", topic_id=topic.topic_id[::-1], partitions=1, epoch_floor=41)
    await cluster.etcd.put(cluster.keyspace.topic("again"), encode_topic(floored))
    await node.send(floored, 0, batch(b"a"))
    assert (await cluster.head(floored)).epoch == 42


async def test_pipelined_requests_keep_their_order_and_share_flushes(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"warm"))
    flushes = node.metric("flushes_total")
    answers = await asyncio.gather(*(node.send(topic, 0, batch(b"%d" % n)) for n in range(64)))
    assert [answer.base_offset for answer in answers] == list(range(1, 65))
    assert node.metric("flushes_total") - flushes <= 2
    assert await cluster.log(topic) == [b"warm", *(b"%d" % n for n in range(64))]


async def test_records_and_bytes_are_counted_by_topic_and_end_with_it(cluster: Cluster) -> None:
    node = await cluster.node()
    for topic in (await cluster.topic("one"), await cluster.topic("two")):
        await node.send(topic, 0, batch(b"a", b"b"))
    assert node.metric("records_total", topic="one") == node.metric("records_total", topic="two") == 2
    assert node.metric("bytes_total", topic="one") > 0
    assert node.metric("flush_seconds_count") == node.metric("flushes_total") == 2
    await cluster.etcd.delete(cluster.keyspace.topic("one"))
    await until(lambda: not node.metric("records_total", topic="one"), "its series are gone")
    assert node.metric("bytes_total", topic="one") == 0
    assert node.metric("records_total", topic="two") == 2


async def test_requests_before_the_claim_is_won_are_held_in_order(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    answers = await asyncio.gather(*(node.send(topic, 0, batch(b"%d" % n)) for n in range(20)))
    assert [answer.base_offset for answer in answers] == list(range(20))


async def test_a_request_to_several_partitions_is_answered_once_all_are_done(cluster: Cluster) -> None:
    node = await cluster.node()
    topic, other = await cluster.topic("t", 12), await cluster.topic("u", 1)
    answer = await node.send_many(
        [(topic, {n: batch(b"%d" % n) for n in range(12)}), (other, {0: batch(b"x")})]
    )
    assert [(part.index, part.error_code, part.base_offset) for part in answer.parts] == [
        *((n, 0, 0) for n in range(12)),
        (0, 0, 0),
    ]
    assert answer.revision >= max([(await cluster.head(topic, n)).epoch for n in range(12)])


async def test_topic_ids_are_understood_from_version_13(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    answer = await node.send(topic, 0, batch(b"a"), version=13)
    assert answer.base_offset == 0
    stranger = Topic(name="no", topic_id=topic.topic_id[::-1], partitions=1)
    assert (await node.send(stranger, 0, batch(b"a"), version=13)).error is ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", range(14))
async def test_every_version_is_answered_in_its_own_layout(cluster: Cluster, version: int) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    assert (await node.send(topic, 0, batch(b"a"), version=version)).base_offset == 0


async def test_a_topic_created_just_now_is_found_and_its_pipeline_keeps_its_order(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    # No turn of the loop since: the watch cannot have reported it yet.
    answers = [node.send(topic, 0, batch(b"%d" % n)) for n in range(5)]
    assert [answer.base_offset for answer in await asyncio.gather(*answers)] == list(range(5))


async def test_made_up_names_cost_etcd_one_look_at_a_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    looks = 0
    topics = node.service.ownership.world.topics
    refresh = topics.refresh

    async def counted() -> None:
        nonlocal looks
        looks += 1
        await refresh()

    monkeypatch.setattr(topics, "refresh", counted)
    made_up = [Topic(name=f"no-{n}", topic_id=topic.topic_id, partitions=1) for n in range(50)]
    answers = await asyncio.gather(*(node.send(where, 0, batch(b"a")) for where in made_up))
    assert {answer.error for answer in answers} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert looks <= 2


async def test_a_topic_is_not_called_unknown_when_etcd_cannot_be_read(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await cluster.node()
    topic = await cluster.topic()

    async def no_answer() -> None:
        raise EtcdUnknown(UnknownKind.TIMEOUT, "no answer")

    monkeypatch.setattr(node.service.ownership.world.topics, "refresh", no_answer)
    stranger = Topic(name="no", topic_id=topic.topic_id[::-1], partitions=1)
    for version in (12, 13):
        answer = await node.send(stranger, 0, batch(b"a"), version=version)
        assert answer.error is ErrorCode.LEADER_NOT_AVAILABLE


async def test_unknown_topics_and_partitions_are_refused(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic("t", 2)
    stranger = Topic(name="no", topic_id=topic.topic_id[::-1], partitions=1)
    for where, partition in ((stranger, 0), (topic, 2), (topic, -1), (topic, 2**31 - 1)):
        answer = await node.send(where, partition, batch(b"a"))
        assert answer.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("acks", [2, -2, 32767])
async def test_acks_that_kafka_does_not_know_are_refused(cluster: Cluster, acks: int) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    answer = await node.send(topic, 0, batch(b"a"), acks=acks)
    assert answer.error is ErrorCode.INVALID_REQUIRED_ACKS


async def test_acks_1_waits_for_the_commit_like_acks_all(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    answer = await node.send(topic, 0, batch(b"a"), acks=1)
    assert answer.revision > 0
    assert (await cluster.head(topic)).next == 1


async def test_acks_0_gets_no_answer_and_is_stored_all_the_same(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    answer = await node.send(topic, 0, batch(b"a"), acks=0)
    assert (answer.status, answer.response) == (ReplyStatus.NO_REPLY, None)
    await node.send(topic, 0, batch(b"b"))
    assert await cluster.log(topic) == [b"a", b"b"]
    await until(lambda: node.runtime.budget.used_bytes == 0, "memory given back")


async def test_what_follows_a_refused_request_is_refused_too_though_the_topic_was_made_again_between_them(
    cluster: Cluster,
) -> None:
    """Both name the topic. The instance finds the old one for the first, and the new one for the second."""
    owner = await cluster.node()
    old = await cluster.topic()
    await owner.send(old, 0, batch(b"a"))
    other = await cluster.node()
    assert (await other.send(old, 0, batch(b"b"))).status is ReplyStatus.NOT_OWNER
    nodes = [int(each.id.split("/")[0]) for each in (owner, other)]
    ids = (TopicId(bytes([number]) * 16) for number in range(256))
    wins = next(each for each in ids if rendezvous(each, 0, nodes) == nodes[1])
    new = replace(old, topic_id=wins)
    await cluster.etcd.put(cluster.keyspace.topic(new.name), encode_topic(new))
    views = [each.service.ownership.world.topics for each in (owner, other)]
    await until(lambda: all(view.by_id(new.topic_id) is not None for view in views), "both know the new one")
    assert (await other.send(new, 0, batch(b"c"))).status is ReplyStatus.NOT_OWNER
    raised = await other.send(new, 0, batch(b"b"), lane_epoch=1)
    assert (raised.error, raised.base_offset) == (ErrorCode.NONE, 0)


async def test_acks_0_at_an_instance_that_is_no_owner_says_so_and_the_lane_goes_on_when_raised(
    cluster: Cluster,
) -> None:
    owner = await cluster.node()
    topic = await cluster.topic()
    await owner.send(topic, 0, batch(b"a"))
    other = await cluster.node()
    refused = await other.send(topic, 0, batch(b"b"), acks=0)
    assert (refused.status, refused.error) == (ReplyStatus.NOT_OWNER, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    again = await owner.send(topic, 0, batch(b"b"), acks=0, lane_epoch=1)
    assert again.status is ReplyStatus.NO_REPLY
    await owner.send(topic, 0, batch(b"c"), lane_epoch=1)
    assert await cluster.log(topic) == [b"a", b"b", b"c"]


async def test_acks_0_with_a_mistake_is_told_so_that_the_connection_can_be_closed(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    await node.send(topic, 0, batch(b"a"))
    answer = await node.send(topic, 0, b"not a batch", acks=0)
    assert answer.status is ReplyStatus.FINAL
    assert answer.error is not ErrorCode.NONE


async def test_transactional_ids_are_refused_while_transactions_are_off(cluster: Cluster) -> None:
    node = await cluster.node(transactions=False)
    topic = await cluster.topic()
    answer = await node.send(topic, 0, batch(b"a"), transactional_id="tx")
    assert answer.error is ErrorCode.INVALID_REQUEST


async def test_a_request_without_partitions_is_answered(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    assert (await node.send_many([])).parts == []
    assert (await node.send_many([(topic, {})])).parts == []


async def test_a_body_that_is_no_produce_request_is_answered_as_failed_and_hurts_nobody(
    cluster: Cluster,
) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    assert (
        await node.send_raw(b"\xff\xff\x00\x01\x00\x00\x00\x01\x7f\xff\xff\xff", 3)
    ).status is ReplyStatus.FAILED
    assert (await node.send(topic, 0, batch(b"a"))).base_offset == 0


async def test_a_corrupt_batch_is_refused_and_its_neighbours_are_not(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic("t", 2)
    broken = bytearray(batch(b"a"))
    broken[-1] ^= 1
    answer = await node.send_many([(topic, {0: bytes(broken), 1: batch(b"b")})])
    assert [part.error_code for part in answer.parts] == [ErrorCode.CORRUPT_MESSAGE, 0]
    assert node.errors == [ErrorCode.CORRUPT_MESSAGE], "counted once"
    assert answer.status is ReplyStatus.FINAL
    assert await cluster.log(topic, 1) == [b"b"]


async def test_a_topics_own_message_limit_holds_and_follows_its_config(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic(max_message_bytes="100")
    assert (await node.send(topic, 0, batch(b"x" * 200))).error is ErrorCode.MESSAGE_TOO_LARGE
    roomy = Topic(
        name=topic.name, topic_id=topic.topic_id, partitions=1, configs={"max.message.bytes": "1000"}
    )
    put = await cluster.etcd.put(cluster.keyspace.topic("t"), encode_topic(roomy))
    await node.service.ownership.world.topics.wait_revision(put.revision, 5)
    assert (await node.send(topic, 0, batch(b"x" * 200))).base_offset == 0


async def test_requests_beyond_the_memory_budget_are_refused_and_memory_comes_back(cluster: Cluster) -> None:
    node = await cluster.node(memory_bytes=16 << 20)
    topic = await cluster.topic("t", 8)
    await node.send(topic, 0, batch(b"warm"))
    big = batch(b"x" * (1 << 20) + b"y" * 1000)
    await cluster.etcd.put(
        cluster.keyspace.topic("t"),
        encode_topic(
            Topic(
                name="t", topic_id=topic.topic_id, partitions=8, configs={"max.message.bytes": str(4 << 20)}
            )
        ),
    )
    await until(lambda: node.service.ownership.world.topics.by_name("t").max_message_bytes == 4 << 20)
    answers = await asyncio.gather(*(node.send(topic, n % 8, big) for n in range(20)))
    errors = [answer.error for answer in answers]
    assert errors.count(ErrorCode.NOT_ENOUGH_REPLICAS) == 5
    assert errors.count(ErrorCode.NONE) == 15
    await until(lambda: node.runtime.budget.used_bytes == 0, "memory given back")
    assert (await node.send(topic, 0, big)).error is ErrorCode.NONE


async def test_a_repeated_batch_gets_its_first_offset_also_after_a_restart(cluster: Cluster) -> None:
    node = await cluster.node(node_id=3)
    topic = await cluster.topic()
    first = batch(b"a", b"b", pid=7, epoch=0, seq=0)
    second = batch(b"c", pid=7, epoch=0, seq=2)
    assert [(await node.send(topic, 0, records)).base_offset for records in (first, second)] == [0, 2]
    assert (await node.send(topic, 0, first)).base_offset == 0
    await node.kill()
    again = await cluster.node(node_id=3)
    assert [(await again.send(topic, 0, records)).base_offset for records in (second, first)] == [2, 0]
    assert (await again.send(topic, 0, batch(b"d", pid=7, epoch=0, seq=3))).base_offset == 3
    assert await cluster.log(topic) == [b"a", b"b", b"c", b"d"]
    assert (await cluster.head(topic)).epoch == 2


async def test_a_restarted_node_takes_its_old_partitions_back_without_being_asked(cluster: Cluster) -> None:
    node = await cluster.node(node_id=1)
    topic = await cluster.topic("t", 6)
    await node.send_many([(topic, {n: batch(b"x") for n in range(6)})])
    await node.kill()
    again = await cluster.node(node_id=1)
    await until(lambda: len(again.owned) == 6, "all claimed")
    assert again.metric("claims_total", grounds="mine") == 6


async def test_checkpoints_move_the_tail_to_manifests_and_merge_them(cluster: Cluster) -> None:
    node = await cluster.node(node_id=2, **SEGMENTS)
    topic = await cluster.topic()
    count = 0
    meta = await cluster.meta(topic)
    # A merge of 32 manifests needs as many checkpoints of 17 segments; it is named by one that comes after it is done.
    while not any(chunk.level == 1 for chunk in meta.chunks):
        await node.send(topic, 0, batch(b"%d" % count, pid=5, epoch=0, seq=count))
        count += 1
        assert count < 60 * 17
        if count > 32 * 17:
            meta = await cluster.meta(topic)
    assert count > 32 * 17
    assert len(meta.chunks) < 32
    assert len((await cluster.head(topic)).tail) <= 32
    assert await cluster.log(topic) == [b"%d" % n for n in range(count)]
    snapshots = [
        info.key async for info in cluster.store.list(cluster.keyspace.snapshots_prefix(topic.topic_id))
    ]
    assert (await cluster.head(topic)).snap_key in snapshots
    await node.kill()
    gets = node.metric("puts_total")
    assert gets > count
    again = await cluster.node(node_id=2, **SEGMENTS)
    last = batch(b"%d" % (count - 1), pid=5, epoch=0, seq=count - 1)
    assert (await again.send(topic, 0, last)).base_offset == count - 1


async def test_deleting_a_topic_under_load_ends_its_writers_and_no_other(cluster: Cluster) -> None:
    node = await cluster.node()
    topic, other = await cluster.topic("t"), await cluster.topic("u")
    await node.send_many([(topic, {0: batch(b"a")}), (other, {0: batch(b"a")})])
    sent = [node.send(topic, 0, batch(b"b")) for _ in range(10)]
    deleting = Topic(name="t", topic_id=topic.topic_id, partitions=1, state=TopicState.DELETING)
    await cluster.etcd.put(cluster.keyspace.topic("t"), encode_topic(deleting))
    await cluster.etcd.delete(cluster.keyspace.head(topic.topic_id, 0))
    for answer in await asyncio.gather(*sent):
        assert answer.error in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    await until(lambda: (topic.topic_id, 0) not in node.owned, "its writer is gone")
    known = node.service.ownership.world.topics
    await until(lambda: known.find("t") is None, "the watch has reported the deletion")
    late = await node.send(topic, 0, batch(b"c"))
    assert late.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await cluster.etcd.get(cluster.keyspace.head(topic.topic_id, 0)) is None
    assert (await node.send(other, 0, batch(b"b"))).base_offset == 1
