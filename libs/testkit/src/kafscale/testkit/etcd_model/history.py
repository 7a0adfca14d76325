"""The keys of the model at every revision that is not compacted. Pure.

A change is a `KeyValue` whose `mod_revision` is its revision. A change with version 0 is a deletion. All changes of one
request have one revision.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from kafscale.storage.etcd.ops import KeyValue

FROM_KEY = b"\0"
"""As `range_end`: every key from `key` on."""


@dataclass(frozen=True, slots=True)
class Span:
    """The keys of a request: one key, if `end` is empty."""

    key: bytes
    end: bytes = b""

    def __contains__(self, key: bytes) -> bool:
        if not self.end:
            return key == self.key
        return key >= self.key and (self.end == FROM_KEY or key < self.end)


@dataclass(slots=True)
class History:
    revision: int = 1
    compacted: int = 0
    """Revisions below it cannot be read any more. 0: nothing was compacted."""
    _base: dict[bytes, KeyValue] = field(
        default_factory=dict
    )  # what was there before the first of the changes
    _changes: list[KeyValue] = field(default_factory=list)
    _live: dict[bytes, KeyValue] = field(default_factory=dict)
    _order: list[bytes] = field(default_factory=list)  # of the live keys

    def copy(self) -> History:
        """The values are shared: they never change."""
        return History(
            self.revision,
            self.compacted,
            dict(self._base),
            list(self._changes),
            dict(self._live),
            list(self._order),
        )

    def get(self, key: bytes) -> KeyValue | None:
        return self._live.get(key)

    def find(self, span: Span) -> list[KeyValue]:
        """In order of the keys, as they are now."""
        if not span.end:
            kv = self._live.get(span.key)
            return [] if kv is None else [kv]
        first = bisect_left(self._order, span.key)
        last = len(self._order) if span.end == FROM_KEY else bisect_left(self._order, span.end)
        return [self._live[key] for key in self._order[first:last]]

    def find_at(self, span: Span, revision: int) -> list[KeyValue]:
        """As they were at a revision that is not compacted."""
        if revision == self.revision:
            return self.find(span)
        found = {key: kv for key, kv in self._base.items() if key in span}
        for change in self._changes:
            if change.mod_revision > revision:
                break
            if change.key in span:
                found[change.key] = change
        return [kv for _, kv in sorted(found.items()) if kv.version]

    def put(self, key: bytes, value: bytes, lease: int, revision: int) -> None:
        old = self._live.get(key)
        created, version = (revision, 1) if old is None else (old.create_revision, old.version + 1)
        if old is None:
            insort(self._order, key)
        self._live[key] = kv = KeyValue(key, value, created, revision, version, lease)
        self._changes.append(kv)

    def delete(self, key: bytes, revision: int) -> None:
        del self._live[key]
        del self._order[bisect_left(self._order, key)]
        self._changes.append(KeyValue(key, b"", 0, revision, 0, 0))

    def changes(self, span: Span, since: int) -> Iterator[KeyValue]:
        """From the revision `since` on, in order of revision."""
        first = bisect_left(self._changes, since, key=attrgetter("mod_revision"))
        return (change for change in self._changes[first:] if change.key in span)

    def newest(self) -> list[KeyValue]:
        """The changes of the newest revision."""
        first = len(self._changes)
        while first and self._changes[first - 1].mod_revision == self.revision:
            first -= 1
        return self._changes[first:]

    def compact(self, revision: int) -> None:
        """Changes below the revision are forgotten, and what they wrote stays."""
        kept = bisect_left(self._changes, revision, key=attrgetter("mod_revision"))
        for change in self._changes[:kept]:
            if change.version:
                self._base[change.key] = change
            else:
                self._base.pop(change.key, None)
        del self._changes[:kept]
        self.compacted = revision

    def bytes_in_use(self) -> int:
        return sum(len(kv.key) + len(kv.value) for kv in self._live.values())
