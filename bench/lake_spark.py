"""The CPU seconds for reading topics with Spark, of the JVM and the Python processes together, on one core.

    spark/engine/.venv/bin/python -m bench.lake_spark [--rounds 5] [--megabytes 256] [--codecs none,lz4] [--rows 1000]

Topics of a given size in a directory, in segments of 4 MiB of 100-byte values. Each query runs once to warm up and
then several times; the figure is the median. Planning is the cost of a query that no segment matches; the second
figure excludes it. The query for ten rows by offset reads a topic of `--rows` megabytes. Bytes are those that planning
and tasks read, as Linux counts them for their processes.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
from kafscale.lake.catalog import Lake, Log
from kafscale.runtime.settings import ServiceSettings
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import StoreConfig, open_store
from kafscale.testkit.etcd import start_etcd
from kafscale.wire.records import Codec
from kafscale_spark.batch import PushingReader
from kafscale_spark.schemas import arrow_schema
from kafscale_spark.session import LARGE, local
from kafscale_spark.source import KafscaleSource
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from bench.lake import built

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER: Final = 36
NAMESPACE: Final = "bench"
COUNTED: Final = "kafscale_counted"
NARROW: Final = "offset long, timestamp timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The topics, and the options by which Spark finds them."""

    spark: SparkSession
    folder: Path
    endpoint: str
    etcd_pid: int

    def read(self, topic: str, *, source: str = "kafscale", columns: str = "", **options: str) -> DataFrame:
        reader = self.spark.read.format(source).options(
            **{
                "kafscale.etcd_endpoints": self.endpoint,
                "kafscale.namespace": NAMESPACE,
                "kafscale.object_store": "dir",
                "kafscale.object_dir": str(self.folder / "objects"),
                "subscribe": topic,
                **options,
            }
        )
        return (reader.schema(columns) if columns else reader).load()

    def cpu_s(self) -> float:
        """CPU seconds of this process, the JVM and all its descendants, including ended ones; not of etcd."""
        found, ticks, due = processes(), 0, [os.getpid()]
        while due:
            one = due.pop()
            ticks += found[one][1]
            due += [pid for pid, (above, _) in found.items() if above == one and pid != self.etcd_pid]
        return ticks / TICKS_PER_S

    def read_bytes(self) -> int:
        """The bytes that a counted query has read; call it once."""
        files = list(self.folder.glob("*.read"))
        total = sum(int(file.read_text()) for file in files)
        for file in files:
            file.unlink()
        return total


def adopt_orphans() -> None:
    """Spark ends Python processes before their children. As subreaper, this process adopts the children, so that their
    CPU ticks are counted."""
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def processes() -> dict[int, tuple[int, int]]:
    """The parent of each process, and its CPU ticks with those of children that have ended."""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # the process has ended
        found[int(name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    return found


class CountedSource(KafscaleSource):
    """The data source; its processes leave files with the number of bytes that they read."""

    @classmethod
    def name(cls) -> str:
        return COUNTED

    def reader(self, schema: StructType) -> PushingReader:
        return CountedReader(self._settings, self._request, arrow_schema(schema))


class CountedReader(PushingReader):
    def partitions(self) -> Sequence[InputPartition]:
        with counted(self._settings):
            return super().partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with counted(self._settings):
            yield from super().read(partition)


@contextmanager
def counted(settings: ServiceSettings) -> Iterator[None]:
    before = process_read_bytes()
    yield
    assert settings.object_dir is not None
    (settings.object_dir.parent / f"{uuid4()}.read").write_text(str(process_read_bytes() - before))


def process_read_bytes() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def cost_s(place: Place, rounds: int, run: Callable[[], object]) -> float:
    """The median CPU seconds of a query that has run before."""
    seconds = []
    for _ in range(rounds + 1):
        before = place.cpu_s()
        run()
        seconds.append(place.cpu_s() - before)
    return statistics.median(seconds[1:])


def to_nothing(rows: DataFrame) -> None:
    """Sends every row and column to the JVM, and discards it there."""
    rows.write.format("noop").mode("overwrite").save()


def queries(place: Place, topic: str) -> Mapping[str, Callable[[], object]]:
    everything = place.read(topic)
    return {
        "all columns": lambda: to_nothing(everything),
        "offset and timestamp": lambda: to_nothing(place.read(topic, columns=NARROW)),
        "sum of lengths": lambda: everything.selectExpr("sum(length(value))").collect(),
        "group by key": lambda: to_nothing(everything.groupBy("key").count()),
        "count by `batches`": lambda: place.read(topic, table="batches").selectExpr("sum(records)").collect(),
        "count by `segments`": lambda: (
            place.read(topic, table="segments").selectExpr("sum(records)").collect()
        ),
    }


def measure(place: Place, topic: str, log: Log, rounds: int) -> None:
    planning_s = cost_s(place, rounds, lambda: to_nothing(place.read(topic).where("offset < 0")))
    print(f"| {topic}: planning | {planning_s:.2f} | | |", flush=True)
    for name, run in queries(place, topic).items():
        used_s = cost_s(place, rounds, run)
        overall, marginal = log.end / used_s / 1e6, log.end / max(used_s - planning_s, 1e-6) / 1e6
        print(f"| {topic}: {name} | {used_s:.2f} | {overall:.2f} | {marginal:.2f} |", flush=True)


def measure_rows(place: Place, topic: str, log: Log, rounds: int) -> None:
    middle = log.end // 2
    ten = f"offset >= {middle} and offset < {middle + 10}"
    used_s = cost_s(place, rounds, lambda: place.read(topic).where(ten).collect())
    found = place.read(topic, source=COUNTED).where(ten).collect()
    assert len(found) == 10, len(found)
    whole = sum(seg.size for seg in log.segments)
    print(
        f"\n10 rows by offset of {log.end:,} in {len(log.segments)} segments: {used_s:.2f} CPU s, "
        f"{100 * place.read_bytes() / whole:.2f} % of {whole / 1e6:,.0f} MB read",
        flush=True,
    )


async def topics(folder: Path, endpoint: str, options: argparse.Namespace) -> dict[str, Log]:
    etcd = EtcdClient.connect([endpoint])
    store = open_store(StoreConfig(kind="dir", directory=folder / "objects"))
    lake = Lake(etcd, Keyspace(NAMESPACE), store)
    try:
        found = {
            name: await built(lake, options.megabytes, name, Codec[name.upper()])
            for name in filter(None, options.codecs.split(","))
        }
        return found | ({"rows": await built(lake, options.rows, "rows")} if options.rows else {})
    finally:
        await store.close()
        await etcd.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=256, help="before compression")
    parser.add_argument("--codecs", default="none,lz4")
    parser.add_argument("--rows", type=int, default=1_000, help="megabytes; 0: no such topic")
    options = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="kafscale-lake-") as name, start_etcd(Path(name)) as server:
        logs = asyncio.run(topics(Path(name), server.endpoint, options))
        spark = local("bench", 1, LARGE)
        spark.dataSource.register(CountedSource)
        assert server.pid is not None
        place = Place(spark=spark, folder=Path(name), endpoint=server.endpoint, etcd_pid=server.pid)
        print("| topic and query | CPU s | million records per CPU s | without planning |\n|---|---|---|---|")
        for topic, log in logs.items():
            (measure_rows if topic == "rows" else measure)(place, topic, log, options.rounds)
        spark.stop()


if __name__ == "__main__":
    main()
