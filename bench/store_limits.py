"""`python -m bench.store_limits`: the throughput of each object store alone, without KafScale's services.

Conditional PUTs of new keys with the metadata of a segment, and GETs of these objects; for the directory store, also a
bare write and fsync of the same bytes on the same disk. Figures are for comparing within a run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from kafscale.storage.objects import IfAbsent, MemoryStore, ObjectStore, StoreConfig, open_store
from kafscale.testkit.seaweed import SeaweedServer

SIZES = (1 << 10, 64 << 10, 1 << 20, 4 << 20)
CONCURRENCY = (1, 4)
OPERATIONS_MAX = 2000
OPERATIONS_MIN = 8
METADATA = {"kfs-topic-id": "a" * 32, "kfs-epoch": "3", "kfs-attempt": "b" * 32, "kfs-last": "123456789"}

Operation = Callable[[int], Awaitable[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of the table."""

    what: str
    size: int
    concurrency: int
    per_s: float
    p50_ms: float
    p99_ms: float
    cpu_ms: float

    def row(self) -> str:
        size = f"{self.size >> 20} MiB" if self.size >= 1 << 20 else f"{self.size >> 10} KiB"
        megabytes = self.per_s * self.size / 1e6
        return (
            f"| {self.what} | {size} | {self.concurrency} | {self.per_s:,.0f} | {megabytes:,.1f} "
            f"| {self.p50_ms:.2f} | {self.p99_ms:.2f} | {self.cpu_ms:.2f} |"
        )


COLUMNS = ("request", "size", "at once", "per s", "MB/s", "p50 ms", "p99 ms", "client CPU ms")
HEADER = "| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|"


async def measure(what: str, size: int, concurrency: int, seconds: float, operation: Operation) -> Figure:
    """Runs the operation, `concurrency` at a time, until the time or the count is used up."""
    took: list[float] = []
    numbers = iter(range(OPERATIONS_MAX))
    await operation(OPERATIONS_MAX)  # creates connections, directories and threads
    started, cpu = time.perf_counter(), time.process_time()

    async def work() -> None:
        for number in numbers:
            before = time.perf_counter()
            await operation(number)
            took.append((time.perf_counter() - before) * 1e3)
            if time.perf_counter() - started > seconds and len(took) >= OPERATIONS_MIN:
                return

    await asyncio.gather(*(work() for _ in range(concurrency)))
    elapsed = time.perf_counter() - started
    return Figure(
        what=what,
        size=size,
        concurrency=concurrency,
        per_s=len(took) / elapsed,
        p50_ms=statistics.median(took),
        p99_ms=sorted(took)[int(len(took) * 0.99)],
        cpu_ms=(time.process_time() - cpu) * 1e3 / len(took),
    )


async def measure_store(store: ObjectStore, seconds: float) -> AsyncIterator[Figure]:
    await store.probe()
    for size in SIZES:
        body = [os.urandom(size)]
        for concurrency in CONCURRENCY:
            folder = f"bench/{size}/{concurrency}"
            put = _putting(store, folder, body)
            figure = await measure("PUT", size, concurrency, seconds, put)
            yield figure
            count = max(1, int(figure.per_s * seconds * 0.9))
            yield await measure("GET", size, concurrency, seconds, _getting(store, folder, count))


def _putting(store: ObjectStore, folder: str, body: list[bytes]) -> Operation:
    return lambda n: store.put(f"{folder}/{n:020d}.kfs", body, condition=IfAbsent(), metadata=METADATA)


def _getting(store: ObjectStore, folder: str, count: int) -> Operation:
    return lambda n: store.get(f"{folder}/{n % min(count, OPERATIONS_MIN):020d}.kfs")


def _bare_write(folder: Path, body: bytes) -> Operation:
    def write(number: int) -> None:
        fd = os.open(folder / str(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            os.write(fd, body)
            os.fsync(fd)
        finally:
            os.close(fd)

    return lambda number: asyncio.to_thread(write, number)


async def bare_disk(folder: Path, seconds: float) -> AsyncIterator[Figure]:
    for size in SIZES:
        body = os.urandom(size)
        for concurrency in CONCURRENCY:
            target = folder / f"{size}-{concurrency}"
            target.mkdir(parents=True)
            yield await measure("write+fsync", size, concurrency, seconds, _bare_write(target, body))


@asynccontextmanager
async def opened(name: str, folder: Path) -> AsyncIterator[ObjectStore]:
    server: SeaweedServer | None = None
    store: ObjectStore
    if name == "memory":
        store = MemoryStore()
    elif name == "directory":
        store = open_store(StoreConfig(kind="dir", directory=folder / "objects"))
    else:
        server = SeaweedServer(folder / "seaweed")
        server.start()
        await server.wait_ready_async()
        store = open_store(StoreConfig(kind="s3", s3=server.s3_config()))
    try:
        yield store
    finally:
        await store.close()
        if server is not None:
            server.kill()


async def run(names: list[str], folder: Path, seconds: float) -> None:
    for name in names:
        print(f"\n## {name}\n\n{HEADER}", flush=True)
        if name == "disk":
            async for figure in bare_disk(folder / "disk", seconds):
                print(figure.row(), flush=True)
            continue
        async with opened(name, folder) as store:
            async for figure in measure_store(store, seconds):
                print(figure.row(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", default="disk,directory,memory,seaweedfs")
    parser.add_argument("--seconds", type=float, default=1.0, help="per row")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafscale-bench-") as folder:
        uvloop.run(run(options.stores.split(","), Path(folder), options.seconds))


if __name__ == "__main__":
    main()
