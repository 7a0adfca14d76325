"""What is really in the log of one topic incarnation, read from the model stores alone.

Every change of a head and every change of an object is checked here as it happens: the laws of the
commit protocol are these assertions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kafscale.log.heads import EPOCHS_MAX, TAIL_MAX, Head, Meta, Seg
from kafscale.log.manifests import decode_manifest
from kafscale.log.places import place_of
from kafscale.log.segment import BatchSpan, find_position, parse_index, verify_segment, walk_batches
from kafscale.log.snapshots import ProducerSnapshot, decode_snapshot
from kafscale.produce.log.producers import ProducerTable, SnapshotWork
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.testkit.models import ModelS3
from kafscale.wire.markers import Marker, marker_of
from kafscale.wire.records import BatchHeader, read_batch_header, records_in
from transaction_truth import TransactionTruth
from writer_clients import Violation, ensure

TOPIC = "t"
KEYS = Keyspace()


@dataclass(slots=True)
class Truth:
    """The committed log of one incarnation of the topic."""

    topic_id: TopicId
    s3: ModelS3
    alive: bool = True
    values: list[bytes] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    places: dict[bytes, list[int]] = field(default_factory=dict)
    headers: list[tuple[BatchHeader, Marker | None]] = field(default_factory=list)
    transactions: TransactionTruth = field(default_factory=TransactionTruth)
    etags: dict[str, str] = field(default_factory=dict)
    bases: set[int] = field(default_factory=set)
    failed: set[bytes] = field(default_factory=set)
    log_start: int = 0

    def head_changed(self, old: Head | None, new: Head) -> None:
        """etcd applied a transaction on the head."""
        before = old or Head(epoch=0, topic=TOPIC)
        ensure(new.next >= before.next, "next went back")
        ensure(new.epoch >= before.epoch, "the head's epoch went back")
        ensure(len(new.tail) <= TAIL_MAX, "the tail is longer than its bound")
        for seg in new.tail:
            if seg.base >= before.next:
                ensure(seg.base == len(self.values), f"segment {seg.base} does not follow {len(self.values)}")
                self._commit(seg, new)
            elif seg.end > before.next:
                self._folded(seg, before)
            elif seg not in before.tail:
                self._rewritten(seg, before)
        ensure(new.bytes - before.bytes == _sizes(new, before), "the head counts other bytes than it names")
        ensure(new.next == len(self.values), f"next is {new.next} with {len(self.values)} records committed")
        position = new.tail[0].base if new.tail else new.next
        for seg in new.tail:
            ensure(seg.base == position, "the tail has a hole")
            position = seg.end
        ensure(position == new.next, "the tail does not end at next")
        self.transactions.head_changed(before, new)
        self._check_history(new)

    def _commit(self, seg: Seg, head: Head) -> None:
        ensure(seg.epoch == head.epoch, "a commit names a segment of another epoch")
        body = self._checked(seg)
        self.bases.add(seg.base)
        self._append(seg, body, seg.base)

    def _folded(self, seg: Seg, before: Head) -> None:
        """An entry that repeats the last ones and takes their places, with new records behind theirs."""
        ensure(seg.is_slice, "a segment of its own repeats slices")
        replaced = [each for each in before.tail if each.base >= seg.base]
        ensure(replaced[0].base == seg.base, "a fold begins inside a slice")
        ensure(all(each.is_slice and each.epoch == seg.epoch for each in replaced), "a fold of other entries")
        body = self._checked(seg)
        held = self._records(body, below=before.next)
        ensure(held == self.values[seg.base :], "a fold has other records than the slices that it repeats")
        self._append(seg, body, before.next)

    @staticmethod
    def _records(body: bytes, below: int = 1 << 62) -> list[bytes]:
        return [
            value for span in walk_batches(body) if span.offset < below for value in values_in(body, span)
        ]

    def _append(self, seg: Seg, body: bytes, first: int) -> None:
        """The batches from this offset on are new."""
        for span in walk_batches(body):
            if span.offset < first:
                continue
            ensure(span.offset == len(self.values), "a batch does not stand at its offset")
            ensure(span.leader_epoch == seg.epoch, "a batch carries another leader epoch")
            batch = body[span.position : span.position + span.size]
            header = read_batch_header(batch)
            marker = marker_of(batch, header) if header.is_control else None
            self.headers.append((header, marker))
            values = values_in(body, span)
            self.transactions.appended(header, marker, values[0])
            for value in values:
                self._add(value, seg.epoch)

    def _rewritten(self, seg: Seg, before: Head) -> None:
        """An entry that takes the place of others: it has their records, and is a segment of its own. It is as old as
        the newest of them."""
        ensure(not seg.is_slice, "a slice takes the place of others")
        replaced = [each for each in before.tail if seg.base <= each.base < seg.end]
        ensure(seg.created_ms == max(each.created_ms for each in replaced), "settling changed an age")
        body = self._checked(seg)
        held = self._records(body)
        ensure(held == self.values[seg.base : seg.end], "a settled segment has other records than its slices")
        ensure(set(self.epochs[seg.base : seg.end]) == {seg.epoch}, "a settled segment is of several epochs")

    def _checked(self, seg: Seg) -> bytes:
        """The bytes that an entry names. From now on they must stay."""
        place = place_of(KEYS, TOPIC, 0, seg)
        self.etags[place.key] = seg.etag
        self.object_changed(place.key)
        body = self.s3.objects[place.key].body[place.start : place.end]
        if not seg.is_slice:
            name = KEYS.index_key(TOPIC, 0, seg.base)
            self.etags[name] = seg.index_etag
            self.object_changed(name)
            self._check_index(body, self.s3.objects[name].body)
        verified = verify_segment(body)
        ensure(
            verified.footer.crc32c == seg.crc32c and len(body) == seg.size, "the commit misnames the bytes"
        )
        ensure(verified.footer.last_offset == seg.last, "the commit misnames the last offset")
        times = [
            record.timestamp
            for span in walk_batches(body)
            for record in records_in(body[span.position : span.position + span.size])
        ]
        ensure(seg.min_ts == min(times), "the commit misnames the first time")
        ensure(seg.max_ts == max(times), "the commit misnames the last time")
        ensure(verified.header.created_ms == seg.created_ms, "the commit misnames the time of its seal")
        return body

    def _add(self, value: bytes, epoch: int) -> None:
        ensure(value not in self.failed, f"{value!r} was called failed and is visible")
        places = self.places.setdefault(value, [])
        ensure(not places or value.startswith(MARKER), f"{value!r} is in the log twice")
        ensure(not self.epochs or self.epochs[-1] <= epoch, "epochs fall along the log")
        places.append(len(self.values))
        self.values.append(value)
        self.epochs.append(epoch)
        if value.startswith(b"i"):
            producer, _, seq = value.partition(b"-")
            before = producer + b"-" + str(int(seq) - 1).encode()
            ensure(int(seq) == 0 or before in self.places, f"{value!r} came before {before!r}")

    @staticmethod
    def _check_index(body: bytes, raw: bytes) -> None:
        index = parse_index(raw)
        starts = {span.position: span.offset for span in walk_batches(body)}
        for offset in index.offsets:
            ensure(starts.get(find_position(index, offset)) == offset, "the index points beside a batch")

    def _check_history(self, head: Head) -> None:
        starts: list[tuple[int, int]] = []
        for offset, epoch in enumerate(self.epochs):
            if not starts or starts[-1][0] != epoch:
                starts.append((epoch, offset))
        ensure(
            [(start.epoch, start.start) for start in head.epochs] == starts[-EPOCHS_MAX:],
            "the epoch history is not the log's",
        )

    def object_changed(self, key: str) -> None:
        """S3 did something to an object: a committed one must be untouched."""
        if not self.alive or key not in self.etags:
            return
        there = self.s3.objects.get(key)
        ensure(there is not None, f"committed object {key} is gone")
        assert there is not None
        ensure(there.etag == self.etags[key], f"committed object {key} has other bytes")

    def checkpointed(self, head: Head, meta: Meta) -> None:
        position = 0
        for chunk in meta.chunks:
            ensure(chunk.first == position, "the manifests have a hole")
            position = chunk.last + 1
        ensure(meta.log_start == self.log_start, "a checkpoint moved the log start")
        ensure(position == meta.manifest_end, "meta does not end where its manifests do")
        ensure((head.tail[0].base if head.tail else head.next) == position, "tail and manifests do not meet")
        for chunk in meta.chunks[-1:]:
            manifest = decode_manifest(self.s3.objects[chunk.key].body)
            ensure(
                head.transactional or not manifest.transactional,
                "a plain log has a manifest of another schema",
            )
            # A plan may be older than the first transaction, so the manifest of a transactional log may be plain.
            told = any(seg.aborted or seg.unstable for seg in manifest.segments)
            ensure(manifest.transactional or not told, "an older version could read what transactions did")
            self.transactions.entries_are(manifest.segments)

    def acknowledged(self, base: int, values: list[bytes]) -> None:
        if self.alive:
            there = self.values[base : base + len(values)]
            ensure(there == values, f"acknowledged {values} at {base}, where {there} stand")

    def was_failed(self, values: set[bytes]) -> None:
        self.failed |= values
        for value in values:
            ensure(value not in self.places, f"{value!r} was called failed and is visible")

    def producers_are(self, table: ProducerTable) -> None:
        """A recovered table is the one that the whole log gives."""
        whole = ProducerTable()
        whole.replay(self.headers, 0)
        mine, theirs = (_newest(taken(t, len(self.values))) for t in (whole, table))
        if mine != theirs:
            raise Violation(f"recovered {theirs}, the log says {mine}")


MARKER = b"marker "


def values_in(body: bytes, span: BatchSpan) -> list[bytes]:
    """Of the records of one batch. A marker's is what `marker_value` makes."""
    batch = body[span.position : span.position + span.size]
    header = read_batch_header(batch)
    if header.is_control:
        marker = marker_of(batch, header)
        assert marker is not None
        return [marker_value(header.producer_id, marker)]
    return [record.value or b"" for record in records_in(batch)]


