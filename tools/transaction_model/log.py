"""A log as its index lists it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from tools.transaction_model.reader import Aborted, Batch


class Entry(NamedTuple):
    """A commit record: of the head's tail (a slice of a bundle, or a segment), or of a manifest."""

    base: int
    end: int
    kind: Literal["slice", "segment", "manifest", "compacted"]
    epoch: int
    unstable: int
    """Its end minus the last stable offset behind it."""
    aborted: tuple[Aborted, ...]
    """Listed where the marker is."""
    due: frozenset[int] = frozenset()
    """The offsets of markers that an earlier pass of compaction stamped with a delete horizon."""

    @property
    def is_in_manifest(self) -> bool:
        return self.kind in ("manifest", "compacted")


class Log(NamedTuple):
    """One partition."""

    written: tuple[Batch, ...] = ()
    stored: tuple[Batch | None, ...] = ()
    """None: compaction has removed the batch."""
    entries: tuple[Entry, ...] = ()
    open: tuple[tuple[int, int], ...] = ()
    """As the head says: producer ids, and the first offset of each."""
    last_stable: int = 0
    epoch: int = 1
    start: int = 0
    passes: int = 0
    """Of compaction."""

    def with_entry(self, at: int, entry: Entry) -> Log:
        return self._replace(entries=(*self.entries[:at], entry, *self.entries[at + 1 :]))


class Shape(NamedTuple):
    """A configuration: `batches` in all, at most `flight` of them in a slice, which repeats at most `fold` entries."""

    batches: int = 5
    flight: int = 2
    fold: int = 2
    claims: int = 0
    starts: int = 0
    passes: int = 0
