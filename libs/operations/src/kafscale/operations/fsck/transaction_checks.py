"""The rules for transactions, checked by a walk over the batches of a log. Pure.

    What is open at the end of the log is what the head names, with the first offset of each, and the last stable offset
    is the least of these. Each entry lists what its own markers abort, with the offset where that began, and says how
    far its end was unstable. A log with a transaction has a head that says so.

If an entry is wrong, readers of committed data see aborted records and nobody notices, so this walk is the net for all
that writes entries again. Retention and compaction take records away, and with them what a transaction began with:
below `_sure` a recorded first offset cannot be compared, but it may not be behind what is still there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafscale.log.heads import Aborted, Seg
from kafscale.log.transactions import End, Event, Transactions
from kafscale.operations.fsck.checks import Partition, Problem


def check_stable_offset(part: Partition) -> Iterator[Problem]:
    """What the head says by itself, without reading objects."""
    head = part.head
    firsts = [each.first for each in head.open]
    if firsts != sorted(firsts) or len({each.producer_id for each in head.open}) < len(firsts):
        yield Problem(
            part.name, "the open transactions of the head are out of order, or two are of one producer"
        )
    if firsts and not 0 <= firsts[0] <= firsts[-1] < head.next:
        yield Problem(part.name, f"an open transaction of the head begins outside of [0, {head.next})")
    elif head.lso != min(firsts, default=head.next):
        yield Problem(
            part.name,
            f"the last stable offset is {head.lso}, and {min(firsts, default=head.next)} by the open transactions",
        )
    if not head.transactional and any(seg.aborted or seg.unstable for seg in part.segments):
        yield Problem(part.name, "its entries list transactions, and its head says that there never was one")


class TransactionWalk:
    """Takes the segments from the log start on, in their order, each with the events of its batches."""

    def __init__(self, part: Partition, first: int) -> None:
        self._part = part
        self._log = Transactions()
        self._sure = max(first, part.meta.log_start)
        self._blind = False
        self._seen = False

    def take(self, where: str, seg: Seg, events: Iterable[Event] | None) -> Iterator[Problem]:
        """`events` None: its batches cannot be read. Nothing behind them is judged."""
        self._blind = self._blind or events is None
        if self._blind or events is None:
            return
        if seg.key:  # compaction took records, or nothing is left of them
            self._sure = seg.end
        recorded = {(each.producer_id, each.last): each for each in seg.aborted}
        for event in events:
            self._seen = True
            began = self._log.of(event.producer_id)
            self._log.take(event)
            if isinstance(event, End) and not event.commit:
                found = recorded.pop((event.producer_id, event.offset), None)
                yield from self._check_aborted(where, event, found, None if began is None else began.first)
        for each in recorded.values():
            if each.last >= self._part.meta.log_start:
                yield Problem(
                    where, f"the entry lists an aborted transaction, and {each.last} is no marker of it"
                )
        stable = self._log.stable_end(seg.end)
        listed = seg.end - seg.unstable
        if listed != stable and not listed < min(self._sure, stable):
            yield Problem(
                where, f"the entry says that {listed} was the last stable offset, the batches {stable}"
            )

    def _check_aborted(
        self, where: str, end: End, found: Aborted | None, first: int | None
    ) -> Iterator[Problem]:
        if found is None:
            yield Problem(
                where, f"producer {end.producer_id} aborts at {end.offset}, and the entry does not list that"
            )
        elif found.first != first and not self._may_have_begun(found.first, first):
            yield Problem(
                where, f"what aborts at {end.offset} began at {first}, the entry says {found.first}"
            )

    def _may_have_begun(self, recorded: int, first: int | None) -> bool:
        """Before what is still there."""
        return recorded < self._sure and (first is None or recorded < first)

    def finish(self) -> Iterator[Problem]:
        """All segments were taken: the end of the log is what the head says."""
        head, name = self._part.head, self._part.name
        if self._blind:
            return
        if self._seen and not head.transactional:
            yield Problem(name, "it has transactions, and its head says that there never was one")
        for each in head.open:
            found = self._log.of(each.producer_id)
            first = None if found is None else found.first
            if each.first != first and not self._may_have_begun(each.first, first):
                yield Problem(
                    name,
                    f"the head says that producer {each.producer_id} began at {each.first}, the batches {first}",
                )
            elif found is not None and found.epoch != each.epoch:
                yield Problem(
                    name, f"the open transaction at {each.first} is of epoch {found.epoch}, not {each.epoch}"
                )
        named = {each.producer_id for each in head.open}
        for left in self._log.open:
            if left.producer_id not in named:
                yield Problem(
                    name,
                    f"what producer {left.producer_id} began at {left.first} is open and not in the head",
                )
