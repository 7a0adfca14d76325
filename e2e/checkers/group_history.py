"""Checks the events of a group's members against the guarantees of groups. Pure: events in, sentences out.

All times are from one monotonic clock. A member has a partition from the callback that assigned it to the callback that
revoked it, or to the member's end. A killed member has no partitions after its death, but they may stay uncovered until
its session has timed out and the group has rebalanced.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf


class Kind(Enum):
    ASSIGNED = "assigned"
    REVOKED = "revoked"  # by the callback, lost partitions too
    RECORD = "record"
    COMMITTED = "committed"  # the position, so the offset after the last record
    LEFT = "left"  # closed cleanly
    KILLED = "killed"
    FENCED = "fenced"  # another process joined with its instance id; it may not know yet
    FATAL = "fatal"  # it knows, and ends
    NOTE = "note"  # for a person that reads a failure


@dataclass(frozen=True, slots=True)
class Event:
    member: str
    kind: Kind
    at: float
    partitions: tuple[int, ...] = ()
    offset: int = -1


@dataclass(frozen=True, slots=True)
class Holding:
    """A member had a partition."""

    member: str
    partition: int
    since: float
    until: float = inf


def parse(member: str, line: str) -> Event:
    """A line of a client program; see e2e/clients/README.md."""
    found = json.loads(line)
    return Event(
        member, Kind(found["event"]), found["at"], tuple(found.get("partitions", ())), found.get("offset", -1)
    )


def holdings(events: Sequence[Event]) -> list[Holding]:
    """Sorted by start time."""
    held: dict[tuple[str, int], float] = {}
    done: list[Holding] = []
    for event in _sorted(events):
        match event.kind:
            case Kind.ASSIGNED:
                for part in event.partitions:
                    held.setdefault((event.member, part), event.at)
            case Kind.REVOKED | Kind.LEFT | Kind.KILLED | Kind.FENCED | Kind.FATAL:
                ended = [
                    key
                    for key in held
                    if key[0] == event.member
                    and (event.kind is not Kind.REVOKED or key[1] in event.partitions)
                ]
                done += [Holding(*key, held.pop(key), event.at) for key in ended]
            case Kind.RECORD | Kind.COMMITTED | Kind.NOTE:
                pass
    done += [Holding(*key, since) for key, since in held.items()]
    return sorted(done, key=lambda holding: holding.since)


def holders(events: Sequence[Event]) -> dict[int, set[str]]:
    """partition -> the member that has it after the last event."""
    found: dict[int, set[str]] = defaultdict(set)
    for holding in holdings(events):
        if holding.until == inf:
            found[holding.partition].add(holding.member)
    return found


def violations(
    events: Sequence[Event],
    ends: Mapping[int, int],
    committed: Mapping[int, int],
    gap_max_s: float,
    resumes: bool = True,
) -> list[str]:
    """One sentence per broken law, with the place; empty if none is broken.

    `ends`: partition -> how many records were written. `committed`: partition -> the group's offset at the end.
    `gap_max_s`: how long a partition that was covered once may be without a member.
    `resumes`: false for a client that may start below the committed offset, and commit from there.
    """
    ordered = _sorted(events)
    return [
        *_two_owners(holdings(ordered)),
        *_gaps(holdings(ordered), ends, gap_max_s),
        *_unread(ordered, ends),
        *(_went_back(ordered) if resumes else ()),
        *_lost_commits(ordered, committed),
    ]


def _sorted(events: Sequence[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.at)


def _two_owners(found: Sequence[Holding]) -> list[str]:
    last: dict[int, Holding] = {}
    broken: list[str] = []
    for now in found:
        before = last.get(now.partition)
        if before and before.until > now.since:
            broken.append(
                f"two owners: {now.member} got partition {now.partition} at {now.since:.3f}, "
                f"{before.member} held it from {before.since:.3f} to {before.until:.3f}"
            )
        if before is None or now.until > before.until:
            last[now.partition] = now
    return broken


def _gaps(found: Sequence[Holding], ends: Mapping[int, int], gap_max_s: float) -> list[str]:
    """Until the last member leaves."""
    broken: list[str] = []
    over = max((holding.until for holding in found), default=0.0)
    for part in ends:
        mine = [holding for holding in found if holding.partition == part]
        if not mine:
            broken.append(f"gap: nobody ever had partition {part}")
            continue
        free = mine[0].until
        for holding in mine[1:]:
            if holding.since - free > gap_max_s:
                broken.append(
                    f"gap: nobody had partition {part} for {holding.since - free:.3f} s from {free:.3f}"
                )
            free = max(free, holding.until)
        if over - free > gap_max_s:
            broken.append(f"gap: nobody had partition {part} after {free:.3f}")
    return broken


def _unread(events: Sequence[Event], ends: Mapping[int, int]) -> list[str]:
    seen: dict[int, set[int]] = defaultdict(set)
    for event in events:
        if event.kind is Kind.RECORD:
            seen[event.partitions[0]].add(event.offset)
    broken: list[str] = []
    for part, end in ends.items():
        if missing := sorted(set(range(end)) - seen[part]):
            broken.append(
                f"unread: {len(missing)} records of partition {part}, from {missing[0]} to {missing[-1]}"
            )
        if beyond := seen[part] - set(range(end)):
            broken.append(f"phantom: partition {part} gave offset {max(beyond)}, its end is {end}")
    return broken


def _went_back(events: Sequence[Event]) -> list[str]:
    """A new owner must not start below the committed offset."""
    best: dict[int, int] = defaultdict(int)
    fresh: set[tuple[str, int]] = set()  # assigned, and no record read yet
    broken: list[str] = []
    for event in events:
        if event.kind is Kind.ASSIGNED:
            fresh.update((event.member, part) for part in event.partitions)
        elif event.kind is Kind.RECORD:
            part = event.partitions[0]
            if (event.member, part) in fresh and event.offset < best[part]:
                broken.append(
                    f"committed went back: {event.member} began partition {part} at {event.offset}, "
                    f"{best[part]} was committed"
                )
            fresh.discard((event.member, part))
        elif event.kind is Kind.COMMITTED:
            part = event.partitions[0]
            if event.offset < best[part]:
                broken.append(
                    f"committed went back: {event.member} committed {event.offset} of partition {part} "
                    f"after {best[part]}"
                )
            best[part] = max(best[part], event.offset)
    return broken


def _lost_commits(events: Sequence[Event], committed: Mapping[int, int]) -> list[str]:
    """The group must have the last acknowledged offset."""
    last = {event.partitions[0]: event.offset for event in events if event.kind is Kind.COMMITTED}
    return [
        f"committed went back: partition {part} has {committed.get(part)} in the end, {offset} was committed"
        for part, offset in last.items()
        if committed.get(part, -1) < offset
    ]
