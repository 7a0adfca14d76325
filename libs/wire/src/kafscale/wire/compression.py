"""The five codecs of record batches, each with a bound on its output.

A kilobyte can hold a compressed gigabyte, so every decompression has a limit: the output goes into a buffer that grows
in steps up to the bound, and beyond it the batch is refused. Snappy arrives raw (librdkafka) or in snappy-java's
frames (all other clients); this module writes frames. It writes LZ4 with independent blocks and without a content
checksum, because Java clients refuse linked blocks. In messages of magic 0 the checksum of an LZ4 header covers four
bytes too many, and clients of that age expect it (KAFKA-3160).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import cramjam
import xxhash
from kafscale.wire.buffers import Buffer, Steps
from kafscale.wire.errors import ErrorCode, WireError

DECOMPRESSED_BYTES_MAX: Final = 64 << 20
COMPRESSED_STEP_BYTES: Final = 1 << 20
_FIRST_GUESS_BYTES: Final = 64 << 10
_OUTPUT_FULL: Final = "failed to write whole buffer"
GZIP_LEVEL_DEFAULT: Final = -1
LZ4_LEVEL_DEFAULT: Final = 9
ZSTD_LEVEL_DEFAULT: Final = 3
_LZ4_FAST: Final = 0
_LZ4_PORTION_BYTES: Final = 64 << 10
_ZSTD_LEVELS: Final = ((1 << 20, 19), (8 << 20, 12))
"""(bytes, level): a body of up to so many bytes gets at most this level, so that none takes longer than about 1.5 s."""
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES: Final = 32 << 10
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_MAGIC_BYTES: Final = 4
_LZ4_CONTENT_SIZE: Final = 0x08
_LZ4_DICTIONARY: Final = 0x01
_LZ4_RESERVED: Final = 0x02
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_BLOCK_BYTES: Final = 0x7FFF_FFFF
"""The bits of a block's length; the highest says that the block is not compressed."""


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class Compression(NamedTuple):
    """A codec and its level: Kafka's `compression.<codec>.level`; None is cramjam's default."""

    codec: Codec
    level: int | None = None


def compress(codec: Codec, data: bytes, level: int | None = None) -> bytes:
    """Compresses the records of a batch."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=None if level == GZIP_LEVEL_DEFAULT else level))
        case Codec.SNAPPY:
            return _xerial_compress(data)
        case Codec.LZ4:
            return _lz4_compress(data, level)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_zstd_level(len(data), level)))


def _lz4_compress(data: bytes, level: int | None) -> bytes:
    """Compresses in small portions, because this compressor holds the GIL while it works.

    As in Java's clients, Kafka's default level selects the fast compressor, and every other level the slow one.
    """
    level = _LZ4_FAST if level == LZ4_LEVEL_DEFAULT else level
    frame = cramjam.lz4.Compressor(level=level, block_linked=False, content_checksum=False)
    for start in range(0, len(data), _LZ4_PORTION_BYTES):
        frame.compress(data[start : start + _LZ4_PORTION_BYTES])
    return bytes(frame.finish())


def _zstd_level(size_bytes: int, level: int | None) -> int | None:
    """The highest levels take a second and hundreds of megabytes for a megabyte, so large bodies get a lower level."""
    if level is None:
        return None
    most = next((most for size_max, most in _ZSTD_LEVELS if size_bytes <= size_max), ZSTD_LEVEL_DEFAULT)
    return min(level, most)


def compressing(codec: Codec, data: Buffer) -> Steps[bytes]:
    """As `compress`, in steps of about COMPRESSED_STEP_BYTES of `data`; what it returns is the generator's value."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.SNAPPY:
            out = bytearray(_XERIAL_HEADER)
            for step in _steps(data):
                out += _xerial_compress(step)[len(_XERIAL_HEADER) :]
                yield
            return bytes(out)
        case Codec.GZIP:
            frame: cramjam.gzip.Compressor | cramjam.lz4.Compressor = cramjam.gzip.Compressor()
        case Codec.LZ4:
            frame = cramjam.lz4.Compressor(block_linked=False, content_checksum=False)
        case Codec.ZSTD:
            return compress(codec, bytes(data))
    for step in _steps(data):
        frame.compress(step)
        yield
    return bytes(frame.finish())


def _steps(data: Buffer) -> Iterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(view), COMPRESSED_STEP_BYTES):
        yield bytes(view[start : start + COMPRESSED_STEP_BYTES])


