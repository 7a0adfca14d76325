"""Passes of compaction over a log whose index is searched.

A pass that reads every batch from the log's start stamps a marker if it has read no batch of that producer since the
producer's marker before it. Once stamped, a marker may go in any later pass, and its aborted entry goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tools.transaction_model.log import Entry, Log
from tools.transaction_model.mutations import Mutation
from tools.transaction_model.reader import Batch
from tools.transaction_model.search import Step


class Read(NamedTuple):
    """What a pass keeps, and what it found."""

    stored: list[Batch | None]
    alone: frozenset[int]
    """Markers before which it has read no batch of their producer."""


def passes(log: Log, mutation: Mutation | None) -> Iterator[tuple[Step, Log]]:
    entries = log.entries
    for count, entry in enumerate(entries, 1):
        if not entry.is_in_manifest:
            break
        if entry.end <= log.last_stable and entry.epoch == entries[0].epoch:
            for keeps in (True, False):
                text = "committed records kept" if keeps else "committed records dropped"
                yield ("compact", count, "entries:", text), compacted(log, count, mutation, keeps=keeps)
    for at, entry in enumerate(entries):
        if entry.due:
            yield ("drop the due markers of entry", at), expired(log, at)


def compacted(log: Log, count: int, mutation: Mutation | None, *, keeps: bool) -> Log:
    """One pass from the log's start over `count` entries of manifests, which it joins."""
    sources = log.entries[:count]
    in_the_middle = mutation is Mutation.PASS_BEGINS_IN_THE_MIDDLE and count > 1
    begin, end = sources[1].base if in_the_middle else log.start, sources[-1].end
    stored, alone = read(log, begin, end, keeps=keeps)
    due = frozenset(offset for entry in sources for offset in entry.due)
    gone = frozenset(offset for offset in due if offset >= begin)
    for offset in gone:
        stored[offset] = None
    if mutation is Mutation.MARKER_BEFORE_RECORDS and (first := first_marker(log, stored, end)) is not None:
        stored[: first + 1] = (*log.stored[:first], None)
        gone |= {first}
    unlisted = frozenset[int]() if mutation is Mutation.ENTRY_OUTLIVES_MARKER else gone
    aborted = tuple(each for entry in sources for each in entry.aborted if each.last not in unlisted)
    base, unstable, epoch = sources[0].base, sources[-1].unstable, sources[0].epoch
    made: tuple[Entry, ...] = (Entry(base, end, "compacted", epoch, unstable, aborted, (alone | due) - gone),)
    if in_the_middle:  # what is before the middle stays as it is
        rest = tuple(each for each in aborted if each.last >= begin)
        made = (sources[0], made[0]._replace(base=begin, aborted=rest))
    return log._replace(stored=tuple(stored), entries=(*made, *log.entries[count:]), passes=log.passes + 1)


def read(log: Log, begin: int, end: int, *, keeps: bool) -> Read:
    """Reads [begin, end). Records of aborted transactions go, committed ones only if `keeps` is false."""
    aborted = [each for entry in log.entries for each in entry.aborted]
    stored, seen, alone = list(log.stored), set[int](), set[int]()
    for offset in range(begin, end):
        batch = stored[offset]
        if batch is None:
            continue
        if batch.kind != "data":
            if batch.writer not in seen:
                alone.add(offset)
            seen.discard(batch.writer)
            continue
        seen.add(batch.writer)
        is_aborted = any(
            each.writer == batch.writer and each.first <= offset <= each.last for each in aborted
        )
        if is_aborted or not keeps:
            stored[offset] = None
    return Read(stored, frozenset(alone))


def first_marker(log: Log, stored: list[Batch | None], end: int) -> int | None:
    for offset in range(log.start, end):
        batch = stored[offset]
        if batch is not None and batch.kind != "data":
            return offset
    return None


def expired(log: Log, at: int) -> Log:
    """A pass for due markers alone: it rewrites no other entry and reads no other batch."""
    entry = log.entries[at]
    stored = tuple(None if offset in entry.due else batch for offset, batch in enumerate(log.stored))
    aborted = tuple(each for each in entry.aborted if each.last not in entry.due)
    after = log.with_entry(at, entry._replace(aborted=aborted, due=frozenset()))
    return after._replace(stored=stored, passes=log.passes + 1)