def marker_value(producer_id: int, marker: Marker) -> bytes:
    outcome = "commit" if marker.commit else "abort"
    return MARKER + f"{producer_id} {marker.coordinator_epoch} {outcome}".encode()


def _sizes(new: Head, before: Head) -> int:
    """What came into the tail, without what it replaced. What a checkpoint takes stays in the log."""
    came = sum(seg.size for seg in new.tail if seg not in before.tail)
    settled_to = new.tail[0].base if new.tail else new.next
    gone = [seg for seg in before.tail if seg not in new.tail and seg.base >= settled_to]
    return came - sum(seg.size for seg in gone)


def taken(table: ProducerTable, below: int, wall_ms: int = 0) -> ProducerSnapshot:
    """What a snapshot of this table holds, read back from its bytes; it is not made durable."""
    work = table.begin_snapshot(below, wall_ms)
    snapshot = read_back(work)
    table.abandon(work)
    return snapshot


def read_back(work: SnapshotWork) -> ProducerSnapshot:
    for _ in work.steps():
        pass
    data = work.data()
    return ProducerSnapshot(offset=work.offset) if data is None else decode_snapshot(data)


def settled(run: Sequence[Seg]) -> Seg:
    """The entry that takes the place of these, for tests without objects."""
    last = run[-1]
    return replace(
        run[0],
        last_delta=last.last - run[0].base,
        bundle=b"",
        index_size=28,
        index_etag="i",
        created_ms=last.created_ms,
    )


def _newest(snapshot: ProducerSnapshot) -> object:
    return {
        entry.producer_id: (entry.epoch, entry.batches, entry.coordinator_epoch)
        for entry in snapshot.producers
    }
