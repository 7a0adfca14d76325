"""What refuses gets fewer calls, and not more."""

from __future__ import annotations

import asyncio

import pytest
from kafscale.produce.log.model import StepDownReason
from kafscale.produce.penalties import PENALTY_MAX_MS, REMEMBERED_MS, STORE, ClaimPenalties
from kafscale.storage.keys import PartitionKey, TopicId
from kafscale.testkit.objects import Fault, FaultyStore
from kafscale.wire.errors import ErrorCode
from produce_harness import Cluster, batch

TOPIC = TopicId(bytes(16))
ONE, OTHER = (TOPIC, 0), (TOPIC, 1)
ERROR = ErrorCode.KAFKA_STORAGE_ERROR


def waits_ms(
    penalties: ClaimPenalties, key: PartitionKey, reason: StepDownReason, times: int, now_ms: int
) -> list[int]:
    """Each claim fails as soon as it may begin."""
    waits = []
    for _ in range(times):
        penalties.add(key, reason, now_ms)
        wait_ms = next(ms for ms in range(0, 1_000_000, 100) if penalties.error(key, now_ms + ms) is None)
        waits.append(wait_ms)
        now_ms += wait_ms
        penalties.claims(now_ms)
    return waits


@pytest.mark.parametrize(
    ("reason", "first"),
    [
        (StepDownReason.FOREIGN_OBJECT, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]),
        (StepDownReason.COMMIT_REJECTED, [500, 1_000]),
        (StepDownReason.DAMAGED, [10_000, 20_000, 30_000, 30_000]),
    ],
)
def test_the_penalty_of_a_partition_doubles_and_stops_no_other(
    reason: StepDownReason, first: list[int]
) -> None:
    penalties = ClaimPenalties()
    assert waits_ms(penalties, ONE, reason, len(first), 1_000) == first
    assert penalties.error(OTHER, 1_000) is None
    penalties.committed(ONE)
    assert waits_ms(penalties, ONE, reason, 1, 500_000) == first[:1]


def test_a_penalty_that_ended_long_ago_is_forgotten() -> None:
    penalties = ClaimPenalties()
    end_ms = 1_000 + sum(waits_ms(penalties, ONE, StepDownReason.FOREIGN_OBJECT, 4, 1_000))
    penalties.add(OTHER, StepDownReason.FOREIGN_OBJECT, end_ms + REMEMBERED_MS)
    assert len(penalties) == 1
    assert waits_ms(penalties, ONE, StepDownReason.FOREIGN_OBJECT, 1, end_ms + REMEMBERED_MS) == [500]


@pytest.mark.parametrize("reason", sorted(STORE, key=str))
def test_while_the_store_refuses_one_partition_tries_at_a_time(reason: StepDownReason) -> None:
    """Each wait is twice as long, whatever came of the try before. What is in the background waits."""
    penalties, keys = ClaimPenalties(), [(TOPIC, number) for number in range(100)]
    for key in keys:
        penalties.add(key, reason, 0)
    tries = []
    for now_ms in range(0, 100_000, 100):
        assert penalties.error(OTHER, now_ms, background=True) is ERROR
        for key in (*keys, (TOPIC, 1_000)):
            if penalties.error(key, now_ms) is None:
                tries.append(now_ms)
                penalties.claims(now_ms)
                penalties.add(key, reason, now_ms)
    assert tries == [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 62_000, 92_000]
    penalties.committed(keys[7])
    assert penalties.error((TOPIC, 1_000), 92_100) is None
    assert penalties.error((TOPIC, 1_001), 92_100, background=True) is None
    assert penalties.error(keys[7], 92_100) is None


def test_a_store_that_takes_records_of_others_ends_no_penalty_of_a_partition() -> None:
    """A right may be lacking for the objects of one topic alone."""
    penalties, now_ms, waits = ClaimPenalties(), 0, []
    for _ in range(3):
        penalties.add(ONE, StepDownReason.STORE_REFUSED, now_ms)
        penalties.committed(OTHER)
        waits.append(
            next(ms for ms in range(0, PENALTY_MAX_MS, 100) if not penalties.error(ONE, now_ms + ms))
        )
        now_ms += waits[-1]
    assert waits == [500, 1_000, 2_000]


async def test_a_store_that_is_full_costs_one_claim_for_each_put_that_it_refuses(cluster: Cluster) -> None:
    """The producers of all partitions go on. When there is room again, all of them write."""
    topic = await cluster.topic(partitions=20)
    refused = 0

    def full(operation: str, key: str) -> Fault | None:
        nonlocal refused
        if operation != "put" or not key.endswith(".kfb"):
            return None
        refused += 1
        return Fault.FULL

    store = FaultyStore(cluster.store)
    node = await cluster.node(store=store)
    await node.send_all(topic, range(1))
    before = [(await cluster.head(topic, number)).epoch for number in range(20)]
    store.plan = full
    while refused < 4:
        answer = await node.send_many([(topic, {number: batch(b"refused") for number in range(20)})])
        assert {part.error_code for part in answer.parts} <= {ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}
        await asyncio.sleep(0)  # an answer without a claim waits for nothing
    claims = sum([(await cluster.head(topic, number)).epoch for number in range(20)]) - sum(before)
    assert 0 < claims <= refused
    store.plan = lambda operation, key: None
    left = set(range(20))
    while left:
        answer = await node.send_many([(topic, {number: batch(b"again") for number in left})])
        left -= {part.index for part in answer.parts if part.error_code == ErrorCode.NONE}
        await asyncio.sleep(0)
    for number in range(20):
        assert await cluster.log(topic, number) == [b"0", b"again"]
