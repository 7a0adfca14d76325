"""Retention's plan equals a walk written as Kafka's is, whatever the log and the limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.lake.catalog import Log
from kafscale.lake.retention.plan import Limits, Rule, plan, start_after
from kafscale.log.heads import Seg
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic

from spark.lake.tests.examples import quick

NOW = 1_000_000
SEG = Seg(
    base=0,
    last_delta=9,
    size=100,
    etag="e",
    crc32c=0,
    index_size=1,
    index_etag="i",
    epoch=1,
    min_ts=0,
    max_ts=0,
    records=10,
    batches=1,
    created_ms=NOW,
)
SHAPES = st.lists(st.tuples(st.integers(0, 300), st.integers(-1, NOW + 50)), max_size=8)
LIMITS = st.builds(
    Limits,
    retention_ms=st.sampled_from([-1, 0, 1]) | st.integers(0, NOW),
    retention_bytes=st.sampled_from([-1, 0, 1]) | st.integers(0, 1_000),
)


def log_of(shapes: list[tuple[int, int]], limits: Limits, policy: str = "delete", below: int = 0) -> Log:
    configs = {
        "retention.ms": str(limits.retention_ms),
        "retention.bytes": str(limits.retention_bytes),
        "cleanup.policy": policy,
    }
    topic = Topic(name="t", topic_id=TopicId(bytes(16)), partitions=1, configs=configs)
    segments = tuple(
        replace(SEG, base=10 * number, size=size, max_ts=max_ts)
        for number, (size, max_ts) in enumerate(shapes)
    )
    return Log(
        topic=topic,
        partition=0,
        start=10 * below,
        end=10 * len(shapes),
        segments=segments[below:],
        below=segments[:below],
    )


def kafkas_start(log: Log, limits: Limits) -> int:
    """UnifiedLog: deleteLogStartOffsetBreachedSegments, deleteRetentionSizeBreachedSegments, ...MsBreachedSegments."""
    left = list(log.segments)
    start = log.start
    if limits.retention_bytes >= 0:
        diff = sum(seg.size for seg in left) - limits.retention_bytes
        while left and diff - left[0].size >= 0:
            diff -= left[0].size
            start = left.pop(0).end
    if limits.retention_ms >= 0:
        while left:
            largest = left[0].max_ts if left[0].max_ts >= 0 else left[0].created_ms
            if NOW - largest <= limits.retention_ms:
                break
            start = left.pop(0).end
    return start


@quick(300)
@given(SHAPES, LIMITS, st.integers(0, 3))
def test_the_plan_is_kafkas(shapes: list[tuple[int, int]], limits: Limits, below: int) -> None:
    log = log_of(shapes, limits, below=min(below, len(shapes)))
    doomed = plan([log], NOW)
    assert start_after(log, doomed) == kafkas_start(log, limits)
    gone = [each.segment for each in doomed]
    assert gone == list((log.below + log.segments)[: len(gone)]), "never a hole"
    assert [each.segment for each in doomed if each.rule is Rule.DELETED] == list(log.below)


@pytest.mark.parametrize("policy", ["compact"])
def test_compaction_alone_loses_nothing_by_time_or_size(policy: str) -> None:
    log = log_of([(100, 0), (100, 0)], Limits(retention_ms=0, retention_bytes=0), policy=policy)
    assert plan([log], NOW) == []


def test_what_if_other_limits_were_set() -> None:
    log = log_of([(100, NOW - 500), (100, NOW - 5)], Limits(retention_ms=-1, retention_bytes=-1))
    assert plan([log], NOW) == []
    (doomed,) = plan([log], NOW, Limits(retention_ms=100, retention_bytes=-1))
    assert (doomed.segment.base, doomed.rule, doomed.age_ms) == (0, Rule.TIME, 500)


def test_a_log_is_cut_to_its_limit_exactly() -> None:
    """As in Kafka, a segment expires if no less than `retention.bytes` remain without it."""
    log = log_of([(100, 0)] * 3, Limits(retention_ms=-1, retention_bytes=100))
    assert [doomed.segment.base for doomed in plan([log], NOW)] == [seg.base for seg in log.segments[:2]]
