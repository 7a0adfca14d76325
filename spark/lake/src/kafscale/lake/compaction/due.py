"""Which logs of a lake are due, and in which order a round takes them up. Of each log only its numbers are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.lake.catalog import Lake, read_named
from kafscale.lake.compaction.passes import read_pass
from kafscale.lake.compaction.plan import Candidate, survey
from kafscale.lake.retention.together import together
from kafscale.storage.job_runs import CompactionPass
from kafscale.storage.objects import ObjectNotFound
from kafscale.storage.schema import UnreadableValue

READS_AT_ONCE: Final = 4

Place = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A log that is due. `left`: a round before had to leave it."""

    place: Place
    ratio: float
    left: CompactionPass | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`delay_ms`: of the log whose dirty records wait longest past `max.compaction.lag.ms`.

    `missed`: logs that cannot be read, and why.
    """

    due: tuple[Due, ...]
    delay_ms: int
    missed: dict[Place, BaseException]


async def look(lake: Lake, place: Place, now_ms: int) -> Candidate | None:
    """The log as it is now. None: it is gone, or its topic is not compacted. Raises EtcdError and StoreError."""
    return next(iter(survey(await read_named(lake, [place]), now_ms)), None)


async def find_due(lake: Lake, places: Iterable[Place], now_ms: int) -> Found:
    """Raises EtcdError and StoreError."""

    missed: dict[Place, BaseException] = {}

    async def one(place: Place) -> tuple[int, Due | None]:
        try:
            candidate = await look(lake, place, now_ms)
        except (ObjectNotFound, UnreadableValue) as damage:
            missed[place] = damage
            return 0, None
        if candidate is None or candidate.reason is None:
            return 0 if candidate is None else candidate.delay_ms, None
        left = await read_pass(lake, candidate.log)
        return candidate.delay_ms, Due(place=place, ratio=candidate.ratio, left=left)

    seen = await together((one(place) for place in places), READS_AT_ONCE)
    return Found(
        due=tuple(due for _, due in seen if due is not None),
        delay_ms=max((delay_ms for delay_ms, _ in seen), default=0),
        missed=missed,
    )


def in_turn(due: Sequence[Due]) -> Iterator[tuple[Due, bool]]:
    """What was left, the longest first, then the others, the dirtiest first, then what was left again. Each with
    whether it may take up only the round's first half. Pure."""
    left = sorted((each for each in due if each.left is not None), key=_left_ms)
    others = sorted((each for each in due if each.left is None), key=lambda each: (-each.ratio, each.place))
    yield from ((each, bool(others)) for each in left)
    yield from ((each, False) for each in (*others, *(left if others else ())))


def _left_ms(due: Due) -> int:
    return due.left.left_ms if due.left is not None else 0
