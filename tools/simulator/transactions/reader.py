"""Readers of topics with transactions, of both isolation levels. They do with the list of aborted transactions what
Kafka's consumer does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafscale.wire.batches import CONTROL, TRANSACTIONAL, split_batches
from kafscale.wire.markers import marker_of
from kafscale.wire.records import records_in
from kafscale.wire.schema import fetch

from e2e.checkers.history import Answer
from tools.simulator.clients import Reader
from tools.simulator.transactions.history import Book
from tools.simulator.transactions.laws import Entry

UNCOMMITTED: Final = 0
COMMITTED: Final = 1


@dataclass(eq=False, kw_only=True)
class TransactionReader(Reader):
    book: Book
    keeps: bool = False
    took: list[tuple[int, bytes]] = field(default_factory=list)
    """If it keeps what it reads: the records that an application gets, with their offsets."""
    log: list[Entry] = field(default_factory=list)
    """The same: all batches."""

    def _take(self, part: fetch.FetchResponsePartition, data: Any) -> None:
        aborting, asked = Aborting(part.aborted_transactions or ()), self.offset
        batches = []
        for header, batch in split_batches(data) if data else ():
            found = list(records_in(batch, header))
            batches.append((header.base_offset, header.last_offset, len(found)))
            is_control = bool(header.attributes & CONTROL)
            marker = marker_of(batch, header) if is_control else None
            values = () if is_control else tuple(record.value or b"" for record in found)
            commit = None if marker is None else marker.commit
            entry = Entry(header.base_offset, header.producer_id, header.producer_epoch, commit, values)
            is_hidden = bool(header.attributes & TRANSACTIONAL) and aborting.hides(entry, header.last_offset)
            self._give(entry, asked, is_hidden=is_hidden, is_control=is_control)
            self.offset = header.last_offset + 1
        self.records.broken += Answer(self.partition, asked, batches).skips()
        if self.isolation == COMMITTED and batches and self.offset > part.last_stable_offset:
            self.records.broken.append(
                f"undecided: {self.records.topic}/{self.partition} was read to {self.offset}, and is stable to "
                f"{part.last_stable_offset}"
            )

    def _give(self, entry: Entry, asked: int, *, is_hidden: bool, is_control: bool) -> None:
        """A batch may begin before the offset that was asked for."""
        place = self.records.topic, self.partition
        if self.keeps:
            self.log.append(entry)
        if is_control:
            self.records.seen(self.partition, entry.base, b"marker")
        for offset, value in enumerate(entry.values, entry.base):
            self.records.seen(self.partition, offset, value)
            if self.isolation == UNCOMMITTED or offset < asked:
                continue
            if is_hidden:
                self.book.hidden[place, offset] = value
                continue
            self.book.shows(place, offset, value)
            if self.keeps:
                self.took.append((offset, value))


class Aborting:
    """Which batches of an answer are of aborted transactions."""

    def __init__(self, listed: Sequence[fetch.FetchResponseAbortedTransaction]) -> None:
        self._listed = sorted(((each.first_offset, each.producer_id) for each in listed), reverse=True)
        self._producers: set[int] = set()

    def hides(self, entry: Entry, last_offset: int) -> bool:
        while self._listed and self._listed[-1][0] <= last_offset:
            self._producers.add(self._listed.pop()[1])
        if entry.commit is False:
            self._producers.discard(entry.producer_id)
        return entry.producer_id in self._producers
