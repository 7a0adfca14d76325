"""Compaction of a log with transactions: readers get what is committed in every state, and markers go in the end.

The planted mistakes are those of the model: a marker that goes before the records of its transaction, an entry that
outlives its marker, and a pass that stamps markers although it began in the middle of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from kafscale.lake.catalog import Log
from kafscale.lake.compaction import run
from kafscale.lake.compaction.latest_offsets import LatestOffsetsBuilder
from kafscale.lake.compaction.markers import LoneMarkers
from kafscale.lake.compaction.record_filter import filter_records
from kafscale.lake.compaction.rewrite import Rewritten, rewrite
from kafscale.lake.heads import Heads
from kafscale.log.isolation import AbortedSearch, aborted_in
from kafscale.log.segments import first_at
from kafscale.log.snapshots import EXPIRY_MS
from kafscale.testkit.logbuilder import LogBuilder, marker, transactional
from kafscale.wire.batches import CONTROL, DELETE_HORIZON
from kafscale.wire.markers import Marker, marker_of
from kafscale.wire.records import Record, build_batch, records_in, split_batches

from .compaction_logs import LogOf
from .compaction_logs import marker as transactions_end
from .compaction_rounds import DUE, KEEP_MS, compact, is_sound, meta_of, only, read
from .shop import Shop

LATER = EXPIRY_MS + 1_000_000
"""No producer is live any more, so nothing stays for its sake."""
ROUNDS = tuple(LATER + n * (KEEP_MS + 1) for n in range(5))


async def written(shop: Shop, seed: int) -> tuple[LogBuilder, set[int], dict[int, list[int]]]:
    """Transactions of three producers over few keys and some that never come again, all decided, and records of none.
    The offsets of committed records; and by the offset of each commit marker the records of its transaction."""
    log = await shop.topic("t", segment_bytes="900", **DUE)
    chance, begun, committed, offset = Random(seed), dict[int, list[int]](), set[int](), 0
    commits: dict[int, list[int]] = {}
    for number in range(16):
        batches = []
        for _ in range(chance.randint(1, 3)):
            producer = chance.randrange(3)
            if producer in begun and (chance.random() < 0.5 or number > 11):
                commit = chance.random() < 0.5
                batches.append(marker(producer, commit=commit))
                ended = begun.pop(producer)
                committed.update(ended if commit else ())
                commits |= {offset: ended} if commit else {}
                offset += 1
            elif number <= 11:
                key = b"only %d" % offset if chance.random() < 0.2 else b"k%d" % chance.randrange(4)
                batches.append(transactional(producer, [Record(timestamp=100 + offset, key=key, value=b"v")]))
                begun.setdefault(producer, []).append(offset)
                offset += 1
        for producer in list(begun) if number == 15 else []:
            batches.append(marker(producer, commit=False))
            del begun[producer]
            offset += 1
        plain = [Record(timestamp=100 + offset, key=b"k%d" % chance.randrange(4), value=b"p")]
        batches.append(build_batch(plain))
        committed.add(offset)
        offset += 1
        await log.append_raw(batches)
        if number % 5 == 4:
            await log.checkpoint()
    for n in range(4):
        await log.append([Record(timestamp=1_000, key=b"k%d" % n, value=b"last")])
        committed.add(offset)
        offset += 1
    await log.checkpoint(keep=1)
    assert not log.head.open
    return log, committed, commits


async def bytes_of(shop: Shop, log: Log) -> bytes:
    lake = shop.lake()
    return b"".join([(await lake.fetch(log, seg))[32:-16] for seg in log.segments])


def delivered(data: bytes, log: Log, first: int, end: int) -> list[int]:
    """What the Java consumer makes of an answer with the batches of [first, end)."""
    search = AbortedSearch(first, end)
    for seg in log.segments[first_at(log.segments, first) :]:
        if search.take(seg):
            break
    waiting, hidden, found = list(search.found), set[int](), list[int]()
    for header, batch in split_batches(data):
        if header.last_offset < first or header.base_offset >= end:
            continue
        while waiting and waiting[0].first <= header.last_offset:
            hidden.add(waiting.pop(0).producer_id)
        if header.is_control:
            ended = marker_of(batch, header)
            if ended is not None and not ended.commit:
                hidden.discard(header.producer_id)
        elif header.records_count and not (header.is_transactional and header.producer_id in hidden):
            found.append(header.base_offset)
    return found


async def judge(shop: Shop, committed: set[int]) -> None:
    """Every range of the log, and the whole of it as SQL reads it."""
    log = await only(shop.lake())
    data = await bytes_of(shop, log)
    stored = [
        header.base_offset
        for header, _ in split_batches(data)
        if header.records_count and not header.is_control
    ]
    for first in range(0, log.end, 3):
        for end in range(first + 1, log.end + 1, 4):
            right = [at for at in stored if at in committed and first <= at < end]
            assert delivered(data, log, first, end) == right, (first, end)
    assert [row[0] for row in await read(shop.lake())] == [at for at in stored if at in committed]
    markers = {
        header.base_offset for header, _ in split_batches(data) if header.is_control and header.records_count
    }
    assert {each.last for each in aborted_in(log.segments)} <= markers, "an entry outlives its marker"


async def rounds(shop: Shop, seed: int) -> dict[int, list[int]]:
    """Passes with new keys, and passes only for what is due. Returns what `written` says of commits."""
    log, committed, commits = await written(shop, seed)
    await judge(shop, committed)
    for number, now_ms in enumerate(ROUNDS):
        if number % 2:
            log.meta = await meta_of(shop, log)
            for _ in range(4):
                committed.update(range(log.next, log.next + 4))
                news = (Record(timestamp=2_000, key=b"k%d" % n, value=b"new" * 99) for n in range(4))
                await log.append(*([record] for record in news))
            await log.checkpoint(keep=1)
        await compact(shop.lake(), now_ms=now_ms)
        await judge(shop, committed)
        await is_sound(shop)
    return commits


@pytest.mark.parametrize("seed", range(4))
async def test_committed_records_stay_visible_and_markers_go_in_the_end(seed: int) -> None:
    shop = Shop()
    commits = await rounds(shop, seed)
    log = await only(shop.lake())
    stored = [header for header, _ in split_batches(await bytes_of(shop, log)) if header.records_count]
    left = {header.base_offset for header in stored if not header.is_control}
    markers = [header.base_offset for header in stored if header.is_control]
    assert markers == [at for at, offsets in commits.items() if left.intersection(offsets)]
    assert aborted_in(log.segments) == ()
    assert 0 < len(markers) < len(commits)


class _Hasty(LoneMarkers):
    """Markers get their horizon before the records of their transaction are gone."""

    def take(self, heads: Heads) -> set[int]:
        marked = ((heads["attributes"] & CONTROL) != 0) & ((heads["attributes"] & DELETE_HORIZON) == 0)
        return set(np.flatnonzero(marked & (heads["records"] > 0)).tolist())


def marker_before_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run, "LoneMarkers", _Hasty)


def entry_outlives_marker(patch: pytest.MonkeyPatch) -> None:
    def without(*args: Any, **more: Any) -> Rewritten:
        return replace(rewrite(*args, **more), markers_gone=frozenset())

    patch.setattr(run, "rewrite", without)


def pass_begins_in_the_middle(patch: pytest.MonkeyPatch) -> None:
    """Also a pass for what is due alone, which passes over other segments."""
    patch.setattr(run, "LoneMarkers", lambda from_start: LoneMarkers(from_start=True))


async def beside_a_tombstone() -> None:
    """A tombstone is due in the segment of a marker whose transaction has its record in the segment before."""
    shop = Shop()
    log = await shop.topic("t", segment_bytes="1", **DUE)
    await log.append_raw([transactional(7, [Record(timestamp=1, key=b"only", value=b"v")])])
    await log.append_raw(
        [marker(7, commit=True), build_batch([Record(timestamp=1, key=b"gone", value=None)])]
    )
    await log.append([Record(timestamp=1, key=b"last", value=b"v")])
    await log.append([Record(timestamp=1, key=b"tail", value=b"v")])
    await log.checkpoint(keep=1)
    for now_ms in ROUNDS[:3]:
        await compact(shop.lake(), now_ms=now_ms)
        await judge(shop, {0, 2, 3, 4})
        await is_sound(shop)
    assert [row[0] for row in await read(shop.lake())] == [0, 3, 4]


async def test_a_pass_for_tombstones_alone_leaves_markers_as_they_are() -> None:
    await beside_a_tombstone()


async def everything() -> None:
    await beside_a_tombstone()
    for seed in range(8):
        await rounds(Shop(), seed)


@pytest.mark.parametrize("plant", [marker_before_records, entry_outlives_marker, pass_begins_in_the_middle])
async def test_a_planted_mistake_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        await everything()


def test_a_marker_keeps_its_time_and_its_outcome_with_its_horizon() -> None:
    log = LogOf(segments=[[transactions_end(7, commit=True, timestamp=1_234)]])
    judged = filter_records(log.sources, LatestOffsetsBuilder(0).done(), (), 10)
    made = rewrite(judged, LoneMarkers(from_start=True), now_ms=10, delete_retention_ms=5)
    ((header, batch),) = split_batches(b"".join(made.parts))
    assert header.attributes & DELETE_HORIZON
    assert (header.base_timestamp, header.max_timestamp, made.delete_horizon_ms) == (15, 1_234, 15)
    assert (made.min_ts, made.max_ts, made.changed) == (1_234, 1_234, True)
    assert next(records_in(batch, header)).timestamp == 1_234
    assert marker_of(batch, header) == Marker(True, 0)
