"""Deletes objects that nobody can name any more, each only as it was when it was condemned.

The laws: a DELETE in the topics' tree names the etag that was condemned; where the store ignores that, an object goes
only while its topic's record still stands, as the name is not freed before such a DELETE must have landed.
What another has replaced is left and told; what failed is left for the next run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafscale.lake.catalog import Lake
from kafscale.lake.retention.together import together
from kafscale.storage.etcd import Range
from kafscale.storage.objects import PreconditionFailed, StoreError
from kafscale.storage.topics import Topic, TopicState, decode_topic

DELETES_AT_ONCE: Final = 16
DELETES_PER_LOOK: Final = 100
"""Objects deleted after one look at their topics' records, which etcd reads in one request."""
DELETE_TIMEOUT_S: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Condemned:
    """`etag` None: the name is unique and never used again, so that whatever stands there is what was condemned."""

    topic: Topic
    key: str
    etag: str | None
    size: int = 0


class Fate(StrEnum):
    """What became of a condemned object. The first three mean that it is not there any more, as it was."""

    DELETED = "deleted"
    ABSENT = "absent"
    REPLACED = "replaced"
    FAILED = "failed"
    TOPIC_GONE = "topic gone"

    @property
    def is_over(self) -> bool:
        return self in (Fate.DELETED, Fate.ABSENT, Fate.REPLACED)


async def delete_all(lake: Lake, condemned: Sequence[Condemned]) -> list[Fate]:
    """In the order given. Raises EtcdError; failures of the store are fates."""
    fates: list[Fate] = []
    for at in range(0, len(condemned), DELETES_PER_LOOK):
        some = condemned[at : at + DELETES_PER_LOOK]
        standing = await _standing(lake, {each.topic.name for each in some})
        fates += await together((_delete(lake, each, standing) for each in some), DELETES_AT_ONCE)
    return fates


async def _standing(lake: Lake, names: set[str]) -> set[bytes]:
    """Ids of the topics that are not being deleted."""
    found = await lake.etcd.ranges([Range(lake.keys.topic(name)) for name in sorted(names)])
    records = [decode_topic(lake.keys.parse_topic(kv.key), kv.value) for read in found for kv in read.kvs]
    return {topic.topic_id for topic in records if topic.state is TopicState.ACTIVE}


async def _delete(lake: Lake, condemned: Condemned, standing: set[bytes]) -> Fate:
    if condemned.topic.topic_id not in standing:
        return Fate.TOPIC_GONE
    etag = condemned.etag if lake.store.conditional_delete else None
    try:
        async with asyncio.timeout(DELETE_TIMEOUT_S):
            there = await lake.store.delete(condemned.key, if_match=etag)
    except PreconditionFailed:
        return Fate.REPLACED
    except (StoreError, TimeoutError):
        return Fate.FAILED
    return Fate.DELETED if there else Fate.ABSENT
