"""What etcd keeps of a partition: head and meta, as values and as bytes.

The head is lock, fence, commit record and high watermark in one key: every change of it is a
compare-and-swap on its revision, so the value here is only ever the truth together with the
revision it was read at. Codecs are pure; a value of a newer schema is refused, never guessed at.
A `Seg` keeps its own encoding, because each commit writes the whole tail again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntFlag

from kafscale.storage.schema import SCHEMA, CorruptValue, UnreadableValue, checked_owner, parse_value
from kafscale.store.v1 import store_pb2 as pb

TAIL_MAX = 32
"""Segments listed inline in a head; older ones stand in manifests."""
EPOCHS_MAX = 16
"""Epoch starts inline in a head. Older ones follow from the epochs of the segments in the manifests."""


class HeadFeature(IntFlag):
    """What a head may use that a version without it must refuse. Bits of its schema (`storage.schema`)."""

    SLICES = 1  # its tail has a slice of a bundle
    TRANSACTIONS = 2  # its log has ever had a transaction


HEAD_FEATURES = HeadFeature.SLICES | HeadFeature.TRANSACTIONS
"""Those that this version reads."""

_BUNDLE_ID_BYTES = 16
_CALENDAR_END_MS = 253_402_300_800_000  # the year 10000: no folder has its name

TAIL_TAG = b"\x42"  # field 8 of Head, length-delimited
SEGMENTS_TAG = b"\x12"  # field 2 of Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction with records in the log and without its marker. A producer has at most one in a log."""

    producer_id: int
    epoch: int
    number: int  # of the transactional id, as its coordinator counts
    first: int  # offset of its first record here


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """An aborted transaction's extent, kept with the segment that holds its marker."""

    producer_id: int
    first: int  # offset of its first record
    last: int  # offset of its marker


@dataclass(frozen=True, slots=True, kw_only=True)
class Seg:
    """One committed segment: the exact bytes a reader may serve, named by etag.

    It is an object of its own or, in a tail, a slice of a bundle. `log.places` says where its bytes are.
    """

    base: int
    last_delta: int
    size: int
    etag: str
    crc32c: int
    index_size: int
    index_etag: str
    epoch: int
    min_ts: (
        int  # least timestamp of its records; by older versions and roll-forward, of its batches' first ones
    )
    max_ts: int
    records: int
    batches: int
    created_ms: int
    key: str = ""  # "" = the name that the topic, partition and base give
    aborted: tuple[Aborted, ...] = ()
    delete_horizon_ms: int = 0  # the first of its tombstones may be dropped from then on; 0 = none waits
    bundle: bytes = b""  # the id of the bundle whose slice it is; b"" = an object of its own
    position: int = 0  # of a slice: its first byte in the bundle
    unstable: int = 0  # its end minus the last stable offset that the log had when it ended there
    _wire: bytes = field(default=b"", init=False, repr=False, compare=False)

    @property
    def last(self) -> int:
        return self.base + self.last_delta

    @property
    def end(self) -> int:
        return self.base + self.last_delta + 1

    @property
    def is_slice(self) -> bool:
        return bool(self.bundle)

    def framed(self) -> bytes:
        """Length and bytes, as they stand after the tag of a repeated protobuf field; made once."""
        if not self._wire:
            object.__setattr__(self, "_wire", framed(_seg_to_pb(self)))
        return self._wire


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStart:
    """The offset of the first record committed under a leader epoch."""

    epoch: int
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """`{prefix}/p/{topic_id}/{partition}`."""

    epoch: int
    topic: str
    owner: str = ""  # "{node_id}/{boot_id}", "" when unowned
    handoff_to: str = ""  # node id that may claim at once
    next: int = 0  # high watermark = committed log end
    lso: int = 0  # first unstable offset: the least `first` of `open`, else == next
    attempt: bytes = b""  # of the last commit
    tail: tuple[Seg, ...] = ()  # contiguous; tail[0].base == Meta.manifest_end
    epochs: tuple[EpochStart, ...] = ()  # the newest EPOCHS_MAX
    bytes: int = 0  # of all segments ever committed; Meta.freed says how many of them are gone
    max_ts: int = -1
    snap_offset: int = 0  # the producer snapshot covers the batches below it
    snap_key: str = ""  # its object, "" for none
    open: tuple[OpenTransaction, ...] = ()  # in the order of `first`
    transactional: bool = False  # the log has ever had a transaction; for good


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRef:
    """A manifest object and the offsets it covers."""

    key: str
    first: int
    last: int
    count: int  # segments in it
    level: int = 0  # 0 from a checkpoint, +1 with each merge


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """`{prefix}/m/{topic_id}/{partition}`."""

    log_start: int = 0
    manifest_end: int = 0  # first offset that no manifest covers
    chunks: tuple[ManifestRef, ...] = ()
    gc_seq: int = 0
    swept: int = 0  # objects of segments that end at or below it are deleted
    epochs_key: str = ""  # a manifest without segments: the epochs of chunks that are gone; "" for none
    freed: int = 0  # bytes of committed segments that retention or compaction did away with


