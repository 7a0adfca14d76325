"""The bytes of a bundle, written by hand from the format's table; no changed byte of its directory is believed."""

import struct
from dataclasses import replace

import crc32c as oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.log.bundle import (
    BUNDLE_HEADER_SIZE,
    ENTRY_SIZE,
    TRAILER_SIZE,
    BuiltBundle,
    Slice,
    build_bundle,
    new_bundle_id,
    parse_bundle,
    parse_directory,
    parse_trailer,
)
from kafscale.log.segment import BatchInfo, Fault, Segment, SegmentError, build_segment, verify_segment
from kafscale.storage.keys import BundleId, Keyspace, TopicId
from kafscale.wire.records import Record, build_batch

CREATED_MS = 1_700_000_000_000
ID = BundleId(bytes(range(16)))
TOPIC = TopicId(b"t" * 16)


def segment(base: int, count: int = 1) -> Segment:
    batch = build_batch([Record(timestamp=1_000 + n, value=b"v") for n in range(count)], base_offset=base)
    return build_segment(base, [BatchInfo(base, base + count - 1, len(batch), count)], [batch], CREATED_MS)


def piece(partition: int, base: int, count: int = 1, topic: TopicId = TOPIC) -> Slice:
    return Slice(
        topic_id=topic,
        partition=partition,
        leader_epoch=7,
        segment=segment(base, count),
        min_ts=1_000,
        max_ts=1_000 + count - 1,
    )


def bundle(*slices: Slice) -> tuple[BuiltBundle, bytes]:
    built = build_bundle(ID, slices, CREATED_MS)
    data = b"".join(built.body)
    assert len(data) == built.size
    return built, data


def test_a_bundle_has_the_bytes_of_the_format() -> None:
    one, two = piece(3, 50), piece(4, 1 << 40, count=2, topic=TopicId(b"u" * 16))
    _, data = bundle(one, two)
    images = [b"".join(each.segment.body) for each in (one, two)]
    header = b"KAFB" + struct.pack(">HHq", 1, 0, CREATED_MS) + ID
    assert len(header) == BUNDLE_HEADER_SIZE == 32
    entries = b""
    position = 32
    for each, image in zip((one, two), images, strict=True):
        base, last = each.segment.base_offset, each.segment.last_offset
        (crc,) = struct.unpack_from(">I", image, len(image) - 16)
        entries += each.topic_id + struct.pack(">iiqq", each.partition, 7, base, last)
        entries += struct.pack(">IIIII", position, len(image), crc, last - base + 1, 1)
        entries += struct.pack(">qqI", 1_000, 1_000 + last - base, 0)
        position += len(image)
    assert len(entries) == 2 * ENTRY_SIZE == 160
    trailer = struct.pack(">III", position, 2, oracle.crc32c(header + entries)) + b"KFB!"
    assert len(trailer) == TRAILER_SIZE == 16
    assert data == header + b"".join(images) + entries + trailer


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_a_directory_reads_back_and_each_slice_is_a_whole_segment(counts: list[int]) -> None:
    built, data = bundle(*(piece(n, 100 * n, count) for n, count in enumerate(counts)))
    directory = parse_bundle(data)
    assert (directory.id, directory.created_ms, directory.entries) == (ID, CREATED_MS, built.entries)
    for entry, count in zip(directory.entries, counts, strict=True):
        verified = verify_segment(data[entry.position : entry.end])
        assert verified.footer.crc32c == entry.crc32c
        assert (verified.header.base_offset, verified.footer.last_offset) == (entry.base, entry.last)
        assert (entry.records, entry.batches) == (count, 1)


def test_two_small_reads_give_the_directory() -> None:
    built, data = bundle(piece(0, 0), piece(1, 0))
    trailer = parse_trailer(data[-TRAILER_SIZE:], len(data))
    found = parse_directory(data[:BUNDLE_HEADER_SIZE], data[trailer.position : trailer.end], trailer)
    assert found.entries == built.entries


def test_every_changed_byte_of_header_directory_and_trailer_is_found() -> None:
    built, data = bundle(piece(0, 0), piece(1, 0))
    for at in [*range(BUNDLE_HEADER_SIZE), *range(built.entries[-1].end, len(data))]:
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(SegmentError):
            parse_bundle(damaged)


@given(st.integers(0, 400))
def test_a_bundle_that_is_cut_short_is_refused(size: int) -> None:
    _, data = bundle(piece(0, 0), piece(1, 0))
    with pytest.raises(SegmentError):
        parse_bundle(data[: min(size, len(data) - 1)])


def resealed(data: bytes, at: int, value: bytes) -> bytes:
    """The directory changed on purpose, and its checksum with it."""
    position, entries = struct.unpack_from(">II", data, len(data) - TRAILER_SIZE)
    changed = bytearray(data)
    changed[position + at : position + at + len(value)] = value
    crc = oracle.crc32c(bytes(changed[:BUNDLE_HEADER_SIZE] + changed[position:-TRAILER_SIZE]))
    changed[-TRAILER_SIZE:] = struct.pack(">III4s", position, entries, crc, b"KFB!")
    return bytes(changed)


@pytest.mark.parametrize(
    ("at", "value", "fault"),
    [
        (40, struct.pack(">I", 33), Fault.POSITION),  # a gap behind the header
        (44, struct.pack(">I", 47), Fault.LENGTH),  # too short for a segment
        (16, struct.pack(">i", -1), Fault.OFFSET),  # a partition below zero
        (32, struct.pack(">q", -1), Fault.OFFSET),  # it ends before it begins
        (ENTRY_SIZE + 16, struct.pack(">i", 0), Fault.COUNT),  # two slices of one partition
        (ENTRY_SIZE + 44, struct.pack(">I", 1_000), Fault.POSITION),  # beyond the directory
    ],
)
def test_a_directory_that_cannot_be_is_refused(at: int, value: bytes, fault: Fault) -> None:
    _, data = bundle(piece(0, 0), piece(1, 0))
    with pytest.raises(SegmentError) as refused:
        parse_bundle(resealed(data, at, value))
    assert refused.value.fault is fault


def test_the_folder_of_a_bundle_follows_from_its_id() -> None:
    keys = Keyspace("prod")
    bundle_id = new_bundle_id(CREATED_MS, bytes(10))
    key = keys.bundle_key(bundle_id)
    assert key == f"prod/@kafscale/bundle/2023111422/{bundle_id.hex()}.kfb"
    assert keys.parse_bundle(key) == bundle_id
    assert keys.parse_bundle("prod/@kafscale/bundle/2023111422/0.kfb") is None
    assert keys.parse_bundle(f"production/@kafscale/bundle/2023111422/{bundle_id.hex()}.kfb") is None


def test_the_directory_says_which_slices_hold_transactions_and_keeps_unknown_bits() -> None:
    plain, marked = piece(0, 5), replace(piece(1, 5), transactional=True)
    built, data = bundle(plain, marked)
    directory = parse_bundle(data)
    assert [entry.transactional for entry in directory.entries] == [False, True]
    assert [struct.unpack_from(">I", data, built.size - 16 - 80 * n - 4)[0] for n in (1, 0)] == [0, 1]
    newer = directory.entries[0]._replace(flags=6)
    assert not newer.transactional
    assert newer._replace(flags=7).transactional
