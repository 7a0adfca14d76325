"""etcd goes back to an earlier state while instances and deleters work on (`storage.history`, abstracted to one bit).

From then on no transaction is applied, no head is read as proof of anything, and no deletion is sent; deletions that
were on their way still arrive. The law: each record that was committed is in an object, so a roll-forward finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from deletion_world import DeletionWorld, SweepRun
from kafscale.log.bundle import SliceEntry, parse_bundle
from kafscale.log.heads import decode_head, encode_head
from kafscale.log.segment import walk_batches
from kafscale.storage.keys import BundleId
from kafscale.testkit.models import ModelValue
from kafscale.wire.records import records_in
from writer_clients import ensure
from writer_truth import KEYS

ARRIVING = ("bundle", "delete", "sweep")
"""Requests to the store."""


class LossWorld(DeletionWorld):
    """`verified` is what a flaw overrides."""

    def __init__(self, instances: int = 3, partitions: int = 4) -> None:
        super().__init__(instances, partitions)
        self.went_back = False
        self._snapshot: list[dict[bytes, ModelValue]] = []

    def take_snapshot(self) -> None:
        self._snapshot = [dict(part.etcd.values) for part in self.parts]

    def go_back(self) -> None:
        self.went_back = True
        for part, values in zip(self.parts, self._snapshot, strict=True):
            part.etcd.values = dict(values)
            part.network.clear()  # they are sent again and again, and never applied
        self.network = [each for each in self.network if each.what in ARRIVING]
        self._run = None

    def verified(self) -> bool:
        """Whether a deleter goes on."""
        return not self.went_back

    def ask(self, instance: int) -> None:
        if self.verified():
            super().ask(instance)

    def delete(self, instance: int) -> None:
        if self.verified():
            super().delete(instance)

    def sweep(self) -> None:
        if self.verified():
            super().sweep()

    def bump(self, run: SweepRun, entry: SliceEntry) -> None:
        """In an etcd that went back: what is true of the log is not compared with its heads any more."""
        if not self.went_back:
            super().bump(run, entry)
            return
        part = next(part for part in self.parts if part.has(entry.topic_id))
        key = part.head_key(part.truth_of(entry.topic_id))
        stored = part.etcd.get(key)
        if stored is not None:
            head = decode_head(stored.value)
            released = replace(head, epoch=head.epoch + 1, owner="")
            part.etcd.txn({key: stored.mod_revision}, {key: encode_head(released)})
            self.bumped(run, entry, released)

    def _deleted(self, bundle_id: BundleId) -> None:
        if self.went_back:
            self.s3.delete(KEYS.bundle_key(bundle_id), None)
        else:
            super()._deleted(bundle_id)

    def keeps_all(self) -> None:
        stored = set(self._copies())
        for part in self.parts:
            lost = [value for value in part.truth.values[part.truth.log_start :] if value not in stored]
            ensure(not part.truth.alive or not lost, f"the only copy of {lost} is gone")

    def _copies(self) -> Iterator[bytes]:
        for there in self.s3.objects.values():
            for entry in parse_bundle(there.body).entries:
                yield from _values(there.body[entry.position : entry.end])
        for part in self.parts:
            for key, there in part.s3.objects.items():
                if key.endswith(".kfs"):
                    yield from _values(there.body)


class Unverified(LossWorld):
    """Deleters do not look whether etcd went back."""

    def verified(self) -> bool:
        return True


def _values(segment: bytes) -> Iterator[bytes]:
    for span in walk_batches(segment):
        for record in records_in(segment[span.position : span.position + span.size]):
            yield record.value or b""


def moves_after(world: LossWorld, pick: Callable[[int], int]) -> Iterator[Callable[[], object]]:
    """What still happens when etcd went back."""
    yield lambda: world.tick(2_000)
    yield lambda: world.ask(pick(world.instances))
    yield lambda: world.delete(pick(world.instances))
    yield world.sweep
    yield lambda: world.deliver(pick(len(world.network))) if world.network else None
