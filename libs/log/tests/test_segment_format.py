"""The bytes of `.kfs` and `.index`, written by hand from the format's tables."""

import contextlib
import struct

import crc32c as oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.log.segment import (
    HEADER_SIZE,
    BatchInfo,
    Fault,
    IndexEntry,
    Segment,
    SegmentError,
    build_segment,
    encode_index,
    find_position,
    parse_footer,
    parse_header,
    parse_index,
    verify_segment,
    walk_batches,
)

CREATED_MS = 1_700_000_000_000


def batch(offset: int, records: int, payload: bytes, *, span: int | None = None, epoch: int = 7) -> bytes:
    """A v2 record batch; `span` is how many offsets it covers, more than `records` after compaction."""
    last_delta = (records if span is None else span) - 1
    body = struct.pack(">hiqqqhii", 0, last_delta, 1000, 2000, -1, -1, -1, records) + payload
    crc = oracle.crc32c(body)
    return struct.pack(">qiibI", offset, len(body) + 9, epoch, 2, crc) + body


def info(data: bytes) -> BatchInfo:
    offset, _, _, _, _, _, last_delta = struct.unpack_from(">qiibIhi", data)
    (records,) = struct.unpack_from(">i", data, 57)
    return BatchInfo(offset, offset + last_delta, len(data), records)


def built(*batches: bytes) -> tuple[Segment, bytes]:
    infos = [info(data) for data in batches]
    segment = build_segment(infos[0].offset, infos, list(batches), CREATED_MS)
    return segment, b"".join(segment.body)


def test_a_segment_has_the_bytes_of_the_format() -> None:
    one, two = batch(50_000, 2, b"\x01\x02\x03"), batch(50_002, 1, b"")
    segment, data = built(one, two)
    assert data.hex(" ", 4) == (
        bytes.fromhex(
            "4b414653"  # KAFS
            "0001"  # version
            "0000"  # flags
            "000000000000c350"  # base offset 50000
            "00000003"  # messages
            "0000018bcfe56800"  # created
            "00000000"  # reserved
        )
        + one
        + two
        + struct.pack(">I", oracle.crc32c(one + two))
        + bytes.fromhex("000000000000c352454e4421")  # last offset 50002, END!
    ).hex(" ", 4)
    assert (segment.base_offset, segment.last_offset, segment.records, segment.batches) == (
        50_000,
        50_002,
        3,
        2,
    )
    assert (segment.size, segment.crc32c) == (len(data), oracle.crc32c(one + two))


def test_an_index_has_the_bytes_of_the_format() -> None:
    batches = [batch(1000 + 60 * n, 60, b"x" * 39) for n in range(5)]  # 100 bytes each
    segment, _ = built(*batches)
    assert segment.index == bytes.fromhex(
        "49445800"  # IDX
        "0001"  # version
        "00000003"  # entries
        "00000064"  # interval
        "0000"  # reserved
        "00000000000003e8"
        "00000020"  # offset 1000 at 32
        "0000000000000460"
        "000000e8"  # 1120, the first that starts 100 or more after 1000, at 232
        "00000000000004d8"
        "000001b0"  # 1240 at 432
    )


@pytest.mark.parametrize(
    ("starts", "entries"),
    [
        ([0], [0]),
        ([0, 99], [0]),
        ([0, 100], [0, 100]),
        ([0, 99, 100, 199, 200], [0, 100, 200]),
        ([5, 6, 104, 105, 205], [5, 105, 205]),
        ([0, 350, 400, 451], [0, 350, 451]),
    ],
)
def test_an_entry_stands_at_the_first_batch_that_starts_100_messages_after_the_last_entry(
    starts: list[int], entries: list[int]
) -> None:
    batches = [
        batch(start, 1, b"", span=following - start)
        for start, following in zip(starts, [*starts[1:], starts[-1] + 1], strict=True)
    ]
    segment, _ = built(*batches)
    assert parse_index(segment.index).offsets == tuple(entries)


def test_building_copies_no_record_byte() -> None:
    records = memoryview(bytearray(batch(0, 1, b"y" * 1000)))
    segment = build_segment(0, [info(bytes(records))], [records], CREATED_MS)
    assert segment.body[1] is records


