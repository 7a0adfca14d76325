"""The laws of transactions, over what the log has at the end. Pure.

Whether a record is committed is read from the log alone: the next marker of its producer in its partition says it.
This is held against what clients were answered, and against what readers of committed data were given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tools.simulator.transactions.history import Book, Outcome, Place, Transaction, Written


class Entry(NamedTuple):
    """A batch of the log. `commit`: what a marker says; None: it is no marker."""

    base: int
    producer_id: int
    epoch: int
    commit: bool | None
    values: tuple[bytes, ...]


Logs = Mapping[Place, Sequence[Entry]]


class Found(NamedTuple):
    place: Place
    offset: int
    is_committed: bool


@dataclass(eq=False)
class Judgement:
    book: Book
    logs: Logs
    broken: list[str] = field(default_factory=list)
    found: dict[bytes, Found] = field(default_factory=dict)
    """Where each value is."""

    def judge(self) -> list[str]:
        for place, log in self.logs.items():
            self._read(place, log)
        for value, (transaction, written) in self.book.written.items():
            self._judge_record(value, transaction, written)
        for transaction in self.book.transactions:
            self._judge_atomicity(transaction)
        self._judge_order()
        self._judge_readers()
        return self.broken

    def _read(self, place: Place, log: Sequence[Entry]) -> None:
        begun: dict[int, list[tuple[int, bytes]]] = {}
        epochs: dict[int, int] = {}
        for entry in log:
            newest = epochs.setdefault(entry.producer_id, entry.epoch)
            if entry.epoch < newest:
                self._breaks("older epoch", place, entry.base, f"has epoch {entry.epoch} after {newest}")
            epochs[entry.producer_id] = max(newest, entry.epoch)
            if entry.commit is None:
                begun.setdefault(entry.producer_id, []).extend(enumerate(entry.values, entry.base))
            else:
                self._decide(place, begun.pop(entry.producer_id, []), entry.commit)
        for records in begun.values():
            self._breaks("hanging", place, records[0][0], f"is {records[0][1]!r}, without a marker")
            self._decide(place, records, False)

    def _decide(self, place: Place, records: Sequence[tuple[int, bytes]], is_committed: bool) -> None:
        for offset, value in records:
            first = self.found.setdefault(value, Found(place, offset, is_committed))
            if first.offset != offset or first.place != place:
                self._breaks("duplicate", place, offset, f"is {value!r}, as {first.place} {first.offset}")
            if value not in self.book.written:
                self._breaks("phantom", place, offset, f"is {value!r}, which nobody sent")

    def _judge_record(self, value: bytes, transaction: Transaction, written: Written) -> None:
        found = self.found.get(value)
        if written.offset is not None and (
            found is None or (found.place, found.offset) != (written.place, written.offset)
        ):
            self._breaks("lost write", written.place, written.offset, f"is not {value!r}, there is {found}")
        if found is not None and written.sent_s > self.book.replaced_s(transaction.session):
            self._breaks(
                "fenced write", found.place, found.offset, f"is {value!r}, sent by a fenced producer"
            )

    def _judge_atomicity(self, transaction: Transaction) -> None:
        """An unknown outcome is one of the two."""
        there = [self._is_committed(each) for each in transaction.written]
        if transaction.outcome is Outcome.COMMITTED and not all(there):
            self._breaks_atomicity(transaction, "was committed", there)
        elif transaction.outcome is Outcome.ABORTED and any(there):
            self._breaks_atomicity(transaction, "was aborted", there)
        elif any(there) and not (all(there) and transaction.may_commit):
            self._breaks_atomicity(transaction, "has an unknown outcome", there)

    def _breaks_atomicity(self, transaction: Transaction, what: str, there: list[bool]) -> None:
        first = transaction.written[0].value
        self.broken.append(f"atomicity: {first!r} {what}, {sum(there)} of {len(there)} records are committed")

    def _is_committed(self, written: Written) -> bool:
        found = self.found.get(written.value)
        return found is not None and found.is_committed

    def _judge_order(self) -> None:
        last: dict[tuple[Place, str], int] = {}
        for value, (transaction, written) in self.book.written.items():
            found = self.found.get(value)
            if found is None:
                continue
            whose = written.place, transaction.session.name
            if found.offset < last.get(whose, -1):
                self._breaks("order", found.place, found.offset, f"is {value!r}, which was sent later")
            last[whose] = found.offset

    def _judge_readers(self) -> None:
        for (place, offset), value in self.book.shown.items():
            found = self.found.get(value)
            if found is None or not found.is_committed:
                self._breaks("aborted read", place, offset, f"was {value!r}, which is not committed")
        for (place, offset), value in self.book.hidden.items():
            found = self.found.get(value)
            if found is not None and found.is_committed:
                self._breaks("hidden", place, offset, f"is {value!r}, which is committed")

    def judge_view(self, view: Mapping[tuple[Place, int], bytes]) -> list[str]:
        """Of one reader of committed data, which has read everything."""
        committed = {
            (each.place, each.offset): value for value, each in self.found.items() if each.is_committed
        }
        return [
            f"unseen: {place[0]}/{place[1]} {offset} is {committed[place, offset]!r}, and was not read"
            for place, offset in committed
            if (place, offset) not in view
        ]

    def judge_copies(self, source: str, target: str, reached: Mapping[int, int]) -> list[str]:
        """Each committed record of the source, up to where the group is, is in the target once and in order."""
        due: dict[int, list[int]] = {partition: [] for partition in reached}
        for each in sorted(self.found.values(), key=lambda found: found.offset):
            topic, partition = each.place
            if topic == source and each.is_committed and each.offset < reached.get(partition, 0):
                due[partition].append(each.offset)
        copied: dict[int, list[int]] = {partition: [] for partition in reached}
        for value, each in sorted(self.found.items(), key=lambda item: item[1].offset):
            if each.place[0] == target and each.is_committed and value in self.book.written:
                written = self.book.written[value][1]
                assert written.source is not None, "copies say what they are copies of"
                copied.setdefault(written.source[0], []).append(written.source[1])
        self.book.copied = sum(map(len, copied.values()))
        return [
            f"exactly once: partition {partition} was copied to {reached.get(partition, 0)}: "
            f"{_difference(due.get(partition, []), found)}"
            for partition, found in copied.items()
            if found != due.get(partition, [])
        ]

    def _breaks(self, law: str, place: Place, offset: int, why: str) -> None:
        self.broken.append(f"{law}: {place[0]}/{place[1]} {offset} {why}")


def _difference(due: Sequence[int], found: Sequence[int]) -> str:
    lost = [each for each in due if each not in found]
    twice = sorted({each for each in found if found.count(each) > 1})
    more = [each for each in found if each not in due]
    return f"lost {lost[:5]}, twice {twice[:5]}, too many {more[:5]}, in order {list(found) == sorted(found)}"
