"""Which groups have not read the records that are about to go. Pure, and light to import.

Records are counted as offsets, as lag counts them. A group that reads a topic and has no commit in a partition has read
nothing of it. What a group has lost already is not counted again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Readers = Mapping[tuple[str, str], Mapping[int, int]]
"""(group, topic) -> partition -> committed offset. A group that reads a topic without a commit has an empty mapping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Going:
    """Offsets [start, end) of a partition, of which all or some records go. `start`: the log start now."""

    topic: str
    partition: int
    start: int
    end: int


def unread(going: Iterable[Going], readers: Readers) -> list[dict[str, Any]]:
    """Rows by group, topic and partition: group, topic, partition, committed (None: no commit), start, records.

    `start`: the first offset after what goes. `records`: offsets below it that the group has not read.
    """
    by_topic: dict[str, list[Going]] = defaultdict(list)
    for each in going:
        by_topic[each.topic].append(each)
    rows = []
    for (group, topic), committed in sorted(readers.items()):
        for each in sorted(by_topic.get(topic, ()), key=lambda part: part.partition):
            at = committed.get(each.partition)
            records = each.end - (each.start if at is None else max(each.start, at))
            if records > 0:
                rows.append(
                    {
                        "group": group,
                        "topic": topic,
                        "partition": each.partition,
                        "committed": at,
                        "start": each.end,
                        "records": records,
                    }
                )
    return rows
