"""Reads what batches begin and end, where a plan needs it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Final

from kafscale.log.heads import Seg
from kafscale.log.places import place_of
from kafscale.log.segment import SegmentError, verify_segment
from kafscale.log.transactions import Event, events_in, stored_batches
from kafscale.operations.rollforward.plan import Found
from kafscale.operations.rollforward.topics import Bucket, Plan
from kafscale.operations.sentences import Progress
from kafscale.storage.keys import Keyspace, PartitionKey
from kafscale.storage.objects import ObjectNotFound, ObjectStore, PreconditionFailed
from kafscale.storage.task_groups import gather_bounded
from kafscale.wire.errors import WireError

READS_AT_ONCE: Final = 8
"""Most segments have 4 MiB or less."""


async def with_events(
    store: ObjectStore, keys: Keyspace, bucket: Bucket, plan: Plan, progress: Progress
) -> Bucket:
    """The bucket with the events of all segments that the plan lacks. Those that cannot be read have none, and are
    listed. Raises StoreError."""
    wanted = [(each.topic_id, each.partition, seg) for each in plan.partitions for seg in each.unread]
    events: defaultdict[PartitionKey, dict[int, tuple[Event, ...]]] = defaultdict(dict)
    unread: dict[str, str] = {}
    done = 0

    async def one(where: PartitionKey, seg: Seg) -> None:
        nonlocal done
        place = place_of(keys, plan.names[where[0]], where[1], seg)
        try:
            data = await place.read(store)
            verify_segment(data)
            found = tuple(events_in(stored_batches(data)))
        except (SegmentError, WireError, ObjectNotFound, PreconditionFailed) as broken:
            unread[place.name], found = str(broken), ()
        events[where][seg.base] = found
        done += 1
        progress("segments with transactions", done, len(wanted))

    await gather_bounded(
        (one((topic_id, partition), seg) for topic_id, partition, seg in wanted), READS_AT_ONCE
    )
    read = {where: replace(bucket.found.get(where, Found()), events=found) for where, found in events.items()}
    return replace(bucket, found={**bucket.found, **read}, unread=unread)
