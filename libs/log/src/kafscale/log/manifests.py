"""Manifests: immutable lists of the segments that left a head's tail.

Names are unique (a uuid each), so a manifest is never written twice and any that `Meta` refers to
is exactly what its writer uploaded. `Meta.chunks` is contiguous and in offset order; merging keeps
it short: `MERGE_WIDTH` chunks of one level become one of the next. Chunks whose records retention let go leave
the list; the epochs that they listed are in a manifest without segments, `Meta.epochs_key`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import IntFlag

from google.protobuf.message import DecodeError
from kafscale.log.heads import SEGMENTS_TAG, EpochStart, ManifestRef, Seg, encode_segs, framed, seg_from_pb
from kafscale.storage.schema import SCHEMA, CorruptValue, parse_value, require_schema
from kafscale.store.v1 import store_pb2 as pb


class ManifestFeature(IntFlag):
    """What a manifest may use that a version without it must refuse. Bits of its schema (`storage.schema`)."""

    TRANSACTIONS = 1  # its log has ever had a transaction


MANIFEST_FEATURES = ManifestFeature.TRANSACTIONS
"""Those that this version reads."""

CHUNKS_MAX = 64
MERGE_WIDTH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    segments: tuple[Seg, ...]
    epochs: tuple[EpochStart, ...] = ()  # first offset of each epoch here; its start is the least of all
    transactional: bool = False  # its log has ever had a transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """Chunks `[first:first + count]` of the list are to become one of `level`."""

    first: int
    count: int
    level: int


def encode_manifest(manifest: Manifest) -> bytes:
    assert not any(seg.is_slice for seg in manifest.segments), "only the tail of a head names slices"
    features = MANIFEST_FEATURES if manifest.transactional else 0
    message = pb.Manifest(schema=SCHEMA + features)
    for start in manifest.epochs:
        message.epochs.add(epoch=start.epoch, start=start.start)
    return message.SerializeToString() + encode_segs(manifest.segments, SEGMENTS_TAG)


def decode_manifest(data: bytes) -> Manifest:
    """Raises CorruptValue when the segments are not contiguous: a reader must not skip over a hole."""
    message = pb.Manifest()
    parse_value(message, data, "manifest", MANIFEST_FEATURES)
    segments = tuple(seg_from_pb(seg) for seg in message.segments)
    for before, after in zip(segments, segments[1:], strict=False):
        if after.base != before.end:
            raise CorruptValue("manifest", f"segment {after.base} does not follow {before.last}")
    return Manifest(
        segments=segments,
        epochs=tuple(EpochStart(epoch=s.epoch, start=s.start) for s in message.epochs),
        transactional=bool(message.schema - SCHEMA & ManifestFeature.TRANSACTIONS),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Of the segments of a manifest. `created_ms`: of the newest commit, 0 without any."""

    count: int = 0
    bytes: int = 0
    created_ms: int = 0

    def plus(self, other: Digest) -> Digest:
        return Digest(
            count=self.count + other.count,
            bytes=self.bytes + other.bytes,
            created_ms=max(self.created_ms, other.created_ms),
        )


Line = pb.Seg
"""A segment as a manifest has it. To build a `Seg` takes many times as long, and most segments are only skipped."""


def seg_of(line: Line) -> Seg:
    return seg_from_pb(line)


class ManifestPart:
    """The segments of a manifest that one block contains. Each is built when it is asked for, because it is large."""

    def __init__(self, message: pb.Manifest) -> None:
        self._message = message

    @property
    def epochs(self) -> tuple[EpochStart, ...]:
        """All of the manifest's, in its first part."""
        return tuple(EpochStart(epoch=each.epoch, start=each.start) for each in self._message.epochs)

    def segments(self, first: int = 0) -> Iterator[Seg]:
        """Those that end behind `first`."""
        return (seg_from_pb(seg) for seg in self.lines(first))

    def lines(self, first: int = 0) -> Iterator[Line]:
        """The same, not built."""
        return (seg for seg in self._message.segments if seg.base + seg.last_delta >= first)

    def digest(self) -> Digest:
        segments = self._message.segments
        return Digest(
            count=len(segments),
            bytes=sum([seg.size for seg in segments]),
            created_ms=max([seg.created for seg in segments], default=0),
        )


