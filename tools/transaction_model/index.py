"""The index of one log as a model: commits, folds, settling, checkpoints, claims, log starts, compaction.

T2: the head has open what has records without a marker. So these are at or above the last stable offset. It never
    falls.
T8: a reader gets the committed records of its range, and no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tools.transaction_model.compaction import passes
from tools.transaction_model.log import Entry, Log, Shape
from tools.transaction_model.mutations import Mutation
from tools.transaction_model.reader import (
    Batch,
    Kind,
    aborted_in,
    batches,
    delivered,
    followed,
    now_open,
    ranges,
)
from tools.transaction_model.search import Step

Moves = Iterator[tuple[Step, Log]]


class Index(NamedTuple):
    shape: Shape
    mutation: Mutation | None = None

    def initial(self) -> Log:
        return Log()

    def moves(self, log: Log) -> Moves:
        yield from self._commits(log)
        yield from self._settles(log)
        yield from checkpoints(log)
        if log.epoch <= self.shape.claims:
            yield ("a claim",), log._replace(epoch=log.epoch + 1)
        if self.shape.starts and not log.start:
            for start in range(1, len(log.written) + 1):
                yield ("the log starts at", start), log._replace(start=start)
        if log.passes < self.shape.passes:
            yield from passes(log, self.mutation)

    # -- commits ------------------------------------------------------------------------------------

    def _commits(self, log: Log) -> Moves:
        """A slice, which may repeat the newest entries and take their places."""
        foldable = 0
        for entry in reversed(log.entries):
            if entry.kind != "slice" or entry.epoch != log.epoch or foldable == self.shape.fold:
                break
            foldable += 1
        room = min(self.shape.batches - len(log.written), self.shape.flight)
        for flight in flights(frozenset(writer for writer, _ in log.open), room):
            for fold in range(foldable + 1):
                step = ("commit", *(tuple(batch) for batch in flight), "and fold", fold)
                yield step, self._committed(log, flight, fold)

    def _committed(self, log: Log, flight: tuple[Batch, ...], fold: int) -> Log:
        before, folded = log.entries[: len(log.entries) - fold], log.entries[len(log.entries) - fold :]
        base = folded[0].base if folded else len(log.written)
        written = log.written + flight
        opened = dict(log.open)
        events = list(enumerate(written))[len(log.written) :]
        if self.mutation is Mutation.FOLD_BEGINS_AGAIN:
            events = list(enumerate(written))[base:]
        aborted = followed(opened, events)
        if self.mutation is not Mutation.FOLD_DROPS_ABORTED:
            aborted = (*(each for entry in folded for each in entry.aborted), *aborted)
        end = len(written)
        last_stable = min(opened.values(), default=end)
        unstable = end - last_stable
        if self.mutation is Mutation.FOLD_KEEPS_UNSTABLE and folded:
            unstable = folded[0].unstable
        entry = Entry(base, end, "slice", log.epoch, unstable, aborted)
        return log._replace(
            written=written,
            stored=log.stored + flight,
            entries=(*before, entry),
            open=tuple(sorted(opened.items())),
            last_stable=last_stable,
        )

    # -- settling -----------------------------------------------------------------------------------

    def _settles(self, log: Log) -> Moves:
        """A run of slices of one epoch becomes a segment."""
        entries = log.entries
        first = next((at for at, entry in enumerate(entries) if entry.kind == "slice"), len(entries))
        for end in range(first + 1, len(entries) + 1):
            if entries[end - 1].kind != "slice" or entries[end - 1].epoch != entries[first].epoch:
                return
            yield ("settle", end - first, "from", first), self._settled(log, first, end)

    def _settled(self, log: Log, first: int, end: int) -> Log:
        run = log.entries[first:end]
        aborted = tuple(each for entry in run for each in entry.aborted)
        if self.mutation is Mutation.SETTLE_DROPS_ABORTED:
            aborted = ()
        unstable = run[-1].unstable
        if self.mutation is Mutation.SETTLE_TAKES_PRESENT_LSO:
            unstable = max(0, run[-1].end - log.last_stable)
        segment = Entry(run[0].base, run[-1].end, "segment", run[0].epoch, unstable, aborted)
        return log._replace(entries=(*log.entries[:first], segment, *log.entries[end:]))

    # -- laws ---------------------------------------------------------------------------------------

    def broken_step(self, before: Log, after: Log) -> str | None:
        return "T2: the last stable offset fell" if after.last_stable < before.last_stable else None

    def broken_state(self, log: Log) -> str | None:
        opened = dict[int, int]()
        followed(opened, enumerate(log.written))
        if dict(log.open) != opened or log.last_stable != min(opened.values(), default=len(log.written)):
            return f"T2: the head has {dict(log.open)} open, and the bytes {opened}"
        outcome = outcomes(log.written)
        for offset, reached in ranges(log.start, log.last_stable):
            aborted = aborted_in(log.entries, offset, reached)
            got = delivered(log.stored, aborted, offset, reached)
            right = [
                at for at in range(offset, reached) if outcome[at] == "commit" and log.stored[at] is not None
            ]
            if got != right:
                return f"T8: a reader of [{offset}, {reached}) gets {got}, not {right}"
        return None


def checkpoints(log: Log) -> Moves:
    """The first segment of the tail goes into a manifest."""
    for at, entry in enumerate(log.entries):
        if entry.kind == "segment":
            moved = entry._replace(kind="manifest")
            yield ("checkpoint",), log.with_entry(at, moved)
        if not entry.is_in_manifest:
            return


def flights(opened: frozenset[int], most: int) -> Iterator[tuple[Batch, ...]]:
    """What a slice may bring: one batch or more, in which each marker ends something."""
    if not most:
        return
    for batch in batches(opened):
        yield (batch,)
        for rest in flights(now_open(opened, batch), most - 1):
            yield (batch, *rest)


def outcomes(written: tuple[Batch, ...]) -> list[Kind | None]:
    """Of each batch of data, what ended its transaction."""
    found: list[Kind | None] = [None] * len(written)
    for end, marker in enumerate(written):
        if marker.kind == "data":
            continue
        for at in range(end - 1, -1, -1):
            if written[at].writer == marker.writer:
                if written[at].kind != "data":
                    break
                found[at] = marker.kind
    return found