def test_the_parts_may_be_cut_anywhere() -> None:
    one, two = batch(0, 1, b"abc"), batch(1, 4, b"defg")
    whole = one + two
    infos = [info(one), info(two)]
    for cut in range(len(whole)):
        segment = build_segment(0, infos, [whole[:cut], memoryview(whole)[cut:]], CREATED_MS)
        assert b"".join(segment.body) == built(one, two)[1]


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    offset = draw(st.integers(0, 1 << 60))
    batches = []
    for _ in range(draw(st.integers(1, 30))):
        records = draw(st.integers(1, 150))
        span = records + draw(st.integers(0, 20))
        batches.append(batch(offset, records, draw(st.binary(max_size=40)), span=span))
        offset += span + draw(st.sampled_from([0, 0, 0, 1, 250]))
    return batches


@given(logs())
def test_what_was_built_verifies_and_reads_back(batches: list[bytes]) -> None:
    segment, data = built(*batches)
    checked = verify_segment(data)
    assert (checked.header.base_offset, checked.footer.last_offset) == (
        segment.base_offset,
        segment.last_offset,
    )
    assert checked.header.message_count == sum(info(one).records for one in batches)
    assert checked.header.created_ms == CREATED_MS
    spans = list(walk_batches(data))
    assert [data[span.position : span.position + span.size] for span in spans] == batches
    assert [(span.offset, span.last_offset, span.records) for span in spans] == [
        (one.offset, one.last_offset, one.records) for one in map(info, batches)
    ]


@given(logs(), st.data())
def test_a_read_from_the_found_position_meets_the_offset(batches: list[bytes], data: st.DataObject) -> None:
    segment, body = built(*batches)
    index = parse_index(segment.index)
    spans = list(walk_batches(body))
    offset = data.draw(st.integers(segment.base_offset, segment.last_offset))
    start = find_position(index, offset)
    due = next(span for span in spans if span.last_offset >= offset)
    assert start <= due.position
    assert start in {span.position for span in spans}
    skipped = [span for span in spans if start <= span.position < due.position]
    assert sum(span.records for span in skipped) < 100 + skipped[-1].records if skipped else True
    assert find_position(index, segment.base_offset - 1) == HEADER_SIZE


@given(st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(33, (1 << 32) - 1)), max_size=50))
def test_an_index_round_trips(pairs: list[tuple[int, int]]) -> None:
    offsets = sorted({offset for offset, _ in pairs} | {0})
    positions = [HEADER_SIZE, *sorted({position for _, position in pairs})]
    entries = [IndexEntry(*pair) for pair in zip(offsets, positions, strict=False)]
    index = parse_index(encode_index(entries))
    assert index.entries == entries
    assert index.interval == 100


SEGMENT, DATA = built(batch(10, 3, b"payload"), batch(13, 2, b"more"))
FIRST = HEADER_SIZE
SECOND = HEADER_SIZE + len(batch(10, 3, b"payload"))