def features_of(head: Head) -> HeadFeature:
    slices = HeadFeature.SLICES if any(seg.is_slice for seg in head.tail) else HeadFeature(0)
    return slices | HeadFeature.TRANSACTIONS if head.transactional else slices


def encode_head(head: Head) -> bytes:
    assert head.transactional or not head.open, "a version without transactions would read it"
    message = pb.Head(
        schema=SCHEMA + features_of(head),
        epoch=head.epoch,
        owner=head.owner,
        handoff_to=head.handoff_to,
        next=head.next,
        lso=head.lso,
        attempt=head.attempt,
        bytes=head.bytes,
        max_ts=head.max_ts,
        snap_offset=head.snap_offset,
        snap_key=head.snap_key,
        topic=head.topic,
    )
    for start in head.epochs:
        message.epochs.add(epoch=start.epoch, start=start.start)
    message.open.extend(map(open_to_pb, head.open))
    return message.SerializeToString() + encode_segs(head.tail, TAIL_TAG)


def decode_head(data: bytes, before: Head | None = None) -> Head:
    """`before`: another value of the same key. Segments in both are not built again: a commit adds one
    to two dozen, and a reader of every commit would pay for all of them each time."""
    message = pb.Head()
    parse_value(message, data, "head", HEAD_FEATURES)
    checked_owner("head", message.owner, message.handoff_to)
    known = {seg.base: seg for seg in before.tail} if before is not None else {}
    return Head(
        epoch=message.epoch,
        topic=message.topic,
        owner=message.owner,
        handoff_to=message.handoff_to,
        next=message.next,
        lso=message.lso,
        attempt=message.attempt,
        tail=tuple([_known_or_new(seg, known.get(seg.base)) for seg in message.tail]),
        epochs=tuple(EpochStart(epoch=start.epoch, start=start.start) for start in message.epochs),
        bytes=message.bytes,
        max_ts=message.max_ts,
        snap_offset=message.snap_offset,
        snap_key=message.snap_key,
        open=tuple(map(open_from_pb, message.open)),
        transactional=bool(message.schema - SCHEMA & HeadFeature.TRANSACTIONS),
    )


def open_to_pb(each: OpenTransaction) -> pb.OpenTransaction:
    return pb.OpenTransaction(
        producer_id=each.producer_id, epoch=each.epoch, number=each.number, first=each.first
    )


def open_from_pb(message: pb.OpenTransaction) -> OpenTransaction:
    return OpenTransaction(
        producer_id=message.producer_id, epoch=message.epoch, number=message.number, first=message.first
    )


def is_bundle_id(value: bytes) -> bool:
    """Whether a bundle can have this id: its first six bytes are milliseconds since 1970."""
    return len(value) == _BUNDLE_ID_BYTES and int.from_bytes(value[:6], "big") < _CALENDAR_END_MS


