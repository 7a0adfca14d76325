"""What other limits would do: the same plan under them, what it would save, and who would lose records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafscale.lake.catalog import Log, by_place
from kafscale.lake.lag.commits import Commit
from kafscale.lake.retention.plan import Doomed, start_after


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Records that a group has not read and that would be gone. Offsets, as lag counts them."""

    group: str
    topic: str
    partition: int
    committed: int
    start: int  # the log start that would be
    records: int


def bytes_of(doomed: Iterable[Doomed]) -> int:
    """Of the segments and their indexes."""
    return sum(each.segment.size + each.segment.index_size for each in doomed)


def losses(logs: Sequence[Log], doomed: Iterable[Doomed], commits: Iterable[Commit]) -> list[Loss]:
    """In the order of the commits. What a group has lost already is not counted again."""
    starts = _starts(doomed)
    places = by_place(logs)
    found = []
    for commit in commits:
        place = (commit.topic, commit.partition)
        if place not in starts:
            continue
        lost = starts[place] - max(commit.offset.offset, places[place].start)
        if lost > 0:
            found.append(
                Loss(
                    group=commit.group,
                    topic=commit.topic,
                    partition=commit.partition,
                    committed=commit.offset.offset,
                    start=starts[place],
                    records=lost,
                )
            )
    return found


def _starts(doomed: Iterable[Doomed]) -> Mapping[tuple[str, int], int]:
    """Where the logs would start that lose anything."""
    by_log: dict[tuple[str, int], list[Doomed]] = {}
    for each in doomed:
        by_log.setdefault((each.log.topic.name, each.log.partition), []).append(each)
    return {place: start_after(some[0].log, some) for place, some in by_log.items()}