def changed(at: int, value: bytes, *, reseal: bool = False) -> bytes:
    data = bytearray(DATA)
    data[at : at + len(value)] = value
    if reseal:  # so that the checks behind the checksum are reached
        data[-16:-12] = struct.pack(">I", oracle.crc32c(bytes(data[32:-16])))
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "fault", "position"),
    [
        (b"", Fault.TOO_SHORT, 0),
        (DATA[:31], Fault.TOO_SHORT, 0),
        (DATA[:40], Fault.TOO_SHORT, 0),
        (DATA[:-1], Fault.MAGIC, len(DATA) - 5),
        (changed(0, b"KAFX"), Fault.MAGIC, 0),
        (changed(4, b"\x00\x02"), Fault.VERSION, 4),
        (changed(6, b"\x00\x01"), Fault.FLAGS, 6),
        (changed(8, b"\xff" * 8), Fault.OFFSET, 8),
        (changed(len(DATA) - 4, b"END?"), Fault.MAGIC, len(DATA) - 4),
        (changed(FIRST + 61, b"P"), Fault.CHECKSUM, len(DATA) - 16),
        (changed(len(DATA) - 16, b"\0\0\0\0"), Fault.CHECKSUM, len(DATA) - 16),
        (changed(len(DATA) - 12, struct.pack(">q", 15)), Fault.OFFSET, len(DATA) - 12),
        (changed(16, struct.pack(">I", 6)), Fault.COUNT, 16),
        (changed(8, struct.pack(">q", 9)), Fault.OFFSET, FIRST),
        (changed(FIRST, struct.pack(">q", 11), reseal=True), Fault.OFFSET, FIRST),
        (changed(SECOND, struct.pack(">q", 12), reseal=True), Fault.OFFSET, SECOND),
        (changed(SECOND, struct.pack(">q", -1), reseal=True), Fault.OFFSET, SECOND),
        (changed(FIRST + 8, struct.pack(">i", -1), reseal=True), Fault.LENGTH, FIRST + 8),
        (changed(FIRST + 8, struct.pack(">i", 48), reseal=True), Fault.LENGTH, FIRST + 8),
        (changed(SECOND + 8, struct.pack(">i", (1 << 31) - 1), reseal=True), Fault.LENGTH, SECOND + 8),
        (changed(FIRST + 16, b"\x01", reseal=True), Fault.MAGIC, FIRST + 16),
        (changed(SECOND + 23, struct.pack(">i", -5), reseal=True), Fault.OFFSET, SECOND),
        (changed(SECOND + 57, struct.pack(">i", -5), reseal=True), Fault.COUNT, SECOND + 57),
    ],
)
def test_a_malformed_segment_is_refused_with_the_place(data: bytes, fault: Fault, position: int) -> None:
    with pytest.raises(SegmentError) as refused:
        verify_segment(data)
    assert (refused.value.fault, refused.value.position) == (fault, position)
    assert str(position) in str(refused.value)


def test_bytes_between_the_last_batch_and_the_footer_are_refused() -> None:
    gap = DATA[32:-16] + b"\0" * 10
    data = DATA[:32] + gap + struct.pack(">I", oracle.crc32c(gap)) + DATA[-12:]
    with pytest.raises(SegmentError) as refused:
        verify_segment(data)
    assert refused.value.fault is Fault.TOO_SHORT


def test_without_walking_the_checksum_still_guards_every_byte() -> None:
    assert verify_segment(DATA, batches=False).footer.last_offset == 14
    for at in range(32, len(DATA) - 16):
        with pytest.raises(SegmentError):
            verify_segment(changed(at, bytes([DATA[at] ^ 0x10])), batches=False)


def test_header_and_footer_can_be_read_from_the_ends_alone() -> None:
    assert parse_header(memoryview(DATA)[:32]).base_offset == 10
    assert parse_footer(memoryview(DATA)[-16:]).last_offset == 14
    with pytest.raises(SegmentError):
        parse_footer(DATA[-15:])


INDEX = encode_index([IndexEntry(10, 32), IndexEntry(110, 500)])


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", Fault.TOO_SHORT),
        (INDEX[:15], Fault.TOO_SHORT),
        (b"IDX\x01" + INDEX[4:], Fault.MAGIC),
        (INDEX[:4] + b"\x00\x02" + INDEX[6:], Fault.VERSION),
        (INDEX[:-1], Fault.LENGTH),
        (INDEX + b"\0" * 12, Fault.LENGTH),
        (INDEX[:6] + b"\xff\xff\xff\xff" + INDEX[10:], Fault.LENGTH),
        (INDEX[:6] + b"\0\0\0\0" + INDEX[10:16], Fault.COUNT),
        (encode_index([IndexEntry(10, 33)]), Fault.POSITION),
        (encode_index([IndexEntry(10, 32), IndexEntry(10, 500)]), Fault.OFFSET),
        (encode_index([IndexEntry(10, 32), IndexEntry(11, 32)]), Fault.POSITION),
    ],
)
def test_a_malformed_index_is_refused(data: bytes, fault: Fault) -> None:
    with pytest.raises(SegmentError) as refused:
        parse_index(data)
    assert refused.value.fault is fault


@given(st.binary(max_size=200), st.integers(0, 200))
def test_no_bytes_do_worse_than_a_segment_error(noise: bytes, cut: int) -> None:
    for data in (noise, DATA[:cut] + noise, INDEX[:cut] + noise, DATA[:-16] + noise + DATA[-16:]):
        for parse in (
            verify_segment,
            parse_index,
            parse_header,
            parse_footer,
            lambda buf: list(walk_batches(buf)),
        ):
            with contextlib.suppress(SegmentError):
                parse(data)
