"""The CPU seconds for reading topics without a broker: a figure that hardly depends on other load of the machine.

    python -m bench.lake [--rounds 5] [--megabytes 256] [--only parse,scan,rows,sql,export]

Segments of 4 MiB. `parse` reads one from memory: millions of records per CPU second, the best of the rounds, for all
columns and for fewer. The rest reads a topic of that many megabytes of 100-byte values out of a directory, once each:
`scan` all columns, `rows` and `sql` DuckDB over it, with the share of the topic's bytes that each query read, `export`
to Parquet.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import struct
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final

from kafscale.lake.catalog import Lake, Log, read_lake
from kafscale.lake.columns import FIELDS, Wanted, read_columns
from kafscale.lake.export.run import export
from kafscale.lake.heads import scan_heads
from kafscale.lake.scan import scan
from kafscale.lake.sql import stream
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectStore, StoreConfig, open_store
from kafscale.testkit.etcd import start_etcd
from kafscale.testkit.logbuilder import LogBuilder, create_topic
from kafscale.wire.records import Codec, Record, build_batch

SEGMENT_BYTES: Final = 4 << 20
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "all columns": tuple(FIELDS),
    "key and value": ("key", "value"),
    "key": ("key",),
    "offset and timestamp": ("offset", "timestamp"),
}
RECORD_BYTES: Final = 123
"""The bytes of a record of SMALL, with key and lengths."""
DIFFERENT: Final = 256
COUNTRIES: Final = ("de", "fr", "it", "nl", "pl", "se")


@dataclass(frozen=True, slots=True)
class Shape:
    """Records of a segment: their size, number per batch, and number of headers."""

    name: str
    value_bytes: int
    batch_records: int
    headers: int = 0


SMALL: Final = Shape("100 B", 100, 130)
SHAPES: Final = (
    SMALL,
    Shape("100 B, 2 headers", 100, 130, 2),
    Shape("1 KB", 1_000, 60),
    Shape("60 B, 4 in a batch", 60, 4),
)


def batch(shape: Shape, codec: Codec, first: int, chance: random.Random) -> bytes:
    records = []
    for offset in range(first, first + shape.batch_records):
        value = {"id": offset, "country": chance.choice(COUNTRIES), "amount": chance.randrange(100_000) / 100}
        records.append(
            Record(
                timestamp=1_700_000_000_000 + offset,
                key=b"customer-%04d" % chance.randrange(5_000),
                value=json.dumps(value).ljust(shape.value_bytes).encode()[: shape.value_bytes],
                headers=(("trace", b"%016x" % offset), ("source", b"web"))[: shape.headers],
            )
        )
    return build_batch(records, codec=codec)


def batches(shape: Shape, codec: Codec) -> list[bytes]:
    """The batches of one segment. They alternate among more variants than a codec's or Parquet's window holds."""
    chance = random.Random(1)
    different = [batch(shape, codec, number * shape.batch_records, chance) for number in range(DIFFERENT)]
    count = SEGMENT_BYTES * DIFFERENT // sum(map(len, different))
    return list(islice(cycle(different), count))


def laid(some: list[bytes], records: int) -> bytes:
    out = bytearray()
    for number, one in enumerate(some):
        at = len(out)
        out += one
        struct.pack_into(">q", out, at, number * records)
    return bytes(out)


def parse(rounds: int) -> None:
    print("| parse, million records per CPU s | " + " | ".join(COLUMNS) + " | MB/s of the segment |")
    print("|---|" + "---|" * (len(COLUMNS) + 1))
    for shape in SHAPES:
        for codec in Codec if shape is SMALL else (Codec.NONE, Codec.LZ4):
            some = batches(shape, codec)
            segment, rows = laid(some, shape.batch_records), len(some) * shape.batch_records
            seconds = [_parse_s(segment, columns, rounds, rows) for columns in COLUMNS.values()]
            figures = " | ".join(f"{rows / each / 1e6:.2f}" for each in seconds)
            print(
                f"| {shape.name}, {codec.name.lower()} | {figures} | {len(segment) / seconds[0] / 1e6:.0f} |",
                flush=True,
            )


def _parse_s(segment: bytes, columns: tuple[str, ...], rounds: int, rows: int) -> float:
    best = []
    for _ in range(rounds):
        begin = time.process_time()
        found = read_columns(segment, scan_heads(segment, 0, len(segment)), Wanted(columns=columns))
        count = sum(each.num_rows for each in found)
        best.append(time.process_time() - begin)
        assert count == rows, (count, rows)
    return min(best)


class Counting:
    """A store that counts the bytes read."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get(self, key: str, **how: Any) -> bytes:
        found = await self._store.get(key, **how)
        self.bytes += len(found)
        return found


