"""The world of slices, with producers of transactions. Each is its own coordinator, and decides at once.

An end is repeated until its effect is proven: its marker is committed, or nothing of it is open at the owner whose
epoch is the head's. With `bumps` an end raises the epoch, as in KIP-890: then the producer may abort what is on its
way, and go on before the end is proven. Without, it waits for its answers first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bundle_world import BundleWorld
from kafscale.log.heads import Seg
from kafscale.log.manifests import decode_manifest
from kafscale.produce.log.model import State, TransactionEnd
from kafscale.wire.errors import ErrorCode
from kafscale.wire.markers import Marker
from kafscale.wire.records import build_batch
from writer_clients import RETRIABLE, Batch, Idempotent, Send, ensure, records_of
from writer_shell import TIMEOUT_MS, Owner
from writer_truth import marker_value


@dataclass(slots=True)
class Transactional(Idempotent):
    """The batches of the present transaction are in `batches`. `decided`: those that ended, with their records."""

    bumps: bool = False
    number: int = 1
    closing: TransactionEnd | None = None
    decided: dict[int, tuple[bool, list[bytes]]] = field(default_factory=dict)

    def make(self, count: int) -> Batch:
        first = self.next_seq
        values = [f"x{self.producer_id}-{self.number}-{first + n}".encode() for n in range(count)]
        data = build_batch(
            records_of(values, first),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=first,
            transactional=True,
        )
        self.next_seq += count
        batch = Batch(values, data, first, number=self.number)
        self.batches.append(batch)
        return batch

    def hear(self, send: Send, error: ErrorCode) -> None:
        """An owner from before may know of an older transaction."""
        if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
            Idempotent.hear(self, send, error)
        elif send.connection == self.connection:
            self.reset()

    def decide(self, commit: bool) -> None:
        """The coordinator's transaction. A commit waits for all answers."""
        if self.closing is not None or not self.batches or not (self.done or (self.bumps and not commit)):
            return
        self.decided[self.number] = commit, [value for batch in self.batches for value in batch.values]
        self.closing = TransactionEnd(
            producer_id=self.producer_id,
            number=self.number,
            commit=commit,
            marker_epoch=self.epoch + self.bumps,
            coordinator_epoch=self.number,
        )
        self.number += 1
        self.batches = []
        self.reset()
        if self.bumps:
            self.epoch, self.next_seq = self.epoch + 1, 0


@dataclass(slots=True)
class Ending:
    """The coordinator hears of an end."""

    producer: Transactional
    end: TransactionEnd

    def hear(self, send: Send, error: ErrorCode) -> None:
        ensure(error is ErrorCode.NONE or error in RETRIABLE, f"an end was answered {error.name}")
        if error is ErrorCode.NONE and self.producer.closing is self.end:
            self.producer.closing = None


class TransactionWorld(BundleWorld):
    """The methods that flaws override say what the protocol does."""

    def __init__(self, instances: int = 2) -> None:
        super().__init__(instances)
        self.transactional = self._producers()

    def _producers(self) -> list[Transactional]:
        first = 1_000 * len(self.incarnations)
        return [Transactional(first + n, bumps=bool(n % 2)) for n in range(3)]

    def recreate_topic(self) -> None:
        before = self.truth
        super().recreate_topic()
        if self.truth is not before:
            self.transactional = self._producers()

    # --- moves ---------------------------------------------------------------------------------

    def send_transactional(self, instance: int, which: int, *, fresh: bool = True, count: int = 1) -> None:
        owner, producer = self._target(instance), self.transactional[which]
        if owner is None or owner.truth is not self.truth:
            return
        if producer.closing is not None:
            if not producer.bumps:
                return
            self.end(instance, which)  # as the answer to its join says
        self._send_next(owner, producer, fresh=fresh, count=count)

    def end(self, instance: int, which: int) -> None:
        """The coordinator's End arrives at this instance."""
        owner, producer = self._target(instance), self.transactional[which]
        end = producer.closing
        if owner is None or end is None or owner.truth is not self.truth:
            return
        marker = marker_value(producer.producer_id, Marker(end.commit, end.coordinator_epoch))
        token = next(self._token)
        self.tokens[token] = (Send(Batch([marker], b""), Ending(producer, end), 0), owner)
        deadline_ms = self.now_ms + TIMEOUT_MS
        if not owner.writer.end_transaction(token, end, deadline_ms=deadline_ms, now=self.now()):
            del self.tokens[token]
            if self._proves(owner, end):
                producer.closing = None
        self._drain(owner)

    def _proves(self, owner: Owner, end: TransactionEnd) -> bool:
        """Nothing of the transaction is open here: final, if nothing else owns the partition, and if nothing of the
        transaction is on its way to a commit, which may take a part of it."""
        head = self.head()
        if head is None or owner.writer.state is not State.SERVING or owner.writer.head.epoch != head.epoch:
            return False
        waiting = [*owner.writer._intake.open.events]
        waiting += [event for flight in owner.writer.flights() for event in flight.events]
        if any(event.producer_id == end.producer_id for event in waiting):
            return False
        return all((each.producer_id, each.number) != (end.producer_id, end.number) for each in head.open)

    # --- the end -------------------------------------------------------------------------------

    def heal(self) -> None:
        super().heal()
        for _ in range(20):
            for which, producer in enumerate(self.transactional):
                while producer.next_to_send() is not None:
                    self.send_transactional(0, which, fresh=False)
                producer.decide(commit=True)
                self.end(0, which)
            self._settle()
        for producer in self.transactional:
            ensure(producer.closing is None, "an end is never proven")
            for number, (commit, values) in producer.decided.items():
                self._judge(producer.producer_id, number, commit, values)
        ensure(not self.truth.transactions.open, "a transaction stays open")
        self.truth.transactions.searches_find(self._entries(), len(self.truth.values))

    def _entries(self) -> list[Seg]:
        """Of all manifests, then of the tail."""
        head, (meta, _) = self.head(), self._meta(self.truth)
        manifests = [decode_manifest(self.s3.objects[chunk.key].body) for chunk in meta.chunks]
        return [seg for manifest in manifests for seg in manifest.segments] + list(head.tail if head else ())

    def _judge(self, producer_id: int, number: int, commit: bool, values: list[bytes]) -> None:
        """T1: committed, and all of its records are under its commit marker; else none."""
        outcome = self.truth.transactions.outcomes.get((producer_id, number))
        there = [value in self.truth.places for value in values]
        if commit:
            ensure(outcome is True and all(there), f"{values} were committed, {there} are there: {outcome}")
        else:
            ensure(outcome is False or not any(there), f"{values} were aborted: {outcome}")
