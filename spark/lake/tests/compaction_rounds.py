"""Compacted topics for rounds of compaction, and what readers, fsck and a collector of orphans say of them after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

from kafscale.lake.catalog import Lake, Log, read_lake
from kafscale.lake.columns import Wanted
from kafscale.lake.compaction.report import Report
from kafscale.lake.compaction.run import Bounds, Round
from kafscale.lake.scan import scan
from kafscale.log.heads import Meta, decode_head, decode_meta
from kafscale.operations.fsck.run import Fsck
from kafscale.storage.keys import index_beside
from kafscale.testkit.logbuilder import LogBuilder
from kafscale.wire.records import Codec, Record, records_in

from .shop import Shop

NOW = 1_000_000
KEEP_MS = 5_000
Row = tuple[int, bytes | None, bytes | None]
DUE = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.1", "delete_retention_ms": str(KEEP_MS)}


def some(count: int, at: int, *, keys: int = 7) -> list[Record]:
    """Keys come again and again; every fifth record deletes its key."""
    return [
        Record(
            timestamp=100 + at + n,
            key=b"k%d" % ((at + n) % keys),
            value=None if (at + n) % 5 == 0 else b"value %d" % (at + n),
        )
        for n in range(count)
    ]


async def grow(log: LogBuilder, segments: int, codecs: Iterator[Codec]) -> None:
    for _ in range(segments):
        at = log.next
        await log.append(some(4, at), some(3, at + 4), codec=next(codecs))


async def build(shop: Shop, name: str = "t", **configs: str) -> LogBuilder:
    """Three chunks, of which the second holds two epochs, and a tail of two."""
    log = await shop.topic(name, **(DUE | configs))
    codecs = cycle(Codec)
    await grow(log, 3, codecs)
    await log.checkpoint()
    await grow(log, 2, codecs)
    await log.claim(2)
    await grow(log, 2, codecs)
    await log.checkpoint()
    await grow(log, 4, codecs)
    await log.checkpoint(keep=2)
    return log


def rows_in(batches: Sequence[bytes]) -> list[Row]:
    return [(record.offset, record.key, record.value) for batch in batches for record in records_in(batch)]


def produced(log: LogBuilder) -> list[Row]:
    return rows_in([batch.data for batch in log.batches])


def kept(log: LogBuilder, *, tail: int = 2) -> list[Row]:
    """By a walk with a dict: what one pass leaves, as all but the tail may be compacted."""
    reach = log.segments[-tail].base
    newest = {key: offset for offset, key, _ in produced(log) if offset < reach}
    return [row for row in produced(log) if row[0] >= reach or row[0] >= newest[row[1]]]


async def read(lake: Lake, name: str = "t") -> list[Row]:
    (log,) = await read_lake(lake, [name])
    found: list[Row] = []
    async for batch in scan(lake, log, Wanted()):
        found += zip(*(batch[column].to_pylist() for column in ("offset", "key", "value")), strict=True)
    return found


async def compact(lake: Lake, *, now_ms: int = NOW, **bounds: Any) -> Report:
    done = Round(lake, Bounds(grace_s=0, **bounds), lambda *_: None, lambda: now_ms)
    return await done.run()


async def only(lake: Lake, name: str = "t") -> Log:
    (log,) = await read_lake(lake, [name])
    return log


async def meta_of(shop: Shop, log: LogBuilder) -> Meta:
    kv = await shop.etcd.get(shop.keys.meta(log.topic.topic_id, 0))
    assert kv is not None
    return decode_meta(kv.value)


async def is_sound(shop: Shop) -> set[str]:
    """etcd and the objects agree. Returns the objects that nothing names."""
    verdict = await Fsck(shop.etcd, shop.keys, shop.store, lambda *_: None).run()
    assert verdict.problems == []
    named = set()
    for log in await read_lake(shop.lake()):
        named |= {chunk.key for chunk in log.meta.chunks}
        for seg in log.segments:
            key = shop.lake().place_of(log, seg).key
            named |= {key, index_beside(key)}
        kv = await shop.etcd.get(shop.keys.head(log.topic.topic_id, log.partition))
        assert kv is not None
        held = sum(seg.size for seg in log.segments)
        if log.meta.log_start == 0:
            assert decode_head(kv.value).bytes - log.meta.freed == held, "the size that tools report"
    assert named <= shop.store.names()
    return shop.store.names() - named


def last_values(rows: Sequence[Row]) -> dict[bytes | None, bytes | None]:
    """What a consumer that reads all of it holds in the end."""
    return {key: value for _, key, value in rows}
