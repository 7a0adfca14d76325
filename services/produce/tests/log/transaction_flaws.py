"""Mistakes to plant in what commits, folds, settling, checkpoints and claims do with transactions, and in joins and
ends, one at a time.

Small letters are the names of the model's mutations, those of its index of a log and of its owners. The others are in
the code only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec
from kafscale.log.heads import Head, OpenTransaction, Seg
from kafscale.log.manifests import Manifest
from kafscale.log.snapshots import ProducerEntry
from kafscale.log.transactions import Transactions
from kafscale.produce.log.flight import Flight, InBundle
from kafscale.produce.log.joins import Joined, Joins
from kafscale.produce.log.ledger import Ledger, Sent
from kafscale.produce.log.model import (
    NO_OFFSET,
    NO_TIMESTAMP,
    CommitHead,
    Instant,
    State,
    TakeCheckpoint,
    Token,
    TransactionEnd,
    Waiter,
    Waiters,
)
from kafscale.produce.log.plans import Checkpoints
from kafscale.produce.log.producers import ProducerTable, SnapshotWork, StoredHeader
from kafscale.produce.log.settling import SettledRun, Settling
from kafscale.produce.log.writer import PartitionWriter
from kafscale.wire.batches import CONTROL, BatchHeader
from kafscale.wire.errors import ErrorCode
from kafscale.wire.markers import Marker
from transaction_world import Transactional, TransactionWorld
from writer_shell import Owner


class _ChangedLedger(Ledger):
    """What a commit puts is changed."""

    def commit(self, flights: Sequence[Flight], doubts: Waiters, attempt: bytes) -> CommitHead:
        right = super().commit(flights, doubts, attempt)
        if not flights or self.sent is None:
            return right
        head = self.changed(right.head, right.head.tail[len(right.head.tail) - len(flights)])
        self.sent = replace(self.sent, head=head)
        return replace(right, head=head)

    def changed(self, head: Head, first: Seg) -> Head:
        """`first`: the entry of the first flight, which may be a fold."""
        raise NotImplementedError

    def folded(self, first: Seg) -> tuple[Seg, ...]:
        """The entries whose places it takes."""
        return tuple(seg for seg in self.head.tail if seg.end > first.base)


def _put(head: Head, old: Seg, new: Seg) -> Head:
    return replace(head, tail=tuple(new if seg is old else seg for seg in head.tail))


class _FoldDropsAborted(_ChangedLedger):
    def changed(self, head: Head, first: Seg) -> Head:
        ended = tuple(each for each in first.aborted if each.last >= self.head.next)
        return _put(head, first, replace(first, aborted=ended))


class _FoldKeepsUnstable(_ChangedLedger):
    def changed(self, head: Head, first: Seg) -> Head:
        folded = self.folded(first)
        return _put(head, first, replace(first, unstable=folded[0].unstable)) if folded else head


class _StableEndOfAssigned(_ChangedLedger):
    assigned: Transactions

    def changed(self, head: Head, first: Seg) -> Head:
        return replace(head, lso=min(head.next, self.assigned.stable_end(head.next)))


class _ForgetsTransactional(_ChangedLedger):
    def changed(self, head: Head, first: Seg) -> Head:
        return replace(head, transactional=bool(head.open))


class FoldDropsAborted(TransactionWorld):
    """A fold lists only what its own batches abort."""

    def plant(self, owner: Owner) -> None:
        owner.writer._ledger.__class__ = _FoldDropsAborted


class FoldKeepsUnstable(TransactionWorld):
    """A fold is as unstable as the first slice that it repeats."""

    def plant(self, owner: Owner) -> None:
        owner.writer._ledger.__class__ = _FoldKeepsUnstable


class StableEndOfAssigned(TransactionWorld):
    """The stable offset of a commit is that of what has its offsets, committed or not."""

    def plant(self, owner: Owner) -> None:
        ledger = owner.writer._ledger
        ledger.__class__ = _StableEndOfAssigned
        assert isinstance(ledger, _StableEndOfAssigned)
        ledger.assigned = owner.writer._intake.transactions


class TransactionalCleared(TransactionWorld):
    """A head in which nothing is open says that there never was a transaction."""

    def plant(self, owner: Owner) -> None:
        owner.writer._ledger.__class__ = _ForgetsTransactional


class _Again(PartitionWriter):
    def seal_slice(self, now: Instant) -> Flight:
        kept = sorted(self.kept._slices.items())
        flight = super().seal_slice(now)
        if isinstance(flight.home, InBundle) and flight.home.replaces:
            repeated = [event for base, each in kept if base >= flight.base for event in each.events]
            flight.events = (*repeated, *flight.events)
        return flight


class FoldBeginsAgain(TransactionWorld):
    """A fold repeats the events of the batches that it repeats."""

    writer_type = _Again


class _DropsAborted(Settling):
    def rewritten(self, number: int, seg: Seg) -> None:
        super().rewritten(number, replace(seg, aborted=()))


class SettleDropsAborted(TransactionWorld):
    """A settled segment lists nothing as aborted."""

    def plant(self, owner: Owner) -> None:
        owner.writer._plans._settling.__class__ = _DropsAborted


class _PresentRun(SettledRun):
    def applied_to(self, head: Head) -> Head:
        seg = replace(self.seg, unstable=max(0, self.seg.end - head.lso))
        return SettledRun(plan=self.plan, seg=seg).applied_to(head)


class _PresentSettling(Settling):
    def take_ready(self) -> SettledRun | None:
        ready = super().take_ready()
        return None if ready is None else _PresentRun(plan=ready.plan, seg=ready.seg)


class SettleTakesPresentLso(TransactionWorld):
    """A settled segment is as unstable as the log is when it is swapped in."""

    def plant(self, owner: Owner) -> None:
        owner.writer._plans._settling.__class__ = _PresentSettling


class ForgetOpen(TransactionWorld):
    """A claim begins without the open transactions of the head."""

    def make_writer(self, head: Head, revision: int) -> PartitionWriter:
        return super().make_writer(replace(head, open=()), revision)


class _OldCheckpoints(Checkpoints):
    def _take(self, head: Head, keep: int, now: Instant) -> TakeCheckpoint:
        plan = super()._take(head, keep, now)
        if plan.manifest is not None:
            plan = self._plan = replace(plan, manifest=self.changed(plan.manifest))
        return plan

    def changed(self, manifest: Manifest) -> Manifest:
        return replace(manifest, transactional=False)


class _StrippedCheckpoints(_OldCheckpoints):
    def changed(self, manifest: Manifest) -> Manifest:
        segments = tuple(replace(seg, unstable=0) for seg in manifest.segments)
        return replace(manifest, segments=segments)


class ManifestOfNoTransactions(TransactionWorld):
    """An older version would read the manifest."""

    def plant(self, owner: Owner) -> None:
        owner.writer._plans._checkpoints.__class__ = _OldCheckpoints


class CheckpointDropsUnstable(TransactionWorld):
    """Entries lose what they say when they move to a manifest."""

    def plant(self, owner: Owner) -> None:
        owner.writer._plans._checkpoints.__class__ = _StrippedCheckpoints


class _OnlyWithBatches(ProducerTable):
    __slots__ = ()

    def entry(self, producer_id: int, below: int) -> ProducerEntry | None:
        found = super().entry(producer_id, below)
        return found if found is not None and found.batches else None


class SnapshotDropsEmpty(TransactionWorld):
    """A snapshot leaves out producers without batches, so older epochs are accepted again."""

    table_type = _OnlyWithBatches


class _AllBatches(ProducerTable):
    __slots__ = ()

    def replay(self, batches: Iterable[tuple[StoredHeader, Marker | None]], wall_ms: int) -> None:
        super().replay(((_as_batch(header), None) for header, _ in batches), wall_ms)


def _as_batch(header: StoredHeader) -> StoredHeader:
    assert isinstance(header, BatchHeader)
    return msgspec.structs.replace(header, attributes=header.attributes & ~CONTROL)


class MarkerAsSequence(TransactionWorld):
    """Recovery takes a marker for a batch with the sequence -1."""

    table_type = _AllBatches


class _ClosedSnapshots(ProducerTable):
    __slots__ = ()

    def begin_snapshot(
        self,
        below: int,
        wall_ms: int,
        begun: tuple[OpenTransaction, ...] = (),
        *,
        transactional: bool = False,
    ) -> SnapshotWork:
        return super().begin_snapshot(below, wall_ms, transactional=transactional)


class SnapshotForgetsOpen(TransactionWorld):
    """A snapshot names no open transaction."""

    table_type = _ClosedSnapshots


class _Believes(PartitionWriter):
    def _doubt(self, token: Token, deadline_ms: int, answer: ErrorCode) -> None:
        if answer is ErrorCode.NONE:
            self._answers.settle_doubts([Waiter(token, NO_OFFSET, NO_TIMESTAMP, deadline_ms)], 0)
        else:
            super()._doubt(token, deadline_ms, answer)


class UnprovenEnd(TransactionWorld):
    """The end of what is not open is carried out at once."""

    writer_type = _Believes


class _Stale(PartitionWriter):
    def _applied(self, sent: Sent, head: Head, revision: int, now: Instant) -> None:
        self._answers.settle_doubts(self._take_doubts().take_all(), revision)
        super()._applied(sent, head, revision, now)


class StaleProof(TransactionWorld):
    """A transaction that was sent before the end came proves it. Walks do not find it: the story has it."""

    writer_type = _Stale


class _OverlooksMarker(PartitionWriter):
    def _marker_under_way(self, producer_id: int) -> int | None:
        return None


class ProofBesideMarker(TransactionWorld):
    """A commit proves an end whose marker is assigned, and not in it."""

    writer_type = _OverlooksMarker


class _Keeps(Joins):
    def ended(self, producer_id: int, number: int) -> None:
        """An end changes nothing."""


class _JoinFlaw(TransactionWorld):
    joins_type: type[Joins]

    def plant(self, owner: Owner) -> None:
        owner.writer.joins.__class__ = self.joins_type


class EndKeepsJoin(_JoinFlaw):
    """A producer stays joined when its transaction has ended."""

    joins_type = _Keeps


class JoinHeldPerPartition(TransactionWorld):
    """A join is for the partition, and not for one claim of it."""

    def begin_transactions(self) -> None:
        super().begin_transactions()
        self._kept: dict[tuple[int, int], Joins] = {}

    def plant(self, owner: Owner) -> None:
        before = self._kept.get((owner.instance, self.incarnations.index(owner.truth)))
        if before is not None:
            owner.writer.joins._joined.update(before._joined)
        self._kept[owner.instance, self.incarnations.index(owner.truth)] = owner.writer.joins


class _TakesLate(Joins):
    def answered(self, producer_id: int, epoch: int, number: int) -> bool:
        self._asked[producer_id] = 0
        return super().answered(producer_id, epoch, number)


class NoGuard(_JoinFlaw):
    """The answer to a join counts, though the end of its transaction came before it."""

    joins_type = _TakesLate


class _TakesBeside(Joins):
    def number_of(self, producer_id: int, epoch: int) -> int | None:
        joined = self._joined.get(producer_id)
        if joined is not None and joined.epoch == epoch:
            return joined.number
        return super().number_of(producer_id, epoch)

    def answered(self, producer_id: int, epoch: int, number: int) -> bool:
        if number > self._asked.pop(producer_id):
            self._joined[producer_id] = Joined(epoch, number)
        return producer_id in self._joined


class EndedNotCarriedOut(_JoinFlaw):
    """The answer to a join names no end, and the next transaction begins in the one that is open."""

    joins_type = _TakesBeside

    def ended_first(self, owner: Owner, producer: Transactional, end: TransactionEnd) -> None:
        """The owner does not know of it."""


class _Hasty(Transactional):
    __slots__ = ()

    @property
    def may_begin(self) -> bool:
        return True


class OverlapInOneEpoch(TransactionWorld):
    """The next transaction begins while one of the same epoch is closing."""

    producer_type = _Hasty


class _EndsProducer(PartitionWriter):
    def end_transaction(
        self, token: Token | None, end: TransactionEnd, *, deadline_ms: int, now: Instant
    ) -> None:
        begun = self._intake.transactions.of(end.producer_id)
        number = end.number if begun is None else begun.number
        super().end_transaction(token, replace(end, number=number), deadline_ms=deadline_ms, now=now)


class EndByProducer(TransactionWorld):
    """An end matches the producer, and not the number."""

    writer_type = _EndsProducer


class _Assigns(PartitionWriter):
    def end_transaction(
        self, token: Token | None, end: TransactionEnd, *, deadline_ms: int, now: Instant
    ) -> None:
        begun = self._intake.transactions.of(end.producer_id)
        is_open = begun is not None and begun.number == end.number and self.state is State.SERVING
        super().end_transaction(None if is_open else token, end, deadline_ms=deadline_ms, now=now)
        if is_open and token is not None:
            self._answers.settle_doubts([Waiter(token, NO_OFFSET, NO_TIMESTAMP, deadline_ms)], 0)


class AckAssigned(TransactionWorld):
    """An end is done when its marker has an offset, before the commit."""

    writer_type = _Assigns


class _Forgets(Transactional):
    __slots__ = ()

    def has_ended(self, end: TransactionEnd) -> None:
        if self.closing is end:
            for lane in self.lanes:
                lane.closing = None


class ForgetClosing(TransactionWorld):
    """The coordinator awaits no other partition once the first is done. With one partition there is no other."""

    producer_type = _Forgets


FLAWS: dict[str, type[TransactionWorld]] = {
    "fold_drops_aborted": FoldDropsAborted,
    "fold_begins_again": FoldBeginsAgain,
    "fold_keeps_unstable": FoldKeepsUnstable,
    "settle_drops_aborted": SettleDropsAborted,
    "settle_takes_present_lso": SettleTakesPresentLso,
    "forget_open": ForgetOpen,
    "STABLE_END_OF_ASSIGNED": StableEndOfAssigned,
    "TRANSACTIONAL_CLEARED": TransactionalCleared,
    "MANIFEST_OF_NO_TRANSACTIONS": ManifestOfNoTransactions,
    "CHECKPOINT_DROPS_UNSTABLE": CheckpointDropsUnstable,
    "SNAPSHOT_DROPS_EMPTY": SnapshotDropsEmpty,
    "SNAPSHOT_FORGETS_OPEN": SnapshotForgetsOpen,
    "MARKER_AS_SEQUENCE": MarkerAsSequence,
}

PROTOCOL_FLAWS: dict[str, type[TransactionWorld]] = {
    "unproven_end": UnprovenEnd,
    "proof_beside_marker": ProofBesideMarker,
    "ack_assigned": AckAssigned,
    "end_by_producer": EndByProducer,
    "no_guard": NoGuard,
    "ended_not_carried_out": EndedNotCarriedOut,
    "overlap_in_one_epoch": OverlapInOneEpoch,
    "END_KEEPS_JOIN": EndKeepsJoin,
    "JOIN_HELD_PER_PARTITION": JoinHeldPerPartition,
}
