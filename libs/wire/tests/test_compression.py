"""The five codecs: what comes out is bounded and whole, and other clients read what they write."""

from __future__ import annotations

import tracemalloc

import cramjam
import pytest
from kafscale.wire.compression import compress, decompress
from kafscale.wire.errors import WireError
from kafscale.wire.records import (
    Codec,
)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_a_bomb_is_refused_within_its_bound(codec: Codec) -> None:
    bomb = compress(codec, bytes(32 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="decompresses to more"):
            decompress(codec, bomb, bytes_max=1 << 20)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_kilobyte_that_says_it_holds_four_gigabytes_is_refused() -> None:
    with pytest.raises(WireError):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(1000))
    with pytest.raises(WireError):
        decompress(Codec.NONE, bytes(11), bytes_max=10)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
@pytest.mark.parametrize("size", [0, 1, 70_000, 1 << 20])
def test_output_of_any_size_up_to_the_bound_comes_out_whole(codec: Codec, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert decompress(codec, memoryview(compress(codec, data)), bytes_max=max(size, 1)) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD, Codec.LZ4, Codec.SNAPPY])
def test_a_frame_cut_short_is_a_wire_error(codec: Codec) -> None:
    data = compress(codec, b"some records, some records, some more records" * 9)
    for cut in range(1, len(data)):
        try:
            out = decompress(codec, data[:cut])
        except WireError:
            continue
        assert (codec, len(out)) == (Codec.SNAPPY, 0), f"{cut} of {len(data)} bytes gave {len(out)}"
        assert cut == 16  # snappy-java's header alone is an empty stream


def test_snappy_is_read_raw_as_librdkafka_may_send_it_and_framed_as_java_does() -> None:
    data = b"records" * 20_000
    framed = compress(Codec.SNAPPY, data)
    assert framed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    assert decompress(Codec.SNAPPY, framed) == data
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    with pytest.raises(WireError, match="decompresses to more"):
        decompress(Codec.SNAPPY, framed, bytes_max=len(data) - 1)


def test_lz4_is_written_in_independent_blocks_without_a_content_checksum() -> None:
    flags = compress(Codec.LZ4, b"x" * 100)[4]
    assert flags & 0b0010_0000, "blocks must be independent: Java refuses linked ones"
    assert not flags & 0b0000_0100, "no content checksum"
    assert flags >> 6 == 1


def test_concatenated_frames_are_read_through() -> None:
    for codec in (Codec.GZIP, Codec.ZSTD, Codec.LZ4):
        assert decompress(codec, compress(codec, b"one") + compress(codec, b"two")) == b"onetwo"


# --- levels -----------------------------------------------------------------------------------------

TEXT = b"".join(b"%d of some records, %d\n" % (n * n, n % 77) for n in range(20_000))


@pytest.mark.parametrize(
    ("codec", "levels"),
    [(Codec.GZIP, (-1, 1, 9)), (Codec.LZ4, (1, 9, 17)), (Codec.ZSTD, (-131_072, -1, 3, 22))],
)
def test_what_any_of_kafkas_levels_wrote_is_read_back(codec: Codec, levels: tuple[int, ...]) -> None:
    sizes = set()
    for level in levels:
        data = compress(codec, TEXT, level)
        assert decompress(codec, data) == TEXT
        sizes.add(len(data))
    assert len(sizes) > 1, "a level makes a difference"


def test_kafkas_default_level_of_lz4_is_the_fast_compressor() -> None:
    assert len(compress(Codec.LZ4, TEXT, 9)) > 1.1 * len(compress(Codec.LZ4, TEXT, 8))


@pytest.mark.parametrize(("size", "most"), [(1 << 20, 19), ((1 << 20) + 1, 12), ((8 << 20) + 1, 3)])
def test_large_bodies_get_no_level_of_zstd_that_takes_seconds(
    size: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []

    def noted(data: bytes, level: int | None = None) -> bytes:
        asked.append(level)
        return data

    monkeypatch.setattr(cramjam.zstd, "compress", noted)
    for level in (22, 1, -5, None):
        compress(Codec.ZSTD, bytes(size), level)
    assert asked == [most, 1, -5, None]
