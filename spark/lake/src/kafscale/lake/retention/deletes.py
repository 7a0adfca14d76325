"""Deletes objects that no metadata can name any more, each only if it is still the one that was condemned.

The laws: a DELETE in the topics' tree names the etag that was condemned. If the store ignores the etag, an object is
deleted only while its topic's record exists, because the topic's name is not freed before such a DELETE must have been
applied. An object that was replaced meanwhile is left and reported. An object whose DELETE failed is left to the next
run. Nothing is deleted if etcd went back: what an older etcd does not name may be what was committed last.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafscale.lake.catalog import Lake
from kafscale.log.heads import Seg
from kafscale.log.places import place_of
from kafscale.storage.etcd.client import Range
from kafscale.storage.keys import index_beside
from kafscale.storage.objects import DELETES_MAX, Doomed, Outcome, PreconditionFailed, StoreError
from kafscale.storage.topics import Topic, TopicState, decode_topic

TOPICS_PER_READ: Final = 100
"""Topic records that one request to etcd reads."""
DELETE_TIMEOUT_S: Final = 60.0
"""Of DELETES_MAX objects. A deleted topic's name is freed later than that, see `admin.deletion`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condemned:
    """`etag` None: the name is unique and never reused, so the object under it is the one that was condemned."""

    topic: Topic
    key: str
    etag: str | None
    size: int = 0


def condemned(lake: Lake, topic: Topic, partition: int, segments: Iterable[Seg]) -> list[Condemned]:
    """For each segment its object, then its index."""
    found = []
    for seg in segments:
        key = place_of(lake.keys, topic.name, partition, seg).key
        found.append(Condemned(topic=topic, key=key, etag=seg.etag, size=seg.size))
        key = index_beside(key)
        found.append(Condemned(topic=topic, key=key, etag=seg.index_etag, size=seg.index_size))
    return found


class Fate(StrEnum):
    """The outcome of a condemned object. The first three mean that this object no longer exists."""

    DELETED = "deleted"
    ABSENT = "absent"
    REPLACED = "replaced"
    FAILED = "failed"
    TOPIC_GONE = "topic gone"

    @property
    def is_over(self) -> bool:
        return self in (Fate.DELETED, Fate.ABSENT, Fate.REPLACED)


async def delete_all(lake: Lake, condemned: Sequence[Condemned], decided_s: float = math.inf) -> list[Fate]:
    """The fates, in the order given. `decided_s`: when the last of them was condemned, on the monotonic clock; the
    history of etcd is verified, unless that was done since.

    Raises WentBack, EtcdError, and StoreError if the history cannot be verified; any other failure of the store is a
    fate.
    """
    fates: list[Fate] = []
    history = lake.etcd_history()
    for at in range(0, len(condemned), DELETES_MAX):
        some = condemned[at : at + DELETES_MAX]
        await history.confirm(decided_s)
        standing = await _standing(lake, sorted({each.topic.name for each in some}))
        fates += await _delete(lake, some, standing)
    return fates


async def _standing(lake: Lake, names: Sequence[str]) -> set[bytes]:
    """Ids of the topics that are not being deleted."""
    found: set[bytes] = set()
    for at in range(0, len(names), TOPICS_PER_READ):
        reads = [Range(lake.keys.topic(name)) for name in names[at : at + TOPICS_PER_READ]]
        kvs = [kv for read in await lake.etcd.ranges(reads) for kv in read.kvs]
        topics = [decode_topic(lake.keys.parse_topic(kv.key), kv.value) for kv in kvs]
        found |= {topic.topic_id for topic in topics if topic.state is TopicState.ACTIVE}
    return found


async def _delete(lake: Lake, condemned: Sequence[Condemned], standing: set[bytes]) -> list[Fate]:
    mine = [each for each in condemned if each.topic.topic_id in standing]
    etags = lake.store.conditional_delete
    try:
        async with asyncio.timeout(DELETE_TIMEOUT_S):
            found = await lake.store.delete_many(
                [Doomed(each.key, each.etag if etags else None) for each in mine]
            )
    except (StoreError, TimeoutError):
        fates = iter([Fate.FAILED] * len(mine))
    else:
        fates = iter([_fate(outcome) for outcome in found])
    return [next(fates) if each.topic.topic_id in standing else Fate.TOPIC_GONE for each in condemned]


def _fate(outcome: Outcome) -> Fate:
    if isinstance(outcome, PreconditionFailed):
        return Fate.REPLACED
    if isinstance(outcome, StoreError):
        return Fate.FAILED
    return Fate.DELETED if outcome else Fate.ABSENT