def _known_or_new(message: pb.Seg, known: Seg | None) -> Seg:
    wire = framed(message)
    if known is not None and known.framed() == wire:
        return known
    if message.bundle and not is_bundle_id(message.bundle):
        raise UnreadableValue(f"head: {message.bundle.hex()} is no id of a bundle")
    seg = seg_from_pb(message)
    object.__setattr__(seg, "_wire", wire)
    return seg


def encode_meta(meta: Meta) -> bytes:
    message = pb.Meta(
        schema=SCHEMA,
        log_start=meta.log_start,
        manifest_end=meta.manifest_end,
        gc_seq=meta.gc_seq,
        swept=meta.swept,
        epochs_key=meta.epochs_key,
        freed=meta.freed,
    )
    for chunk in meta.chunks:
        message.chunks.add(
            key=chunk.key, first=chunk.first, last=chunk.last, count=chunk.count, level=chunk.level
        )
    return message.SerializeToString()


def decode_meta(data: bytes) -> Meta:
    message = pb.Meta()
    parse_value(message, data, "meta")
    return Meta(
        log_start=message.log_start,
        manifest_end=message.manifest_end,
        chunks=tuple(
            ManifestRef(key=c.key, first=c.first, last=c.last, count=c.count, level=c.level)
            for c in message.chunks
        ),
        gc_seq=message.gc_seq,
        swept=message.swept,
        epochs_key=message.epochs_key,
        freed=message.freed,
    )


def check_meta(tail: Sequence[Seg], meta: Meta) -> None:
    """Raises CorruptValue for a meta that does not fit the tail of its head, both at one revision: a meta that is lost,
    or an old one that was restored. It lists too little. A checkpoint on top of it would lose the rest for good, and
    a collection of orphans would delete it."""
    if tail and tail[0].base != meta.manifest_end:
        raise CorruptValue("meta", f"it ends at {meta.manifest_end}, the head begins at {tail[0].base}")


def settled_end(tail: Sequence[Seg], high_watermark: int) -> int:
    """Below it no name of a segment is written any more: the owner gives slices such names, from the first one on."""
    return next((seg.base for seg in tail if seg.is_slice), high_watermark)


def encode_segs(segs: Sequence[Seg], tag: bytes) -> bytes:
    """A repeated protobuf field from encodings that exist already."""
    if not segs:
        return b""
    return tag + tag.join([seg.framed() for seg in segs])


def _uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _seg_to_pb(seg: Seg) -> pb.Seg:
    message = pb.Seg(
        base=seg.base,
        last_delta=seg.last_delta,
        size=seg.size,
        etag=seg.etag,
        crc32c=seg.crc32c,
        index_size=seg.index_size,
        index_etag=seg.index_etag,
        epoch=seg.epoch,
        min_ts=seg.min_ts,
        max_ts=seg.max_ts,
        records=seg.records,
        batches=seg.batches,
        key=seg.key,
        created=seg.created_ms,
        delete_horizon=seg.delete_horizon_ms,
        bundle=seg.bundle,
        position=seg.position,
        unstable=seg.unstable,
    )
    for aborted in seg.aborted:
        message.aborted.add(producer_id=aborted.producer_id, first=aborted.first, last=aborted.last)
    return message


def framed(message: pb.Seg) -> bytes:
    """As `Seg.framed`."""
    body = message.SerializeToString(deterministic=True)
    return _uvarint(len(body)) + body


def seg_from_pb(message: pb.Seg) -> Seg:
    return Seg(
        base=message.base,
        last_delta=message.last_delta,
        size=message.size,
        etag=message.etag,
        crc32c=message.crc32c,
        index_size=message.index_size,
        index_etag=message.index_etag,
        epoch=message.epoch,
        min_ts=message.min_ts,
        max_ts=message.max_ts,
        records=message.records,
        batches=message.batches,
        created_ms=message.created,
        key=message.key,
        aborted=tuple(
            Aborted(producer_id=a.producer_id, first=a.first, last=a.last) for a in message.aborted
        ),
        delete_horizon_ms=message.delete_horizon,
        bundle=message.bundle,
        position=message.position,
        unstable=message.unstable,
    )
