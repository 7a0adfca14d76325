"""The bounds of records' times in a running instance: Kafka's defaults, and what a topic sets."""

from __future__ import annotations

import time

from kafscale.storage.topics import DEFAULT_TIMESTAMP_AFTER_MAX_MS
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch
from produce_harness import Cluster

MINUTE_MS = 60_000


def at(*from_now_ms: int) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    return build_batch(
        [Record(timestamp=now_ms + each, key=b"k", value=b"%d" % each) for each in from_now_ms]
    )


async def test_by_default_a_record_may_be_an_hour_ahead_and_as_old_as_it_likes(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    hour_ms = DEFAULT_TIMESTAMP_AFTER_MAX_MS
    assert hour_ms == 60 * MINUTE_MS
    ahead = await node.send(topic, 0, at(0, hour_ms + MINUTE_MS))
    assert ahead.error is ErrorCode.INVALID_TIMESTAMP
    assert "after the clock of this service" in (ahead.parts[0].error_message or "")
    assert (await node.send(topic, 0, at(0, hour_ms - MINUTE_MS, -(10**12)))).base_offset == 0


async def test_a_topic_sets_both_bounds(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic(
        message_timestamp_before_max_ms=str(10 * MINUTE_MS), message_timestamp_after_max_ms=str(MINUTE_MS)
    )
    for wrong in (at(0, 2 * MINUTE_MS), at(0, -11 * MINUTE_MS)):
        assert (await node.send(topic, 0, wrong)).error is ErrorCode.INVALID_TIMESTAMP
    assert (await node.send(topic, 0, at(-9 * MINUTE_MS, 0))).base_offset == 0
    assert await cluster.log(topic) == [b"%d" % (-9 * MINUTE_MS), b"0"]
