"""Committed partitions for tests of readers: real segments, indexes, heads and manifests, without a writer.

The builder remembers every byte that it committed, so that a test can check what a reader returns. It writes
as an owner does: first the objects, then the head alone, or head and meta in one transaction.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafscale.log.bundle import BUNDLE_ID_RANDOM_BYTES, Slice, build_bundle, new_bundle_id
from kafscale.log.heads import EpochStart, Head, ManifestRef, Meta, Seg, encode_head, encode_meta
from kafscale.log.isolation import aborted_in
from kafscale.log.manifests import Manifest, decode_manifest, encode_manifest, epoch_starts, ref_to
from kafscale.log.places import place_of
from kafscale.log.segment import FOOTER_SIZE, HEADER_SIZE, BatchInfo, Segment, build_segment, walk_batches
from kafscale.log.transactions import Event, Transactions, events_in, stored_batches
from kafscale.storage.etcd.client import EtcdClient, Put, Txn
from kafscale.storage.keys import META_TOPIC_ID, BundleId, Keyspace, TopicId
from kafscale.storage.objects import Condition, IfAbsent, ObjectStore
from kafscale.storage.slots import slot_of
from kafscale.storage.topics import Topic, encode_topic
from kafscale.storage.transactions import Participants, TransactionState, encode_transaction
from kafscale.wire.markers import Marker, end_marker
from kafscale.wire.records import Codec, Record, build_batch, patch_batch, read_batch_header

EPOCHS_INLINE = 16
_OTHER_MS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedBatch:
    """A batch as readers must find it."""

    base: int
    last: int
    epoch: int
    data: bytes


def records(
    count: int, *, timestamp: int = 1_000, step_ms: int = 1, size: int = 8, label: str = "v"
) -> list[Record]:
    """`count` records with ascending timestamps and values of about `size` bytes, never fewer."""
    return [
        Record(
            timestamp=timestamp + step_ms * n, key=b"k%d" % n, value=f"{label}{n}".encode().ljust(size, b".")
        )
        for n in range(count)
    ]


def transactional(
    producer_id: int, batch: Sequence[Record], *, epoch: int = 0, sequence: int = 0, codec: Codec = Codec.NONE
) -> bytes:
    """A batch of a transaction, as a producer sends it."""
    return build_batch(
        batch,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
        codec=codec,
    )


def marker(producer_id: int, *, commit: bool, epoch: int = 0, timestamp_ms: int = 1_000) -> bytes:
    """The batch that ends the transaction of this producer."""
    return end_marker(
        Marker(commit, 0), producer_id=producer_id, producer_epoch=epoch, timestamp_ms=timestamp_ms
    )


async def create_topic(
    etcd: EtcdClient, keyspace: Keyspace, name: str, *, partitions: int = 1, epoch_floor: int = 0
) -> Topic:
    topic = Topic(
        name=name, topic_id=TopicId(uuid.uuid4().bytes), partitions=partitions, epoch_floor=epoch_floor
    )
    await etcd.put(keyspace.topic(name), encode_topic(topic))
    return topic


class LogBuilder:
    """One partition of one topic. Its head and entries say what its batches begin and end."""

    def __init__(
        self,
        etcd: EtcdClient,
        keyspace: Keyspace,
        store: ObjectStore,
        topic: Topic,
        partition: int = 0,
        *,
        epoch: int = 1,
        as_slices: bool = False,
    ) -> None:
        """`as_slices`: what is appended becomes slices of bundles, until `settle` or `checkpoint`."""
        self._etcd = etcd
        self._keyspace = keyspace
        self._store = store
        self.topic = topic
        self.partition = partition
        self.as_slices = as_slices
        self.head = Head(epoch=epoch, topic=topic.name, owner="0/test")
        self.meta = Meta()
        self.batches: list[CommittedBatch] = []
        self.segments: list[Seg] = []
        self.revision = 0
        self._events: dict[int, list[Event]] = {}  # of what was built, by base offset

    @property
    def next(self) -> int:
        return self.head.next

    def segment_key(self, seg: Seg) -> str:
        return place_of(self._keyspace, self.topic.name, self.partition, seg).key

    def expected(self, first: int, last: int | None = None) -> bytes:
        """The bytes of the batches from the one that holds `first` to the one that holds `last`."""
        last = self.next - 1 if last is None else last
        return b"".join(batch.data for batch in self.batches if batch.last >= first and batch.base <= last)

    async def claim(self, epoch: int) -> None:
        """A new owner; nothing else changes."""
        self.head = replace(self.head, epoch=epoch)
        await self._put_head()

    async def record_open(self) -> None:
        """What is open now is under way by the records of transactional ids, one for each producer."""
        for each in self.head.open:
            name = f"id-{each.producer_id}"
            state = TransactionState(
                id=name,
                producer_id=each.producer_id,
                epoch=each.epoch,
                timeout_ms=60_000,
                number=each.number,
                changed_ms=1_000,
                current=Participants.of((self.topic.topic_id, self.partition)),
            )
            await self._etcd.put(self._keyspace.transaction(slot_of(name), name), encode_transaction(state))

    async def append(self, *batches: Sequence[Record], codec: Codec = Codec.NONE) -> Seg:
        """One segment of these batches, committed."""
        return await self.append_raw([build_batch(batch, codec=codec) for batch in batches])

    async def append_raw(self, batches: Sequence[bytes]) -> Seg:
        """One segment of batches as a producer would send them."""
        seg = await self.upload(batches)
        await self.commit([seg])
        return seg

    async def upload(self, batches: Sequence[bytes], *, base: int | None = None) -> Seg:
        """The objects of one segment, or a bundle with it, not committed yet."""
        segment, seg = self._build(batches, base)
        if self.as_slices:
            return await self._put_slice(segment, seg)
        return await self._put_segment(segment, seg, IfAbsent())

    def _build(self, batches: Sequence[bytes], base: int | None) -> tuple[Segment, Seg]:
        """The segment, and its commit record without etags."""
        offset = base = self.next if base is None else base
        infos: list[BatchInfo] = []
        parts: list[bytes] = []
        headers = []
        for batch in batches:
            header = read_batch_header(batch)
            patched = bytearray(batch)
            patch_batch(patched, offset, self.head.epoch)
            placed = bytes(patched)
            last = offset + header.last_offset_delta
            infos.append(BatchInfo(offset, last, len(placed), header.records_count))
            parts.append(placed)
            headers.append(header)
            self.batches.append(CommittedBatch(base=offset, last=last, epoch=self.head.epoch, data=placed))
            offset = last + 1
        built = build_segment(base, infos, parts, created_ms=1)
        self._events[base] = list(events_in(stored_batches(b"".join(built.body))))
        seg = Seg(
            base=base,
            last_delta=built.last_offset - base,
            size=built.size,
            etag="",
            crc32c=built.crc32c,
            index_size=0,
            index_etag="",
            epoch=self.head.epoch,
            min_ts=min(header.base_timestamp for header in headers),
            max_ts=max(header.max_timestamp for header in headers),
            records=built.records,
            batches=built.batches,
            created_ms=1,
        )
        return built, seg

    async def _put_segment(self, segment: Segment, seg: Seg, condition: Condition) -> Seg:
        keyspace, name = self._keyspace, self.topic.name
        metadata = {META_TOPIC_ID: self.topic.topic_id.hex()}
        key = keyspace.segment_key(name, self.partition, seg.base)
        etag = await self._store.put(key, segment.body, condition=condition, metadata=metadata)
        key = keyspace.index_key(name, self.partition, seg.base)
        index_etag = await self._store.put(key, [segment.index], condition=condition, metadata=metadata)
        return replace(seg, etag=etag, index_size=len(segment.index), index_etag=index_etag)

    async def append_with(self, *others: LogBuilder, batch: Sequence[Record]) -> list[Seg]:
        """One bundle with this batch for each of the logs, committed in one transaction."""
        logs = (self, *others)
        built = [log._build([build_batch(batch)], None) for log in logs]
        slices = [log._slice(segment, seg) for log, (segment, seg) in zip(logs, built, strict=True)]
        bundle = build_bundle(new_bundle_id(0, os.urandom(BUNDLE_ID_RANDOM_BYTES)), slices, created_ms=1)
        etag = await self._store.put(self._keyspace.bundle_key(bundle.id), bundle.body, condition=IfAbsent())
        segs = [
            replace(seg, etag=etag, bundle=bundle.id, position=entry.position)
            for (_, seg), entry in zip(built, bundle.entries, strict=True)
        ]
        puts = []
        for log, seg in zip(logs, segs, strict=True):
            log._extend([seg])
            puts.append(Put(self._keyspace.head(log.topic.topic_id, log.partition), encode_head(log.head)))
        revision = (await self._etcd.txn(Txn(success=tuple(puts)))).revision
        for log in logs:
            log.revision = revision
        return segs

    def _slice(self, segment: Segment, seg: Seg, partition: int | None = None) -> Slice:
        return Slice(
            topic_id=self.topic.topic_id,
            partition=self.partition if partition is None else partition,
            leader_epoch=seg.epoch,
            segment=segment,
            min_ts=seg.min_ts if partition is None else _OTHER_MS,
            max_ts=seg.max_ts if partition is None else _OTHER_MS,
            transactional=partition is None and bool(self._events[seg.base]),
        )

    async def _put_slice(self, segment: Segment, seg: Seg) -> Seg:
        """Behind a slice of another partition, and before one."""
        slices = [
            self._slice(_other(seg.epoch), seg, 1_000),
            self._slice(segment, seg),
            self._slice(_other(seg.epoch), seg, 2_000),
        ]
        bundle = build_bundle(new_bundle_id(0, os.urandom(BUNDLE_ID_RANDOM_BYTES)), slices, created_ms=1)
        key = self._keyspace.bundle_key(bundle.id)
        etag = await self._store.put(key, bundle.body, condition=IfAbsent())
        return replace(seg, etag=etag, bundle=bundle.id, position=bundle.entries[1].position)

    async def settle(self, count: int | None = None) -> None:
        """The first `count` segments of the tail, or all, become objects of their own."""
        tail = self.head.tail
        settled = tuple([await self._settled(seg) for seg in tail[:count]])
        self.segments[len(self.segments) - len(tail) :] = [*settled, *tail[len(settled) :]]
        self.head = replace(self.head, tail=(*settled, *tail[len(settled) :]))
        await self._put_head()

    async def settle_run(self, at: int, count: int) -> Seg:
        """The owner settles `count` slices of the tail, from this one on, into a segment. Their bundles are deleted."""
        run = self.head.tail[at : at + count]
        datas = [
            await place_of(self._keyspace, self.topic.name, self.partition, seg).read(self._store)
            for seg in run
        ]
        infos = [
            BatchInfo(each.offset, each.last_offset, each.size, each.records)
            for data in datas
            for each in walk_batches(data)
        ]
        bodies = [memoryview(data)[HEADER_SIZE:-FOOTER_SIZE] for data in datas]
        segment = build_segment(run[0].base, infos, bodies, created_ms=1)
        seg = replace(
            run[0],
            last_delta=segment.last_offset - run[0].base,
            size=segment.size,
            crc32c=segment.crc32c,
            max_ts=max(each.max_ts for each in run),
            records=segment.records,
            batches=segment.batches,
            aborted=aborted_in(run),
            unstable=run[-1].unstable,
            bundle=b"",
            position=0,
        )
        seg = await self._put_segment(segment, seg, None)
        tail = (*self.head.tail[:at], seg, *self.head.tail[at + count :])
        self.segments[len(self.segments) - len(self.head.tail) :] = tail
        self.head = replace(self.head, tail=tail)
        await self._put_head()
        for each in run:
            await self._store.delete(self._keyspace.bundle_key(BundleId(each.bundle)))
        return seg

    async def _settled(self, seg: Seg) -> Seg:
        if not seg.is_slice:
            return seg
        place = place_of(self._keyspace, self.topic.name, self.partition, seg)
        data = await place.read(self._store)
        infos = [
            BatchInfo(each.offset, each.last_offset, each.size, each.records) for each in walk_batches(data)
        ]
        body = memoryview(data)[HEADER_SIZE:-FOOTER_SIZE]
        segment = build_segment(seg.base, infos, [body], created_ms=1)
        return await self._put_segment(segment, replace(seg, bundle=b"", position=0), None)

    async def commit(self, segs: Sequence[Seg]) -> None:
        """Makes uploaded segments visible, all in one put of the head."""
        self._extend(segs)
        await self._put_head()

    def _extend(self, segs: Sequence[Seg]) -> None:
        epochs = list(self.head.epochs)
        transactions = Transactions(self.head.open)
        events = [self._events[seg.base] for seg in segs]
        segs = [transactions.entry(*each) for each in zip(segs, events, strict=True)]
        for seg in segs:
            if not epochs or epochs[-1].epoch != seg.epoch:
                epochs.append(EpochStart(epoch=seg.epoch, start=seg.base))
        self.segments += segs
        end = segs[-1].end
        self.head = replace(
            self.head,
            next=end,
            lso=transactions.stable_end(end),
            tail=(*self.head.tail, *segs),
            epochs=tuple(epochs[-EPOCHS_INLINE:]),
            bytes=self.head.bytes + sum(seg.size for seg in segs),
            max_ts=max([self.head.max_ts, *(seg.max_ts for seg in segs)]),
            open=transactions.open,
            transactional=self.head.transactional or any(events),
        )

    async def checkpoint(self, *, keep: int = 0, put_meta: bool = True) -> ManifestRef:
        """Moves the tail, except for its newest `keep` segments, into one manifest."""
        at = len(self.head.tail) - keep
        if any(seg.is_slice for seg in self.head.tail[:at]):
            await self.settle(at)
        moved, kept = self.head.tail[:at], self.head.tail[at:]
        manifest = Manifest(segments=moved, epochs=epoch_starts(moved), transactional=self.head.transactional)
        key = self._keyspace.manifest_key(
            self.topic.topic_id, self.partition, moved[0].base, uuid.uuid4().hex
        )
        await self._store.put(key, [encode_manifest(manifest)], condition=IfAbsent())
        ref = ref_to(key, manifest)
        self.meta = replace(self.meta, manifest_end=ref.last + 1, chunks=(*self.meta.chunks, ref))
        self.head = replace(self.head, tail=kept)
        await self._put_both() if put_meta else await self._put_head()
        return ref

    async def retain_from(self, log_start: int, *, delete: bool = True) -> None:
        """Retention: moves the log start, then deletes the objects below it."""
        self.meta = replace(self.meta, log_start=log_start)
        await self._put_both()
        if delete:
            for seg in self.segments:
                if seg.last < log_start:
                    await self._store.delete(self.segment_key(seg))

    async def sweep(self, end: int) -> None:
        """Retention has deleted all objects of the segments that end at or below `end`: removes the chunks that list
        nothing else, with their objects. Their epochs remain."""
        gone = [chunk for chunk in self.meta.chunks if chunk.last < end]
        starts = {start.epoch: start for start in await self._epochs_of(gone)}
        if gone:
            body = encode_manifest(Manifest(segments=(), epochs=tuple(starts.values())))
            key = self._keyspace.manifest_key(self.topic.topic_id, self.partition, 0, uuid.uuid4().hex)
            await self._store.put(key, [body], condition=IfAbsent())
            self.meta = replace(self.meta, epochs_key=key)
        left = tuple(chunk for chunk in self.meta.chunks if chunk not in gone)
        freed = sum(seg.size for seg in self.segments if self.meta.swept < seg.end <= end)
        self.meta = replace(
            self.meta,
            swept=end,
            chunks=left,
            freed=self.meta.freed + freed,
            gc_seq=self.meta.gc_seq + 1,
        )
        await self._put_both()
        for chunk in gone:
            await self._store.delete(chunk.key)

    async def _epochs_of(self, chunks: Sequence[ManifestRef]) -> list[EpochStart]:
        """Newest first; the epochs that were known before come last."""
        keys = [chunk.key for chunk in reversed(chunks)] + [self.meta.epochs_key] * bool(self.meta.epochs_key)
        manifests = [decode_manifest(await self._store.get(key)) for key in keys]
        return [start for manifest in manifests for start in reversed(manifest.epochs)]

    async def remove_objects(self) -> None:
        """Every segment and index that was committed, as after the topic's deletion."""
        for seg in self.segments:
            await self._store.delete(self.segment_key(seg))
            await self._store.delete(self._keyspace.index_key(self.topic.name, self.partition, seg.base))

    async def replace_segment(self, seg: Seg, by: Seg) -> None:
        """Makes the tail name another object for the same offsets, as after a rewrite."""
        self.head = replace(self.head, tail=tuple(by if one == seg else one for one in self.head.tail))
        self.segments = [by if one == seg else one for one in self.segments]
        await self._put_head()

    async def delete_head(self) -> None:
        result = await self._etcd.delete(self._keyspace.head(self.topic.topic_id, self.partition))
        self.revision = result.revision

    async def _put_head(self) -> None:
        key = self._keyspace.head(self.topic.topic_id, self.partition)
        self.revision = (await self._etcd.put(key, encode_head(self.head))).revision

    async def _put_both(self) -> None:
        where = (self.topic.topic_id, self.partition)
        puts = (
            Put(self._keyspace.head(*where), encode_head(self.head)),
            Put(self._keyspace.meta(*where), encode_meta(self.meta)),
        )
        self.revision = (await self._etcd.txn(Txn(success=puts))).revision


def _other(epoch: int) -> Segment:
    record = Record(timestamp=_OTHER_MS, value=b"of another partition")
    batch = build_batch([record], leader_epoch=epoch)
    return build_segment(0, [BatchInfo(0, 0, len(batch), 1)], [batch], created_ms=1)
