"""What readers of committed records see, and are counted: no markers, nothing aborted, nothing of an open transaction.

Counting opens no record, so it must come to the same number as reading, whatever the log's shape.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.lake.catalog import Lake, Log, read_lake
from kafscale.lake.columns import Wanted, read_columns
from kafscale.lake.heads import CorruptSegment, check_offsets, scan_heads, without_aborted
from kafscale.lake.scan import scan
from kafscale.lake.sources import count_records
from kafscale.log.heads import Aborted
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.logbuilder import LogBuilder, create_topic, marker, records, transactional
from kafscale.wire.batches import crc32c
from kafscale.wire.records import Codec, Record, build_batch

from spark.lake.tests.examples import quick

from .queries import query

MARKER = (Record(timestamp=1, key=b"\0\0\0\0", value=b"\0\0\0\0\0\0"),)


@pytest.fixture
def lake(etcd: EtcdClient, keyspace: Keyspace) -> Lake:
    return Lake(etcd, keyspace, MemoryStore())


async def built(lake: Lake) -> LogBuilder:
    """Offsets 0-2 of no transaction; of producer 7: 3-5 aborted (marker 9), 10-12 committed (13); of producer 8: 6-8
    committed (14); 15-17 not decided yet."""
    log = LogBuilder(lake.etcd, lake.keys, lake.store, await create_topic(lake.etcd, lake.keys, "paid"))
    await log.append(records(3, label="plain"))
    aborted, kept, later, undecided = (
        records(3, label=name) for name in ("aborted", "kept", "later", "open")
    )
    await log.append_raw([transactional(7, aborted), transactional(8, kept)])
    ends = marker(7, commit=True), marker(8, commit=True)
    await log.append_raw([marker(7, commit=False), transactional(7, later), *ends])
    await log.append_raw([transactional(9, undecided)])
    return log


async def offsets(lake: Lake, log: Log) -> list[int]:
    return [offset async for batch in scan(lake, log, Wanted()) for offset in batch["offset"].to_pylist()]


async def test_only_what_is_committed_is_read_and_counted(lake: Lake) -> None:
    await built(lake)
    (log,) = await read_lake(lake)
    assert (log.end, log.stable_end) == (18, 15)
    assert await offsets(lake, log) == [0, 1, 2, 6, 7, 8, 10, 11, 12]
    found = await query(lake, [log], "select count(*) as n, count(key) as keys from records")
    assert found.to_pylist() == [{"n": 9, "keys": 9}]
    assert (await query(lake, [log], "select count(*) as n from records")).to_pylist() == [{"n": 9}]


async def test_batches_are_shown_as_they_stand(lake: Lake) -> None:
    await built(lake)
    text = "select base_offset, producer_id, is_transactional, is_control from batches order by 1"
    found = await query(lake, await read_lake(lake), text)
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (0, None, False, False),
        (3, 7, True, False),
        (6, 8, True, False),
        (9, 7, True, True),
        (10, 7, True, False),
        (13, 7, True, True),
        (14, 8, True, True),
        (15, 9, True, False),
    ]


async def test_deleted_records_are_not_counted_though_their_batch_is_there(lake: Lake) -> None:
    log = await built(lake)
    await log.retain_from(7)
    (cut,) = await read_lake(lake)
    assert await offsets(lake, cut) == [7, 8, 10, 11, 12]
    assert (await query(lake, [cut], "select count(*) as n from records")).to_pylist() == [{"n": 5}]


SHAPES = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["plain", "marker", "aborted", "kept"]), st.integers(0, 3)),
    min_size=1,
    max_size=8,
)


def laid(shapes: Sequence[tuple[int, str, int]]) -> tuple[bytes, list[Aborted]]:
    """Batches with gaps between and in them, as compaction leaves them; a batch may have lost all its records."""
    out, aborted, offset = bytearray(), [], 0
    for number, (count, kind, gap) in enumerate(shapes):
        offset += gap
        some = MARKER if kind == "marker" else records(count)
        batch = bytearray(
            build_batch(
                some,
                codec=Codec(number % 5) if some else Codec.NONE,
                producer_id=number,
                transactional=kind != "plain",
                control=kind == "marker",
            )
        )
        struct.pack_into(">q", batch, 0, offset)
        last = offset + max(len(some) - 1, 0)
        struct.pack_into(">i", batch, 23, last - offset)
        out += resealed(batch)
        if kind == "aborted":
            aborted.append(Aborted(producer_id=number, first=offset, last=last))
        offset = last + 1
    return bytes(out), aborted


def resealed(batch: bytearray) -> bytearray:
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return batch


@quick(200)
@given(SHAPES, st.integers(0, 30), st.integers(0, 30))
def test_counting_comes_to_what_reading_does(
    shapes: list[tuple[int, str, int]], first: int, end: int
) -> None:
    segment, aborted = laid(shapes)
    heads = without_aborted(scan_heads(segment, 0, len(segment)), aborted)
    wanted = Wanted(columns=("offset",), first=first, end=end)
    read = [
        offset for batch in read_columns(segment, heads, wanted) for offset in batch["offset"].to_pylist()
    ]
    assert count_records(segment, heads, first, end) == len(read)
    gone = {offset for each in aborted for offset in range(each.first, each.last + 1)}
    assert not gone & set(read)


@pytest.mark.parametrize(
    ("bases", "whole"),
    [
        ((5, 8), True),
        ((5, 9), True),
        ((4, 8), False),
        ((5, 7), False),
        ((8, 5), False),
        ((5, 1 << 62), False),
    ],
)
def test_batches_that_are_not_in_their_place_are_refused(bases: tuple[int, int], whole: bool) -> None:
    """No checksum covers the position of a batch."""
    out = bytearray()
    for base in bases:
        batch = bytearray(build_batch(records(3)))
        struct.pack_into(">q", batch, 0, base)
        out += batch
    heads = scan_heads(bytes(out), 0, len(out))
    if whole:
        return check_offsets(heads, 5, 11)
    with pytest.raises(CorruptSegment, match="its place"):
        check_offsets(heads, 5, 11)
