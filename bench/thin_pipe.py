"""`python -m bench.thin_pipe`: how much of a thin pipe to the object store arrives as stored segments.

The uploads of 1, 4, 16, 32 and 64 partitions go through the S3 adapter to SeaweedFS, behind a proxy that passes a few
MB/s in all, for any number of connections. Each partition has four full segments on their way, with their indexes, as
its writer does; a PUT without an answer is sent again. After a warm-up the run counts the bytes that the pipe carried,
and the bytes of the objects that were stored. The rest was sent for nothing.

`--unpaced` sends each PUT at once and cuts it off after ten seconds: the rule before PUTs had a pace.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import uvloop
from kafscale.produce.puts import Pace
from kafscale.runtime.clock import SystemClock
from kafscale.storage.objects import IfAbsent, ObjectStore, PreconditionFailed, StoreUnavailable
from kafscale.storage.objects.s3 import S3Store
from kafscale.testkit.proxy import FaultProxy
from kafscale.testkit.seaweed import SeaweedServer

PARTITIONS = (1, 4, 16, 32, 64)
PIPELINE = 4
SEGMENT = os.urandom(4 << 20)
INDEX = os.urandom(2_000)
CUT_OFF_S = 10.0
RETRY_S = (0.05, 2.0)
MB = 1_000_000
COLUMNS = ("partitions", "sent MB", "stored MB", "goodput, share of the pipe", "PUTs without an answer")

Put = Callable[[str, bytes], Awaitable[object]]


class Uploads:
    """What the writers of many partitions send."""

    def __init__(self, put: Put) -> None:
        self._put = put
        self.stored_bytes = 0
        self.unanswered = 0

    async def run(self, partitions: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            for slot in range(partitions * PIPELINE):
                tasks.create_task(self._segments(slot))

    async def _segments(self, slot: int) -> None:
        for number in itertools.count():
            name = f"thin/{slot}/{number:020d}"
            await asyncio.gather(self._store(f"{name}.kfs", SEGMENT), self._store(f"{name}.index", INDEX))

    async def _store(self, key: str, body: bytes) -> None:
        retry_s, retry_max_s = RETRY_S
        while True:
            try:
                await self._put(key, body)
            except PreconditionFailed:  # an earlier PUT of ours arrived after all
                break
            except (StoreUnavailable, TimeoutError):
                self.unanswered += 1
                await asyncio.sleep(retry_s)
                retry_s = min(2 * retry_s, retry_max_s)
            else:
                break
        self.stored_bytes += len(body)


def paced(store: ObjectStore) -> Put:
    pace = Pace(store, SystemClock())
    return lambda key, body: pace.put(key, (body,), condition=IfAbsent())


def unpaced(store: ObjectStore) -> Put:
    async def put(key: str, body: bytes) -> None:
        async with asyncio.timeout(CUT_OFF_S):
            await store.put(key, (body,), condition=IfAbsent())

    return put


async def measure(
    server: SeaweedServer,
    partitions: int,
    bytes_per_s: int,
    warm_s: float,
    run_s: float,
    how: Callable[[ObjectStore], Put],
) -> str:
    port = urlsplit(server.endpoint).port
    assert port is not None
    async with FaultProxy("127.0.0.1", port) as proxy:
        proxy.thin(bytes_per_s)
        config = server.s3_config(f"thin-{partitions}", create_bucket=True)
        store = S3Store(replace(config, endpoint=f"http://{proxy.address}"))
        await store.probe()
        uploads = Uploads(how(store))
        working = asyncio.create_task(uploads.run(partitions))
        await asyncio.wait({working}, timeout=warm_s)
        sent, stored, unanswered = proxy.up.passed_bytes, uploads.stored_bytes, uploads.unanswered
        await asyncio.wait({working}, timeout=run_s)
        sent, stored = proxy.up.passed_bytes - sent, uploads.stored_bytes - stored
        working.cancel()
        await asyncio.wait({working})
        await store.close()
    share = stored / (bytes_per_s * run_s)
    unanswered = uploads.unanswered - unanswered
    return f"| {partitions} | {sent / MB:.0f} | {stored / MB:.0f} | {share:.0%} | {unanswered} |"


async def run(
    counts: list[int], bytes_per_s: int, warm_s: float, run_s: float, how: Callable[[ObjectStore], Put]
) -> None:
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    with tempfile.TemporaryDirectory(prefix="kafscale-bench-") as folder:
        server = SeaweedServer(Path(folder) / "weed")
        server.start()
        try:
            await server.wait_ready_async()
            for count in counts:
                print(await measure(server, count, bytes_per_s, warm_s, run_s, how), flush=True)
        finally:
            server.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", default=",".join(map(str, PARTITIONS)))
    parser.add_argument("--mb-per-s", type=float, default=8.0, help="what the pipe carries")
    parser.add_argument("--warm-s", type=float, default=20.0)
    parser.add_argument("--seconds", type=float, default=60.0, help="per line")
    parser.add_argument("--unpaced", action="store_true", help="as it was before PUTs had a pace")
    options = parser.parse_args()
    counts = [int(count) for count in options.partitions.split(",")]
    rate = int(options.mb_per_s * MB)
    how = unpaced if options.unpaced else paced
    uvloop.run(run(counts, rate, options.warm_s, options.seconds, how))


if __name__ == "__main__":
    main()
