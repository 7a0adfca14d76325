"""Compares the answers to producers with the records in the log.

Names of the laws are those of the Jepsen tests for Kafka: no lost write, no duplicate, one value per offset, no
aborted read, session order, and an acknowledgement carries the true offset. The law of no skips is checked for each
answer: a consumer treats a gap as compacted and continues after it, so a read of the whole log would not show it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sent:
    """A record as its producer knows it: the producer, the record's number, and the partition."""

    producer: str
    number: int
    partition: int

    @property
    def value(self) -> bytes:
        return f"{self.producer}:{self.number}:{self.partition}".encode()


Log = Mapping[int, Sequence[tuple[int, bytes]]]
"""partition -> (offset, value) in the order in which a reader saw them"""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one Fetch of a partition: (base, last, records) of each batch, in order."""

    partition: int
    asked: int
    batches: Sequence[tuple[int, int, int]]

    def skips(self) -> list[str]:
        """Every offset that the answer skips, in a log that is never compacted."""
        found = []
        due = self.asked
        for number, (base, last, records) in enumerate(self.batches):
            if base > due or last < due or (number and base < due):
                found.append(f"skip: {self._where()} {due} was due and {base} to {last} came")
            if records != last - base + 1:
                found.append(f"skip: {self._where()} {base} to {last} hold {records} records")
            due = last + 1
        return found

    def _where(self) -> str:
        return f"partition {self.partition} was asked for {self.asked}:"


@dataclass(slots=True)
class History:
    """Every record that was sent, with its outcome: acknowledged at an offset, failed, or unknown."""

    idempotent: set[str] = field(default_factory=set)
    sent: list[Sent] = field(default_factory=list)
    acknowledged: dict[Sent, int] = field(default_factory=dict)
    failed: list[Sent] = field(default_factory=list)

    def undecided(self) -> list[Sent]:
        """Those whose outcome is unknown: they may be there, or come later."""
        decided = {*self.acknowledged, *self.failed}
        return [sent for sent in self.sent if sent not in decided]

    def excuse(self, starts: Mapping[int, int]) -> None:
        """By partition: the records below are deleted."""
        self.acknowledged = {
            sent: offset
            for sent, offset in self.acknowledged.items()
            if offset >= starts.get(sent.partition, 0)
        }

    def violations(self, log: Log) -> list[str]:
        """One sentence per broken law, with the place; empty if none is broken."""
        return [
            *_offsets(log),
            *self._lost(log),
            *self._phantoms(log),
            *self._aborted(log),
            *self._duplicates(log),
            *self._out_of_order(log),
        ]

    def _lost(self, log: Log) -> list[str]:
        at = {partition: dict(records) for partition, records in log.items()}
        return [
            f"lost write: {sent.value!r} was acknowledged at {sent.partition}/{offset}, "
            f"there is {at.get(sent.partition, {}).get(offset)!r}"
            for sent, offset in self.acknowledged.items()
            if at.get(sent.partition, {}).get(offset) != sent.value
        ]

    def _phantoms(self, log: Log) -> list[str]:
        known = {sent.value for sent in self.sent}
        return [
            f"phantom: {value!r} at {partition}/{offset} was never sent"
            for partition, records in log.items()
            for offset, value in records
            if value not in known
        ]

    def _aborted(self, log: Log) -> list[str]:
        there = {value for records in log.values() for _, value in records}
        return [
            f"aborted read: {sent.value!r} failed and is there" for sent in self.failed if sent.value in there
        ]

    def _duplicates(self, log: Log) -> list[str]:
        times = Counter(value for records in log.values() for _, value in records)
        return [
            f"duplicate: {value!r} is there {count} times"
            for value, count in times.items()
            if count > 1 and value.decode().split(":")[0] in self.idempotent
        ]

    def _out_of_order(self, log: Log) -> list[str]:
        found = []
        for partition, records in log.items():
            numbers: dict[str, list[int]] = defaultdict(list)
            for _, value in records:
                producer, number, _ = value.decode().split(":")
                if producer in self.idempotent:
                    numbers[producer].append(int(number))
            found += [
                f"order: records of {producer} in partition {partition} are not in the order sent"
                for producer, seen in numbers.items()
                if seen != sorted(seen)
            ]
        return found


def _offsets(log: Log) -> list[str]:
    return [
        f"offsets of partition {partition} are not dense: {before} then {after}"
        for partition, records in log.items()
        for (before, _), (after, _) in zip(records, records[1:], strict=False)
        if after != before + 1
    ]