def decompress(codec: Codec, data: Buffer, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Decompresses the records of a batch. More than `bytes_max`, or a broken frame, is a WireError."""
    try:
        match codec:
            case Codec.NONE:
                return _bounded_copy(data, bytes_max)
            case Codec.SNAPPY:
                return _snappy(data, bytes_max)
            case Codec.GZIP | Codec.LZ4 | Codec.ZSTD:
                return _growing(codec, data, bytes_max)
    except cramjam.DecompressionError as broken:
        raise WireError("compressed records", f"{codec.name.lower()}: {broken}") from broken


def _too_large(codec: Codec, bytes_max: int) -> WireError:
    """MESSAGE_TOO_LARGE, on which Java's client splits the batch and sends its records again."""
    reason = f"{codec.name.lower()}: decompresses to more than {bytes_max} bytes"
    return WireError("compressed records", reason, code=ErrorCode.MESSAGE_TOO_LARGE)


def _bounded_copy(data: Buffer, bytes_max: int) -> bytes:
    if len(data) > bytes_max:
        raise _too_large(Codec.NONE, bytes_max)
    return bytes(data)


def _growing(codec: Codec, data: Buffer, bytes_max: int) -> bytes:
    module = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}[codec]
    size = min(bytes_max, max(_FIRST_GUESS_BYTES, 8 * len(data)))
    while True:
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: module.decompress_into(data, out)])
        except cramjam.DecompressionError as broken:
            if _OUTPUT_FULL not in str(broken):
                raise
            if size >= bytes_max:
                raise _too_large(codec, bytes_max) from broken
            size = min(bytes_max, size * 4)


def _snappy(data: Buffer, bytes_max: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(view, bytes_max)
    if len(view) < len(_XERIAL_HEADER):
        raise WireError("compressed records", "snappy: the header is cut short")
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(view):
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if size > len(view) - position:
            raise WireError("compressed records", "snappy: a block is cut short")
        out += _snappy_block(view[position : position + size], bytes_max - len(out))
        position += size
    return bytes(out)


def _snappy_block(block: memoryview, bytes_max: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > bytes_max:
        raise _too_large(Codec.SNAPPY, bytes_max)
    return bytes(cramjam.snappy.decompress_raw(block))


def _xerial_compress(data: bytes) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        out += len(block).to_bytes(4, "big") + block
    return bytes(out)


def check_lz4_frame(frame: Buffer) -> None:
    """Raises WireError unless Java's clients read all of a frame that `decompress` takes: one frame of independent
    blocks without a dictionary. Java's clients refuse others, and ignore a second frame."""
    if bytes(frame[:_LZ4_MAGIC_BYTES]) != _LZ4_MAGIC:
        raise WireError("compressed records", "lz4: another kind of frame comes first")
    flags = frame[_LZ4_MAGIC_BYTES]
    if not flags & _LZ4_INDEPENDENT or flags & (_LZ4_DICTIONARY | _LZ4_RESERVED):
        raise WireError(
            "compressed records", f"lz4: Java's clients do not read a frame with the flags {flags:#x}"
        )
    pos = _LZ4_MAGIC_BYTES + 3 + 8 * bool(flags & _LZ4_CONTENT_SIZE)
    while size := int.from_bytes(frame[pos : pos + 4], "little") & _LZ4_BLOCK_BYTES:
        pos += 4 + size + 4 * bool(flags & _LZ4_BLOCK_CHECKSUM)
    pos += 4 + 4 * bool(flags & _LZ4_CONTENT_CHECKSUM)
    if pos != len(frame):
        raise WireError("compressed records", "lz4: more than one frame", offset=pos)


def lz4_header_checksum(frame: Buffer, *, broken: bool) -> bytes:
    """The same frame with the right checksum in its header, or with the one of magic 0 (`broken`)."""
    if len(frame) <= _LZ4_MAGIC_BYTES:
        raise WireError("compressed records", "lz4: the header is cut short")
    flags = frame[_LZ4_MAGIC_BYTES]
    end = _LZ4_MAGIC_BYTES + 2 + 8 * bool(flags & _LZ4_CONTENT_SIZE) + 4 * bool(flags & _LZ4_DICTIONARY)
    if len(frame) <= end:
        raise WireError("compressed records", "lz4: the header is cut short")
    out = bytearray(frame)
    out[end] = xxhash.xxh32_intdigest(bytes(out[0 if broken else _LZ4_MAGIC_BYTES : end])) >> 8 & 0xFF
    return bytes(out)