class ManifestParts:
    """Decodes a manifest that comes in blocks of any size, so that it need not fit into memory."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False
        self._end: int | None = None

    def feed(self, block: bytes, *, last: bool) -> ManifestPart:
        """What is whole by now. Raises CorruptValue as `decode_manifest` does, and UnknownSchema."""
        data = self._rest + block
        size = _whole_fields(data)
        self._rest = data[size:]
        if last and self._rest:
            raise CorruptValue("manifest", "it is cut short")
        message = pb.Manifest()
        try:
            message.ParseFromString(data[:size])
        except DecodeError as error:
            raise CorruptValue("manifest", str(error)) from error
        if not self._begun and (size or last):
            require_schema("this manifest", message.schema, MANIFEST_FEATURES)
            self._begun = True
        for seg in message.segments:
            if self._end is not None and seg.base != self._end:
                raise CorruptValue("manifest", f"segment {seg.base} does not follow {self._end - 1}")
            self._end = seg.base + seg.last_delta + 1
        return ManifestPart(message)


class ManifestDraft:
    """A manifest that is made of segments as they come, in the log's order. Of each only its bytes are kept.

    `transactional`: whether the log has ever had a transaction.
    """

    def __init__(self, *, transactional: bool) -> None:
        self._transactional = transactional
        self._body = bytearray()
        self._epochs: list[EpochStart] = []
        self.first = 0
        self._last = -1
        self.count = 0

    def add(self, seg: Seg | Line) -> None:
        if not self._epochs or seg.epoch != self._epochs[-1].epoch:
            self._epochs.append(EpochStart(epoch=seg.epoch, start=seg.base))
        if not self.count:
            self.first = seg.base
        self._last = seg.base + seg.last_delta
        self.count += 1
        self._body += SEGMENTS_TAG
        self._body += seg.framed() if isinstance(seg, Seg) else framed(seg)

    def parts(self) -> tuple[bytes, bytearray]:
        """What `encode_manifest` gives, in two."""
        head = Manifest(segments=(), epochs=tuple(self._epochs), transactional=self._transactional)
        return encode_manifest(head), self._body

    def ref(self, key: str, level: int) -> ManifestRef:
        return ManifestRef(key=key, first=self.first, last=self._last, count=self.count, level=level)


_VARINT, _BYTES = 0, 2
"""The kinds of fields that a manifest has."""
_SEGMENT = SEGMENTS_TAG[0]


def _whole_fields(data: bytes) -> int:
    """The length of the fields at the beginning that are there to their end."""
    at = 0
    while True:
        # Segments are nearly all that there is, and the length of each has one byte, or two.
        while at + 2 < len(data) and data[at] == _SEGMENT and (data[at + 1] < 0x80 or data[at + 2] < 0x80):
            size = data[at + 1]
            after = at + 2 + size if size < 0x80 else at + 3 + (size & 0x7F | data[at + 2] << 7)
            if after > len(data):
                return at
            at = after
        tag, body = _varint(data, at)
        if body is None:
            return at
        value, end = _varint(data, body)
        if end is None:
            return at
        if tag & 7 == _BYTES:
            end += value
        elif tag & 7 != _VARINT:
            raise CorruptValue("manifest", f"a field of kind {tag & 7}")
        if end > len(data):
            return at
        at = end


def _varint(data: bytes, at: int) -> tuple[int, int | None]:
    """The number and where it ends. None: it is not there to its end."""
    value = shift = 0
    for place in range(at, min(at + 10, len(data))):
        byte = data[place]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place + 1
        shift += 7
    if len(data) >= at + 10:
        raise CorruptValue("manifest", "a number without end")
    return 0, None


def epoch_starts(segments: Sequence[Seg]) -> tuple[EpochStart, ...]:
    """The first offset of each epoch within `segments`."""
    starts: list[EpochStart] = []
    for seg in segments:
        if not starts or seg.epoch != starts[-1].epoch:
            starts.append(EpochStart(epoch=seg.epoch, start=seg.base))
    return tuple(starts)


def ref_to(key: str, manifest: Manifest, level: int = 0) -> ManifestRef:
    first, last = manifest.segments[0], manifest.segments[-1]
    return ManifestRef(key=key, first=first.base, last=last.last, count=len(manifest.segments), level=level)


def epochs_ref(key: str) -> ManifestRef:
    """To a manifest that lists no segments, only epochs of which no record is left: it covers no offset."""
    return ManifestRef(key=key, first=0, last=-1, count=0)


def merged(manifests: Sequence[Manifest]) -> Manifest:
    """One manifest of several neighbours, oldest first."""
    segments = tuple(seg for manifest in manifests for seg in manifest.segments)
    return Manifest(
        segments=segments,
        epochs=epoch_starts(segments),
        transactional=any(manifest.transactional for manifest in manifests),
    )


def plan_merge(chunks: Sequence[ManifestRef], apart: Collection[str] = ()) -> MergePlan | None:
    """The first run of `MERGE_WIDTH` neighbours of one level, or None when nothing need merge.

    Levels never rise along the list, as merging always takes the oldest of a level; so runs of at
    most MERGE_WIDTH - 1 per level remain and the list stays under CHUNKS_MAX for 32^2 chunks and
    more. Past that bound the lowest levels are merged early.

    `apart`: keys of chunks that could not be merged. The list is merged around them, so each run that is set apart
    costs MERGE_WIDTH refs, and what lies before it keeps at most CHUNKS_MAX.
    """
    run = loose = 0
    for position, chunk in enumerate(chunks):
        if chunk.key in apart:
            run = loose = 0
            continue
        loose += 1
        run = run + 1 if run and chunks[position - 1].level == chunk.level else 1
        if run == MERGE_WIDTH:
            return MergePlan(first=position - run + 1, count=run, level=chunk.level + 1)
    if loose < CHUNKS_MAX:
        return None
    return _early_merge(chunks)


def _early_merge(chunks: Sequence[ManifestRef]) -> MergePlan:
    """The list is full without a complete run: merge its newest chunks up to the level before them."""
    first = len(chunks) - MERGE_WIDTH
    return MergePlan(first=first, count=MERGE_WIDTH, level=max(c.level for c in chunks[first:]))
