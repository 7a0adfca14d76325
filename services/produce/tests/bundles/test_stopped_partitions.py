"""A partition whose epoch is over leaves the memory of its instance, whatever is answered late."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence

from kafscale.produce.log.model import StepDownReason
from kafscale.produce.partition import Partition
from kafscale.wire.errors import ErrorCode
from produce_harness import Cluster, batch, until

TIMES = 10


async def forgotten(partitions: Sequence[weakref.ref[Partition]]) -> None:
    def all_gone() -> bool:
        if any(each() is not None for each in partitions):
            gc.collect()
        return all(each() is None for each in partitions)

    await until(all_gone, "they are in nobody's hands")


async def test_a_partition_that_stepped_down_is_forgotten(cluster: Cluster) -> None:
    node = await cluster.node()
    topic = await cluster.topic()
    ownership = node.service.ownership
    seen = []
    for number in range(TIMES):
        assert (await node.send(topic, 0, batch(b"%d" % number))).error is ErrorCode.NONE
        partition = ownership.partitions[topic.topic_id, 0]
        assert partition.writer is not None
        seen.append(weakref.ref(partition))
        partition.writer.step_down(StepDownReason.ORDERED, ownership.tools.now())
        ownership.tools.pump.touch(partition)
        del partition

        def has_left(stopped: Callable[[], Partition | None] = seen[-1]) -> bool:
            now = ownership.partitions.get((topic.topic_id, 0))  # it may have been claimed again
            return now is None or now is not stopped()

        await until(has_left, "it has stepped down")
    await forgotten(seen)


async def test_partitions_that_were_handed_over_are_forgotten(cluster: Cluster) -> None:
    """The usual life of a cluster: an instance comes, and partitions go to it."""
    giver = await cluster.node(produce_handoffs_per_s=1_000)
    topic = await cluster.topic(partitions=20)
    await giver.send_all(topic, range(1))
    seen = {key: weakref.ref(partition) for key, partition in giver.service.ownership.partitions.items()}
    taker = await cluster.node()
    await until(lambda: taker.owned and len(giver.owned) + len(taker.owned) == 20, "each has its share")
    await forgotten([seen[key] for key in taker.owned])
    await giver.send_many([(topic, {number: batch(b"2") for id_, number in giver.owned})])
