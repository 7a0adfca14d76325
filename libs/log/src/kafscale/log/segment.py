"""The bytes of a segment file and of its index: built, read and verified. Pure; every integer is big-endian.

A `.kfs` file is a 32-byte header, record batches exactly as Kafka's clients see them, and a 16-byte footer.
An `.index` file is a 16-byte header and 12-byte entries. Lengths are implied by the object's size. Files may be torn,
foreign or corrupt, so every length is checked before it is used.

A builder copies no record: the caller's buffers go into the body as they are, and the checksum is chained over them.

The index is sparse. It says where in the `.kfs` file the batch of an offset, or a batch shortly before it, starts. Its
entries are at batch boundaries: the first batch, then each first batch that starts INDEX_INTERVAL or more messages
after the last entry. Offsets and positions rise strictly; the first position is 32.
"""

import bisect
import enum
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from kafscale.wire.batches import crc32c

Buffer: TypeAlias = bytes | bytearray | memoryview

SEGMENT_MAGIC: Final = b"KAFS"
FOOTER_MAGIC: Final = b"END!"
INDEX_MAGIC: Final = b"IDX\x00"
FORMAT_VERSION: Final = 1

HEADER: Final = struct.Struct(
    ">4sHHqIqI"
)  # magic, version, flags, base offset, messages, created ms, reserved
FOOTER: Final = struct.Struct(">Iq4s")  # CRC-32C of the batches, last offset, magic
INDEX_HEADER: Final = struct.Struct(">4sHIIH")  # magic, version, entries, interval, reserved
INDEX_ENTRY: Final = struct.Struct(">qI")  # offset, position in the .kfs file
BATCH_HEAD: Final = struct.Struct(
    ">qiibIhi"
)  # base offset, length, leader epoch, magic, CRC, attributes, last delta
BATCH_RECORDS: Final = struct.Struct(">i")

HEADER_SIZE: Final = HEADER.size
FOOTER_SIZE: Final = FOOTER.size
INDEX_HEADER_SIZE: Final = INDEX_HEADER.size
INDEX_ENTRY_SIZE: Final = INDEX_ENTRY.size
BATCH_HEADER_SIZE: Final = 61
BATCH_PREFIX_SIZE: Final = 12  # base offset and length; the length does not include them
BATCH_RECORDS_AT: Final = 57
INDEX_INTERVAL: Final = 100
POSITION_MAX: Final = (1 << 32) - 1


class Fault(enum.Enum):
    """What is wrong with the bytes."""

    TOO_SHORT = "too short"
    MAGIC = "wrong magic"
    VERSION = "unknown version"
    FLAGS = "unknown flags"
    COUNT = "counts disagree"
    OFFSET = "offsets disagree"
    LENGTH = "length runs past the end"
    CHECKSUM = "checksum does not match"
    POSITION = "position outside the file"


class SegmentError(ValueError):
    """Bytes that are not a segment or index: the fault, its position, the expected and the found value."""

    def __init__(self, fault: Fault, *, position: int, expected: object, found: object) -> None:
        super().__init__(f"{fault.value} at byte {position}: expected {expected!r}, found {found!r}")
        self.fault = fault
        self.position = position
        self.expected = expected
        self.found = found


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentHeader:
    """The first 32 bytes."""

    base_offset: int
    message_count: int
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFooter:
    """The last 16 bytes."""

    crc32c: int
    last_offset: int


def parse_header(buf: Buffer) -> SegmentHeader:
    """Reads the header at the start of `buf`, which may be longer."""
    if len(buf) < HEADER_SIZE:
        raise SegmentError(Fault.TOO_SHORT, position=0, expected=HEADER_SIZE, found=len(buf))
    magic, version, flags, base, count, created_ms, _ = HEADER.unpack_from(buf)
    expect(Fault.MAGIC, 0, SEGMENT_MAGIC, magic)
    expect(Fault.VERSION, 4, FORMAT_VERSION, version)
    expect(Fault.FLAGS, 6, 0, flags)
    if base < 0:
        raise SegmentError(Fault.OFFSET, position=8, expected="an offset of 0 or more", found=base)
    return SegmentHeader(base_offset=base, message_count=count, created_ms=created_ms)


def parse_footer(buf: Buffer) -> SegmentFooter:
    """Reads the footer at the end of `buf`, which may be longer."""
    at = len(buf) - FOOTER_SIZE
    if at < 0:
        raise SegmentError(Fault.TOO_SHORT, position=0, expected=FOOTER_SIZE, found=len(buf))
    crc, last_offset, magic = FOOTER.unpack_from(buf, at)
    expect(Fault.MAGIC, at + 12, FOOTER_MAGIC, magic)
    return SegmentFooter(crc32c=crc, last_offset=last_offset)