async def query(lake: Lake, logs: Sequence[Log], text: str) -> int:
    """The number of rows of the answer."""
    return sum([batch.num_rows async for batch in stream(lake, logs, text)])


async def built(lake: Lake, megabytes: int, name: str = "orders", codec: Codec = Codec.NONE) -> Log:
    """A topic of this size before compression: the batches of the same segment, repeated."""
    log = LogBuilder(lake.etcd, lake.keys, lake.store, await create_topic(lake.etcd, lake.keys, name))
    some = batches(SMALL, codec)
    segment_bytes = RECORD_BYTES * SMALL.batch_records * len(some)  # with no codec
    for _ in range(-(-megabytes * 1_000_000 // segment_bytes)):
        await log.append_raw(some)
        log.batches.clear()
        if len(log.head.tail) > 24:
            await log.checkpoint(keep=8)
    (found,) = await read_lake(lake, [name])
    return found


Work = Callable[[], Awaitable[object]]


async def timed(what: str, records: int, store: Counting, whole: int, work: Work) -> None:
    store.bytes = 0
    begin = time.process_time()
    await work()
    used = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"| {what} | {used:.2f} | {records / used / 1e6:.2f} | {100 * store.bytes / whole:.2f} % | {peak} |",
        flush=True,
    )


QUERIES: Final[Mapping[str, str]] = {
    "count": "select count(*) from records",
    "count by header": "select sum(records) from batches",
    "sum of lengths": "select sum(octet_length(value)) from records",
    "group by key": "select key, count(*) from records group by 1",
    "group by a JSON field": "select decode(value) ->> '$.country', count(*) from records group by 1",
}


async def through(store: Counting, etcd: EtcdClient, options: argparse.Namespace, folder: Path) -> None:
    lake = Lake(etcd, Keyspace("bench"), store)
    log = await built(lake, options.megabytes)
    whole = sum(seg.size for seg in log.segments)
    middle = log.end // 2
    print(f"\na topic of {log.end:,} records in {len(log.segments)} segments, {whole / 1e6:,.0f} MB\n")
    print(
        "| | CPU s | million records per CPU s | of the topic's bytes | peak memory, MiB |\n|---|---|---|---|---|"
    )

    async def all_columns() -> None:
        async for _ in scan(lake, log, Wanted()):
            pass

    async def ten_rows() -> None:
        text = f'select * from records where "offset" >= {middle} and "offset" < {middle + 10}'
        assert await query(lake, [log], text) == 10

    await query(lake, [], "select 1")  # so that imports and the first connection are not measured
    if "scan" in options.only:
        await timed("scan, all columns", log.end, store, whole, all_columns)
    if "rows" in options.only:
        await timed("SQL, 10 rows by offset", log.end, store, whole, ten_rows)
    if "sql" in options.only:
        for name, text in QUERIES.items():
            await timed(f"SQL, {name}", log.end, store, whole, partial(query, lake, [log], text))
    if "export" in options.only:
        await timed("export to Parquet", log.end, store, whole, partial(export, lake, [log], folder / "out"))


async def over_a_directory(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="kafscale-lake-") as name, start_etcd(Path(name)) as server:
        etcd = EtcdClient.connect([server.endpoint])
        store = open_store(StoreConfig(kind="dir", directory=Path(name) / "objects"))
        try:
            await through(Counting(store), etcd, options, Path(name))
        finally:
            await store.close()
            await etcd.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument(
        "--only", default="parse,scan,rows,sql,export", help="of parse, scan, rows, sql, export"
    )
    options = parser.parse_args()
    options.only = frozenset(options.only.split(","))
    if "parse" in options.only:
        parse(options.rounds)
    if options.only - {"parse"}:
        asyncio.run(over_a_directory(options))


if __name__ == "__main__":
    main()
