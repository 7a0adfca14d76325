"""How a reader of committed data finds the aborted transactions of its range, and what a consumer gets then (T8)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

from tools.transaction_model.mutations import Mutation
from tools.transaction_model.search import Searched

Kind = Literal["data", "commit", "abort"]
WRITERS = (1, 2)
"""The producer ids."""


class Batch(NamedTuple):
    kind: Kind
    writer: int


class Aborted(NamedTuple):
    writer: int
    first: int
    last: int
    """The offset of its marker."""


class Listed(Protocol):
    """An entry of a head or of a manifest, as a reader uses it."""

    @property
    def end(self) -> int: ...

    @property
    def unstable(self) -> int:
        """Its end minus the last stable offset behind it."""

    @property
    def aborted(self) -> tuple[Aborted, ...]: ...


def aborted_in(
    entries: Iterable[Listed], offset: int, reached: int, mutation: Mutation | None = None
) -> list[Aborted]:
    """What Fetch answers for [offset, reached). Behind an entry whose last stable offset is `reached` or higher, only
    transactions end that began there or later."""
    found: list[Aborted] = []
    for entry in entries:
        if entry.end <= offset:
            continue
        found += [each for each in entry.aborted if each.first < reached and each.last >= offset]
        stable = entry.end if mutation is Mutation.STOP_AT_REACHED else entry.end - entry.unstable
        if stable >= reached:
            break
    return found


def delivered(
    log: Sequence[Batch | None], aborted: Iterable[Aborted], offset: int, reached: int
) -> list[int]:
    """The offsets that a consumer of committed data gets of an answer: the rule of the Java client."""
    waiting = sorted(aborted, key=lambda each: each.first)
    hidden: set[int] = set()
    found = []
    for at in range(offset, reached):
        batch = log[at]
        if batch is None:
            continue
        while waiting and waiting[0].first <= at:
            hidden.add(waiting.pop(0).writer)
        if batch.kind == "abort":
            hidden.discard(batch.writer)
        elif batch.kind == "data" and batch.writer not in hidden:
            found.append(at)
    return found


# -- the search alone, by brute force -----------------------------------------------------------------


class Cut(NamedTuple):
    end: int
    unstable: int
    aborted: tuple[Aborted, ...]


def search_every_range(length: int, mutation: Mutation | None = None) -> Searched:
    """Compares the bounded search with the whole list: for every log of at most `length` batches, every cut into
    entries and every range below the last stable offset. It counts searches, not states."""
    began, searches = time.monotonic(), 0
    for log in logs(length):
        for cuts in range(1 << max(len(log) - 1, 0)):
            entries = listed(log, cuts)
            every = [each for entry in entries for each in entry.aborted]
            last_stable = entries[-1].end - entries[-1].unstable if entries else 0
            for offset, reached in ranges(0, last_stable):
                searches += 1
                found = aborted_in(entries, offset, reached, mutation)
                if found != [each for each in every if each.first < reached and each.last >= offset]:
                    where = f"[{offset}, {reached}) of {[' '.join(map(str, batch)) for batch in log]}"
                    wrong = f"T8: {found} is the answer for {where}, with entries {entries}"
                    return Searched(wrong, searches, len(log), time.monotonic() - began)
    return Searched(None, searches, length, time.monotonic() - began)


def ranges(start: int, end: int) -> Iterator[tuple[int, int]]:
    for offset in range(start, end):
        for reached in range(offset + 1, end + 1):
            yield offset, reached


def logs(
    length: int, log: tuple[Batch, ...] = (), opened: frozenset[int] = frozenset()
) -> Iterator[tuple[Batch, ...]]:
    """Every log of at most so many batches in which each marker ends something."""
    yield log
    if len(log) == length:
        return
    for batch in batches(opened):
        yield from logs(length, (*log, batch), now_open(opened, batch))


def batches(opened: frozenset[int]) -> Iterator[Batch]:
    for writer in WRITERS:
        yield Batch("data", writer)
        if writer in opened:
            yield Batch("commit", writer)
            yield Batch("abort", writer)


def now_open(opened: frozenset[int], batch: Batch) -> frozenset[int]:
    return opened | {batch.writer} if batch.kind == "data" else opened - {batch.writer}


def followed(opened: dict[int, int], events: Iterable[tuple[int, Batch]]) -> tuple[Aborted, ...]:
    """Begins and ends transactions in `opened` (producer ids, the first offset of each). Returns the aborted ones."""
    found = []
    for offset, (kind, writer) in events:
        if kind == "data":
            opened.setdefault(writer, offset)
        elif writer in opened:
            first = opened.pop(writer)
            if kind == "abort":
                found.append(Aborted(writer, first, offset))
    return tuple(found)


def listed(log: tuple[Batch, ...], cuts: int) -> list[Cut]:
    """The entries of a log that is cut behind each offset whose bit is set."""
    entries, opened = [], dict[int, int]()
    base = 0
    for end in range(1, len(log) + 1):
        if end == len(log) or cuts >> (end - 1) & 1:
            aborted = followed(opened, enumerate(log[base:end], base))
            entries.append(Cut(end, end - min(opened.values(), default=end), aborted))
            base = end
    return entries