def expect(fault: Fault, position: int, expected: object, found: object) -> None:
    """Raises SegmentError unless the two are equal."""
    if expected != found:
        raise SegmentError(fault, position=position, expected=expected, found=found)


class IndexEntry(NamedTuple):
    """The batch that starts at byte `position` holds `offset` as its first."""

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """One batch as it goes into a segment: offsets, size on the wire, and how many records it holds."""

    offset: int
    last_offset: int
    size: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A built segment: `body` is the scatter list of the `.kfs` object, `index` the whole `.index` object."""

    base_offset: int
    last_offset: int
    records: int
    batches: int
    size: int
    crc32c: int
    body: list[Buffer]
    index: bytes


def build_segment(
    base_offset: int, batches: Sequence[BatchInfo], parts: Sequence[Buffer], created_ms: int, mark: int = 0
) -> Segment:
    """`parts` are the batches' bytes in order, cut anywhere; together exactly as long as `batches` say. `mark` goes
    into the reserved field, so that segments of equal batches may have other bytes."""
    assert batches, "a segment holds at least one batch"
    assert batches[0].offset == base_offset, (batches[0].offset, base_offset)
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    size = HEADER_SIZE + sum(batch.size for batch in batches) + FOOTER_SIZE
    assert size - HEADER_SIZE - FOOTER_SIZE == sum(map(len, parts)), "parts and batches differ in size"
    assert size <= POSITION_MAX, size
    records = sum(batch.records for batch in batches)
    last_offset = batches[-1].last_offset
    header = HEADER.pack(SEGMENT_MAGIC, FORMAT_VERSION, 0, base_offset, records, created_ms, mark)
    footer = FOOTER.pack(crc, last_offset, FOOTER_MAGIC)
    return Segment(
        base_offset=base_offset,
        last_offset=last_offset,
        records=records,
        batches=len(batches),
        size=size,
        crc32c=crc,
        body=[header, *parts, footer],
        index=encode_index(index_entries(batches)),
    )


def index_entries(batches: Sequence[BatchInfo], *, interval: int = INDEX_INTERVAL) -> Iterator[IndexEntry]:
    """The first batch, then each first one that starts `interval` or more messages after the last entry."""
    position = HEADER_SIZE
    due = batches[0].offset
    for batch in batches:
        if batch.offset >= due:
            yield IndexEntry(batch.offset, position)
            due = batch.offset + interval
        position += batch.size


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentIndex:
    """A parsed index; the two tuples run in parallel, so that a search is one bisect."""

    interval: int
    offsets: tuple[int, ...]
    positions: tuple[int, ...]

    @property
    def entries(self) -> list[IndexEntry]:
        return [IndexEntry(*pair) for pair in zip(self.offsets, self.positions, strict=True)]


def encode_index(entries: Iterable[IndexEntry], *, interval: int = INDEX_INTERVAL) -> bytes:
    """The bytes of an `.index` object."""
    packed = [INDEX_ENTRY.pack(*entry) for entry in entries]
    return b"".join((INDEX_HEADER.pack(INDEX_MAGIC, FORMAT_VERSION, len(packed), interval, 0), *packed))


def parse_index(buf: Buffer) -> SegmentIndex:
    """Read a whole `.index` object; every byte is accounted for."""
    if len(buf) < INDEX_HEADER_SIZE:
        raise SegmentError(Fault.TOO_SHORT, position=0, expected=INDEX_HEADER_SIZE, found=len(buf))
    magic, version, count, interval, _ = INDEX_HEADER.unpack_from(buf)
    expect(Fault.MAGIC, 0, INDEX_MAGIC, magic)
    expect(Fault.VERSION, 4, FORMAT_VERSION, version)
    expect(Fault.LENGTH, 6, INDEX_HEADER_SIZE + count * INDEX_ENTRY_SIZE, len(buf))
    if not count:
        raise SegmentError(Fault.COUNT, position=6, expected="1 or more entries", found=0)
    pairs = list(INDEX_ENTRY.iter_unpack(memoryview(buf)[INDEX_HEADER_SIZE:]))
    offsets: tuple[int, ...] = tuple(pair[0] for pair in pairs)
    positions: tuple[int, ...] = tuple(pair[1] for pair in pairs)
    expect(Fault.POSITION, INDEX_HEADER_SIZE + 8, HEADER_SIZE, positions[0])
    _check_rising(Fault.OFFSET, offsets)
    _check_rising(Fault.POSITION, positions)
    return SegmentIndex(interval=interval, offsets=offsets, positions=positions)


def _check_rising(fault: Fault, values: tuple[int, ...]) -> None:
    for n, (before, value) in enumerate(zip(values, values[1:], strict=False), start=1):
        if value <= before:
            at = INDEX_HEADER_SIZE + n * INDEX_ENTRY_SIZE
            raise SegmentError(fault, position=at, expected=f"more than {before}", found=value)


def find_position(index: SegmentIndex, offset: int) -> int:
    """Where to start reading for `offset`: the last entry at or below it, else the first batch."""
    n = bisect.bisect_right(index.offsets, offset)
    return index.positions[n - 1] if n else HEADER_SIZE


@dataclass(frozen=True, slots=True)
class BatchSpan:
    """A batch inside a buffer: bytes [position, position + size) hold offsets [offset, last_offset]."""

    position: int
    size: int
    offset: int
    last_offset: int
    records: int
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedSegment:
    """The header and footer values of a complete and intact `.kfs` object."""

    header: SegmentHeader
    footer: SegmentFooter


def walk_batches(buf: Buffer, start: int = HEADER_SIZE, end: int | None = None) -> Iterator[BatchSpan]:
    """The batches in bytes [start, end), which must begin and end at batch boundaries.

    `end` defaults to the footer of a whole segment. Checksums of single batches are not checked.
    """
    stop = len(buf) - FOOTER_SIZE if end is None else end
    position = start
    while position < stop:
        span = read_batch_span(buf, position, stop)
        yield span
        position += span.size


def read_batch_span(buf: Buffer, position: int, stop: int) -> BatchSpan:
    """The batch at `position`, which must end at or before `stop`."""
    if stop - position < BATCH_HEADER_SIZE:
        raise SegmentError(
            Fault.TOO_SHORT, position=position, expected=BATCH_HEADER_SIZE, found=stop - position
        )
    offset, length, leader_epoch, magic, _, _, last_delta = BATCH_HEAD.unpack_from(buf, position)
    (records,) = BATCH_RECORDS.unpack_from(buf, position + BATCH_RECORDS_AT)
    expect(Fault.MAGIC, position + 16, 2, magic)
    size = length + BATCH_PREFIX_SIZE
    if not BATCH_HEADER_SIZE <= size <= stop - position:
        bounds = f"{BATCH_HEADER_SIZE} to {stop - position} bytes"
        raise SegmentError(Fault.LENGTH, position=position + 8, expected=bounds, found=size)
    if offset < 0 or last_delta < 0:
        raise SegmentError(Fault.OFFSET, position=position, expected="0 or more", found=(offset, last_delta))
    if records < 0:
        raise SegmentError(
            Fault.COUNT, position=position + BATCH_RECORDS_AT, expected="0 or more", found=records
        )
    return BatchSpan(position, size, offset, offset + last_delta, records, leader_epoch)


def verify_segment(buf: Buffer, *, batches: bool = True) -> VerifiedSegment:
    """Checks a whole `.kfs` object: magics, version, checksum and, if `batches`, each batch's position.

    `batches=False` is for readers that visit the batches anyway. The checksum covers all their bytes.
    """
    header = parse_header(buf)
    if len(buf) < HEADER_SIZE + FOOTER_SIZE:
        raise SegmentError(Fault.TOO_SHORT, position=0, expected=HEADER_SIZE + FOOTER_SIZE, found=len(buf))
    footer = parse_footer(buf)
    end = len(buf) - FOOTER_SIZE
    found = crc32c(memoryview(buf)[HEADER_SIZE:end])
    expect(Fault.CHECKSUM, end, footer.crc32c, found)
    if batches:
        _verify_batches(buf, header, footer)
    return VerifiedSegment(header=header, footer=footer)


def _verify_batches(buf: Buffer, header: SegmentHeader, footer: SegmentFooter) -> None:
    due, records = header.base_offset, 0
    for span in walk_batches(buf):
        if span.offset < due or (span.position == HEADER_SIZE and span.offset != due):
            raise SegmentError(Fault.OFFSET, position=span.position, expected=due, found=span.offset)
        due = span.last_offset + 1
        records += span.records
    expect(Fault.OFFSET, len(buf) - FOOTER_SIZE + 4, footer.last_offset, due - 1)
    expect(Fault.COUNT, 16, header.message_count, records)
