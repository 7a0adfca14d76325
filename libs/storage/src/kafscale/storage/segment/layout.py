"""The bytes of a segment file and its index, as fixed structures. Pure; every integer is big-endian.

A `.kfs` file is a 32-byte header, record batches exactly as Kafka's clients see them, and a 16-byte footer.
An `.index` file is a 16-byte header and 12-byte entries. Lengths are implied by the object's size.
"""

import enum
import struct
from dataclasses import dataclass
from typing import Final, TypeAlias

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
