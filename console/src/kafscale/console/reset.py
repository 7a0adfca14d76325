"""What a reset of a group's offsets does, partition by partition, before it is done. Pure.

Law G1: what the preview shows is what is sent. So the change gets the rows of the preview, and refuses if the group has
another offset than the preview showed. A partition of which no new offset is known is not in the preview.
Law: an offset is never outside of the log; a wish beyond its bounds becomes the bound, and the row says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Final, Literal

import msgspec

ROWS_MAX: Final = 50_000
CSV_CHARS_MAX: Final = 1_000_000

Place = tuple[str, int]
"""Topic and partition."""
Offset = Annotated[int, msgspec.Meta(ge=0)]


class Aim(msgspec.Struct, forbid_unknown_fields=True):
    """Where the offsets go. `time`: the first record at or after `at_ms`, else the end. `duration`: the same at a time
    `ago_ms` before now. `shift`: by `by` records, forwards or back. `group`: to those of another group. `csv`: exact
    offsets, in lines of topic,partition,offset, as kafka-consumer-groups exports them."""

    to: Literal["earliest", "latest", "time", "duration", "shift", "group", "csv"]
    at_ms: Offset | None = None
    ago_ms: Offset | None = None
    by: int | None = None
    group: str | None = None
    csv: str = ""


@dataclass(frozen=True, slots=True)
class Bounds:
    start: int
    end: int


class Planned(msgspec.Struct, forbid_unknown_fields=True):
    """A row of the preview. `before` None: the group has no offset there. `again`: records that it reads again;
    `skips`: stored records that it does not read. `wanted`: what was asked for, if the log does not reach so far."""

    topic: str
    partition: int
    before: int | None
    after: Offset
    start: int
    end: int
    again: int
    skips: int
    wanted: int | None


class AimWrong(ValueError):
    """The text is a sentence for the person."""


def wishes(aim: Aim, before: Mapping[Place, int], chosen: Iterable[Place]) -> dict[Place, int]:
    """The offsets that the aim says by itself: of `shift` and `csv`. Raises AimWrong."""
    places = set(chosen)
    match aim.to:
        case "shift":
            if aim.by is None:
                raise AimWrong("give the number of records to shift by, such as -100")
            found = {place: at + aim.by for place, at in before.items()}
        case "csv":
            found = parse_csv(aim.csv)
        case _:
            return {}
    return {place: offset for place, offset in found.items() if place in places}


def time_of(aim: Aim, now_ms: int) -> int:
    """Of `time` and `duration`, in ms since 1970. Raises AimWrong."""
    if aim.to == "duration":
        if aim.ago_ms is None:
            raise AimWrong("give how long ago")
        return max(now_ms - aim.ago_ms, 0)
    if aim.at_ms is None:
        raise AimWrong("give a time")
    return aim.at_ms


def planned(
    before: Mapping[Place, int], bounds: Mapping[Place, Bounds], wanted: Mapping[Place, int]
) -> list[Planned]:
    """A row for each wanted partition that exists, in order."""
    rows = []
    for place in sorted(wanted.keys() & bounds.keys()):
        log, wish, at = bounds[place], wanted[place], before.get(place)
        after = min(max(wish, log.start), log.end)
        reads = after if at is None else min(max(at, log.start), log.end)
        rows.append(
            Planned(
                topic=place[0],
                partition=place[1],
                before=at,
                after=after,
                start=log.start,
                end=log.end,
                again=max(0, reads - after),
                skips=max(0, after - reads),
                wanted=None if wish == after else wish,
            )
        )
    return rows


def moved(rows: Iterable[Planned], now: Mapping[Place, int]) -> list[Place]:
    """Where the group has another offset than the preview showed."""
    return [(row.topic, row.partition) for row in rows if now.get((row.topic, row.partition)) != row.before]


def parse_csv(text: str) -> dict[Place, int]:
    """Lines of topic,partition,offset. A topic's name has no comma. Raises AimWrong."""
    if len(text) > CSV_CHARS_MAX:
        raise AimWrong(f"the CSV has more than {CSV_CHARS_MAX:,} characters")
    found: dict[Place, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        words = [word.strip().strip('"') for word in line.split(",")]
        if len(words) != 3 or not all(_is_whole(word) for word in words[1:]):
            raise AimWrong(f"line {number} is not topic,partition,offset: {line[:100]}")
        found[words[0], int(words[1])] = int(words[2])
    if not found:
        raise AimWrong("the CSV is empty; a line is topic,partition,offset")
    return found


def _is_whole(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 18


def commands(group: str, aim: Aim, rows: Sequence[Planned], partitions: Mapping[str, int]) -> list[str]:
    """The same reset with the command. `partitions`: how many each topic has. One line for a topic if the aim is the
    same for all of its partitions, else one for each partition."""
    found = []
    plain: str | None = aim.to if aim.to in ("earliest", "latest") else None
    if aim.to == "time" and aim.at_ms is not None:
        plain = datetime.fromtimestamp(aim.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    for topic in dict.fromkeys(row.topic for row in rows):
        mine = [row for row in rows if row.topic == topic]
        command = f"kafscale groups reset-offsets {shlex.quote(group)} -t {shlex.quote(topic)}"
        if plain is not None and len(mine) == partitions.get(topic):
            found.append(f"{command} --to {plain}")
        else:
            found += [f"{command} -p {row.partition} --to {row.after}" for row in mine]
    return found
