"""`python -m bench.store_requests`: requests that a running KafScale makes, with what `kafscale cost` computes.

Records of 1,000 bytes arrive at random times and evenly over the partitions, and one consumer reads them. Many
producers send them, so that most records arrive in a request of their own, as `kafscale cost` assumes. The run counts
as `kafscale cost --now` does, and compares that with the computed figures for the rate that arrived. That rate is lower
than `--rate-mb` if the machine is too slow.

The default store is SeaweedFS with 20 ms added to a PUT, because the formulas assume the times of S3. The time of a
flush decides the number of segments. So the figures are also computed for the time that was measured. The budgets are
those on S3.

A partition settles after 4 MiB or after 15 minutes. A short run with bundles sees little or nothing of that.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafscale.cli.cost.load import MB, Load, Requests, Tuning
from kafscale.cli.cost.measure import Measured, measure
from kafscale.cli.cost.model import with_bundles, without_bundles
from kafscale.cli.status.gather import scrape
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace

from bench.lines import create
from bench.systems import KafScale, on_directory, on_s3
from bench.tools import load
from e2e.harness.cluster import Cluster
from e2e.harness.services import until

TOPIC: Final = "requests"
RECORD_BYTES: Final = 1_000
PRODUCERS: Final = 50
WARM_S: Final = 5
START_TIMEOUT_S: Final = 60.0
LOAD_LONGER: Final = 1.2
LATE_S: Final = 15
"""The load ends when nine tenths of its records were read. It outlasts the count, which begins after the warm-up."""
TUNING: Final = Tuning()
BUDGETS: Final = {
    "KAFSCALE_S3_PUTS_PER_S_MAX": str(TUNING.segments_per_s),
    "KAFSCALE_PRODUCE_SEGMENTS_PER_S": str(TUNING.segments_per_s),
    "KAFSCALE_BUNDLES_PER_S": str(TUNING.bundles_per_s),
    "KAFSCALE_PRODUCE_LINGER_MS": str(TUNING.linger_ms),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Sums of all produce instances since their start."""

    at_s: float
    records: float
    puts: float
    flushes: float
    flush_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    counted: Measured
    records_per_s: float
    puts_per_s: float
    """By the produce service's own counter."""
    flush_s: float | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate-mb", type=float, default=1.0)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--instances", type=int, default=1, help="produce instances")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--bundles", action="store_true")
    parser.add_argument("--store", choices=("dir", "s3", "s3-far"), default="s3-far")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafscale-requests-") as folder:
        system = _system(Path(folder), options.store, options.bundles, options.instances)
        system.start()
        try:
            create(system, TOPIC, options.partitions)
            found = asyncio.run(_count(system, options.rate_mb, options.minutes * 60))
        finally:
            system.stop()
    of = Load(
        bytes_per_s=found.records_per_s * RECORD_BYTES,
        partitions=options.partitions,
        instances=options.instances,
        record_bytes=RECORD_BYTES,
    )
    compute = with_bundles if options.bundles else without_bundles
    computed = compute(of, TUNING)
    at_measured = compute(
        of, Tuning(flush_ms=round(found.flush_s * 1000) if found.flush_s else TUNING.flush_ms)
    )
    print(_report(found, computed, at_measured, options.rate_mb), flush=True)


def _system(folder: Path, store: str, bundles: bool, instances: int) -> KafScale:
    if store == "dir":
        system = on_directory(folder, bundles=bundles)
    else:
        system = on_s3(folder, far=store == "s3-far", bundles=bundles)
    system.cluster.env = {**system.cluster.env, **BUDGETS}
    system.cluster.scale = {"produce": instances}
    return system


async def _count(system: KafScale, rate_mb: float, seconds: float) -> Found:
    loading = asyncio.create_task(asyncio.to_thread(_load, system.bootstrap, rate_mb, seconds))
    try:
        enough = rate_mb * MB / RECORD_BYTES * WARM_S
        await asyncio.to_thread(
            until, "the load is warm", lambda: _counters(system.cluster).records >= enough, START_TIMEOUT_S
        )
        before = await asyncio.to_thread(_counters, system.cluster)
        etcd = EtcdClient.connect([system.cluster.inside().etcd])
        try:
            counted = await measure(etcd, Keyspace(), seconds)
        finally:
            await etcd.close()
        after = await asyncio.to_thread(_counters, system.cluster)
        if loading.done():
            await loading  # raises if it failed
    finally:
        await asyncio.wait({loading})  # the load program ends by itself, at the latest after its own deadline
    return _found(before, after, counted)


def _load(bootstrap: str, rate_mb: float, seconds: float) -> None:
    load(
        "endtoend",
        bootstrap,
        TOPIC,
        rate=int(rate_mb * MB / RECORD_BYTES),
        random=1,
        producers=PRODUCERS,
        size=RECORD_BYTES,
        warmup=WARM_S,
        seconds=int(seconds * LOAD_LONGER) + LATE_S,
    )


def _counters(cluster: Cluster) -> Counters:
    at_s = time.monotonic()
    scraped = asyncio.run(scrape(cluster.inside().instances("produce")))

    def total(name: str) -> float:
        return sum(each.get(f"kafscale_produce_{name}", 0.0) for each in scraped.values())

    return Counters(
        at_s=at_s,
        records=total("records_total"),
        puts=total("puts_total"),
        flushes=total("flush_seconds_count"),
        flush_s=total("flush_seconds_sum"),
    )


def _found(before: Counters, after: Counters, counted: Measured) -> Found:
    over_s, flushes = after.at_s - before.at_s, after.flushes - before.flushes
    return Found(
        counted=counted,
        records_per_s=(after.records - before.records) / over_s,
        puts_per_s=(after.puts - before.puts) / over_s,
        flush_s=(after.flush_s - before.flush_s) / flushes if flushes else None,
    )


def _report(found: Found, computed: Requests, at_measured: Requests, rate_mb: float) -> str:
    counted = found.counted.requests
    took_ms = "-" if found.flush_s is None else f"{found.flush_s * 1000:.0f}"
    return "\n".join(
        (
            f"| per second | counted | computed | deviation | for a flush of {took_ms} ms | deviation |",
            "|---|---|---|---|---|---|",
            _row("PUTs", counted.puts, computed.puts, at_measured.puts),
            _row("PUTs, by the service's counter", found.puts_per_s, computed.puts, at_measured.puts),
            _row("GETs", counted.gets, computed.gets, at_measured.gets),
            _row("head commits", counted.head_commits, computed.head_commits, at_measured.head_commits),
            "",
            f"counted for {found.counted.over_s:.0f} s; {found.records_per_s * RECORD_BYTES / MB:.2f} MB/s arrived, "
            f"{rate_mb:.2f} were planned",
            f"a flush took {took_ms} ms from the seal to the commit; `kafscale cost` assumes "
            f"{TUNING.flush_ms} ms",
        )
    )


def _row(name: str, counted: float | None, *computed: float | None) -> str:
    cells = [_number(counted)]
    for each in computed:
        deviation = f"{(each - counted) / counted:+.0%}" if counted and each is not None else "-"
        cells += [_number(each), deviation]
    return "| " + " | ".join((name, *cells)) + " |"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    main()
