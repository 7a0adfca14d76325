"""What the committed batches of one log say of its transactions: the laws of heads and entries, judged by a walk.

T2: what is not decided is at or above the last stable offset, which never falls. What each entry says is what the log
was when it ended there, whatever folded, settled or moved the entry since. A reader's search for aborted transactions
relies on that (T8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kafscale.log.heads import Head, OpenTransaction, Seg
from kafscale.log.isolation import AbortedSearch
from kafscale.log.segments import first_at
from kafscale.log.snapshots import ProducerSnapshot
from kafscale.wire.batches import BatchHeader
from kafscale.wire.markers import Marker
from writer_clients import ensure

Begun = tuple[int, int, int]
"""Epoch, number and first offset of an open transaction."""


@dataclass(slots=True)
class TransactionTruth:
    open: dict[int, Begun] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    outcomes: dict[tuple[int, int], bool] = field(default_factory=dict)
    over: set[tuple[int, int]] = field(default_factory=set)
    opens: dict[int, dict[int, Begun]] = field(default_factory=lambda: {0: {}})  # by the log's end
    seen: bool = False

    def appended(self, header: BatchHeader, marker: Marker | None, value: bytes) -> None:
        """A batch is in the log; `value` is that of its first record."""
        producer_id, end = header.producer_id, header.last_offset + 1
        if marker is not None:
            ensure(producer_id in self.open, "a marker ends nothing")
            _, number, first = self.open.pop(producer_id)
            self.outcomes[producer_id, number] = marker.commit
            if not marker.commit:
                self.aborted.append((producer_id, first, header.base_offset))
        elif header.is_transactional:
            self.seen = True
            number = number_in(value)
            ensure((producer_id, number) not in self.outcomes, "a batch came after its transaction's marker")
            ensure(
                (producer_id, number) not in self.over,
                "a batch came after the proof that its transaction is over",
            )
            begun = self.open.setdefault(producer_id, (header.producer_epoch, number, header.base_offset))
            ensure(begun[:2] == (header.producer_epoch, number), "a batch is in another transaction")
        else:
            ensure(producer_id not in self.open, "a batch outside of its producer's transaction")
        self.opens[end] = dict(self.open)

    def is_over(self, producer_id: int, number: int) -> None:
        """An owner said that the end of this transaction is carried out."""
        begun = self.open.get(producer_id)
        ensure(begun is None or begun[1] != number, "an end is proven, and its transaction is open")
        self.over.add((producer_id, number))

    def stable(self, end: int) -> int:
        """The last stable offset when the log ended there."""
        return min((first for _, _, first in self.opens[end].values()), default=end)

    def head_changed(self, before: Head, new: Head) -> None:
        ensure(new.lso >= before.lso, "the last stable offset fell")
        ensure(new.lso == self.stable(new.next), f"the head's stable offset {new.lso}")
        found = begun(new.open)
        ensure(found == self.open, f"the head says that {found} are open, the log {self.open}")
        firsts = [each.first for each in new.open]
        ensure(firsts == sorted(firsts), "the open transactions are not in order")
        ensure(new.transactional == self.seen, "the head does not say whether there was a transaction")
        self.entries_are(new.tail)

    def entries_are(self, segs: Iterable[Seg]) -> None:
        for seg in segs:
            ensure(seg.end - seg.unstable == self.stable(seg.end), f"the entry of {seg.base} is unstable")
            listed = [(each.producer_id, each.first, each.last) for each in seg.aborted]
            right = [each for each in self.aborted if seg.base <= each[2] < seg.end]
            ensure(listed == right, f"the entry of {seg.base} lists {listed} as aborted, not {right}")

    def searches_find(self, entries: Sequence[Seg], stable_end: int) -> None:
        """T8: of each range, what a reader finds in the entries of manifests and tail is what the log aborted there."""
        ordered = sorted(self.aborted, key=lambda each: each[1])
        for first in range(0, stable_end, 2):
            for end in range(first + 1, stable_end + 1, 3):
                search = AbortedSearch(first, end)
                for seg in entries[first_at(entries, first) :]:
                    if search.take(seg):
                        break
                found = [(each.producer_id, each.first, each.last) for each in search.found]
                right = [each for each in ordered if each[1] < end and each[2] >= first]
                ensure(found == right, f"a reader of [{first}, {end}) finds {found}, not {right}")

    def snapshot_is(self, snapshot: ProducerSnapshot) -> None:
        if self.opens[snapshot.offset]:
            right = self.opens[snapshot.offset]
            ensure(
                begun(snapshot.open) == right,
                f"a snapshot at {snapshot.offset} does not say that {right} is open",
            )


def begun(transactions: Iterable[OpenTransaction]) -> dict[int, Begun]:
    return {each.producer_id: (each.epoch, each.number, each.first) for each in transactions}


def number_in(value: bytes) -> int:
    """Of the transaction that a record is of."""
    return int(value.split(b"-")[1])
