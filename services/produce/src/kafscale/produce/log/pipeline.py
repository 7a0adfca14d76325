"""What has its offsets and is in no transaction yet: the open buffer, and the flights that it becomes. Pure.

A buffer is sealed as a segment with objects of its own when it is full, and by time (`flush.py`). With
`Limits.bundled`, time is the instance's matter: it asks every partition what it `wants`, and seals many into one bundle
(`bundles/gather.py`). Then only a buffer that pays for objects of its own, or a hand-over, is sealed here.

An append only fills the open buffer and seals by size. Sealing by time happens in the other events, so that with a
linger of 0 everything that one turn of the loop brings becomes one segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from kafscale.log.heads import Head
from kafscale.log.segment import build_segment
from kafscale.produce.bundles.gather import Want
from kafscale.produce.log.flight import Flight, InBundle, Objects, OpenBuffer
from kafscale.produce.log.flush import NEVER, FlushPolicy
from kafscale.produce.log.folding import Kept, KeptBudget, foldable
from kafscale.produce.log.intake import Intake
from kafscale.produce.log.model import Action, Instant, Limits, PartitionId, SealWanted, Waiters
from kafscale.produce.log.uploading import Uploads
from kafscale.storage.keys import Keyspace


class Pipeline:
    """`uploads` holds the flights; `intake` the open buffer."""

    def __init__(
        self,
        partition: PartitionId,
        intake: Intake,
        limits: Limits,
        *,
        names: Keyspace,
        ids: Callable[[], bytes],
        actions: list[Action],
        kept: KeptBudget | None,
    ) -> None:
        self.intake = intake
        self.uploads = Uploads(intake.epoch, partition.topic_id, actions)
        self.flush = FlushPolicy(limits)
        self.kept = Kept(kept or KeptBudget(0))
        self._limits = limits
        self._partition = partition
        self._names = names
        self._ids = ids
        self._actions = actions
        self._cleared = False

    def configure(self, limits: Limits) -> None:
        self._limits = limits
        self.flush.configure(limits)

    @property
    def is_empty(self) -> bool:
        return not self.intake.open.parts and not len(self.uploads)

    @property
    def bytes_held(self) -> int:
        return self.intake.open.bytes + self.uploads.bytes_held  # that one fills, those on their way

    def waiters(self) -> Iterator[Waiters]:
        """In offset order."""
        for flight in self.uploads:
            yield flight.waiters
        yield self.intake.open.waiters

    def committed(self, flights: Iterable[Flight], head: Head) -> None:
        """The batches of slices stay in memory, to be folded and settled: not those of a commit that is applied after
        `clear`, because nothing would remove them again."""
        for flight in () if self._cleared else flights:
            if isinstance(flight.home, InBundle):
                self.kept.add(flight.home.batches)
        self.kept.keep_only(head.tail)

    def clear(self) -> None:
        """The epoch ends."""
        self._cleared = True
        self.kept.clear()
        self.uploads.clear()
        self.intake.replace_open()

    # --- sealing -----------------------------------------------------------------------------

    def seal(self, now: Instant) -> None:
        """Fix the open buffer's bytes for ever, as a segment with objects of its own."""
        buffer = self.intake.replace_open()
        place = (self._partition.topic, self._partition.partition, buffer.base)
        built = build_segment(buffer.base, buffer.batches, buffer.parts, now.wall_ms)
        home = Objects(
            built,
            attempt=self._ids(),
            epoch=self.intake.epoch,
            segment_key=self._names.segment_key(*place),
            index_key=self._names.index_key(*place),
        )
        self._add(Flight(buffer, built, home, now.wall_ms), now)
        self.uploads.start(self._limits.pipeline_max)

    def seal_slice(self, head: Head | None, planned_end: int, now: Instant) -> Flight:
        """The same, as a slice of a bundle that the caller builds and uploads. It may fold slices of the head's tail,
        but not behind another flight. None: a transaction changes the head."""
        opened, before = self.intake.replace_open(), list[OpenBuffer]()
        assert opened.parts, "there is something to seal"
        if head is not None and not len(self.uploads):
            before = foldable(head, self.kept, opened.bytes, planned_end)
        buffer = opened.after(before) if before else opened
        buffer.waiters = opened.waiters
        built = build_segment(buffer.base, buffer.batches, buffer.parts, now.wall_ms)
        flight = Flight(buffer, built, InBundle(built, buffer, before), now.wall_ms)
        self._add(flight, now)
        return flight

    def _add(self, flight: Flight, now: Instant) -> None:
        self.flush.sealed(now.mono_ms)
        self.uploads.add(flight)

    def wants(self, room: int, *, committing: bool) -> Want | None:
        """What the open buffer holds for the next bundle; None: nothing, or the pipeline is full. The tail has room for
        `room` entries behind those in a transaction. What is sealed must find a place there: a slice that waits for
        settling keeps its bundle in flight, and with it the partitions of the whole instance."""
        buffer = self.intake.open
        if not buffer.parts or len(self.uploads) >= min(self._limits.pipeline_max, room):
            return None
        hold_ms = self.flush.hold_ms(under_way=committing or len(self.uploads) > 0)
        return Want(buffer.bytes, len(buffer.waiters.items), self.flush.opened_ms, hold_ms)

    def due_ms(self, *, committing: bool) -> int:
        """When time seals the open buffer here. `committing`: flights are in a transaction."""
        if self._limits.bundled:
            return NEVER
        waiting = len(self.uploads)
        requests = len(self.intake.open.waiters.items)
        return self.flush.due_ms(requests, waiting, under_way=committing or waiting > 0)

    def seal_if_due(self, now: Instant, *, committing: bool) -> None:
        if self.due_ms(committing=committing) > now.mono_ms:
            return
        if self.flush.may_seal(now.mono_ms):
            self.seal(now)
        elif self.flush.asks():
            self._actions.append(SealWanted(bytes_waiting=self.intake.open.bytes))
