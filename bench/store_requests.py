"""`python -m bench.store_requests`: requests that a running KafScale makes, with what `kafscale cost` computes.

Records of one size arrive at random times, each in a random partition, and consumers with a share of the partitions
each read them. Many producers send them, so that most records arrive in a request of their own, as `kafscale cost`
assumes. The run counts requests twice, as `kafscale cost --now` does and in front of the store, and compares that
with the computed figures for the rate that arrived. That rate is lower than `--rate-mb` if the machine is too slow:
two cores carry some 2,000 requests a second, so 10 MB/s need records of 10,000 bytes. Several partitions and
instances are one run each.

The default store is SeaweedFS with 20 ms added to a PUT, because the formulas assume the times of S3. The time of a
flush decides the number of bundles. So the figures are also computed for the time that was measured. The budgets are
those on S3.

Slices are settled at an age of `--settle-s`, shorter than the default of 15 minutes, so that the run sees what settling
costs. The partitions begin one after another within that time. If they began together, they would settle together again
and again, unlike those of a cluster that has run for long. The count begins when all have been settled once: the first
slices of a partition fold as those of its neighbours do, and settling then reads up to a quarter more. The size of etcd
is printed each minute.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kafscale.operations.cost.load import MB, Load, Requests, Tuning
from kafscale.operations.cost.measure import Measured, measure
from kafscale.operations.cost.model import reads_of_slices_per_s, requests_of
from kafscale.operations.status.gather import scrape
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace

from bench.lines import create
from bench.systems import KafScale, on_directory, on_s3
from bench.tools import load
from e2e.harness.services import until

TOPIC: Final = "requests"
MIB: Final = 1 << 20
SPREAD: Final = 1.15
"""Slices are settled at an age of 0.9 to 1.1 times the setting."""
SIZE_EVERY_S: Final = 60.0
PRODUCERS: Final = 50
CONSUMERS: Final = 200
"""A request is judged again, with all its partitions, after each commit to one of them."""
WARM_S: Final = 5
START_TIMEOUT_S: Final = 60.0
LOAD_LONGER: Final = 1.13
LATE_S: Final = 15
"""The load ends when nine tenths of its records were read. It outlasts the count, which begins after the warm-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """A histogram's count and sum."""

    count: float
    seconds: float

    def mean_since(self, before: Times) -> float | None:
        count = self.count - before.count
        return (self.seconds - before.seconds) / count if count else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Sums of all instances since their start."""

    at_s: float
    records: float
    puts: float
    flush: Times
    """From a slice's seal to its commit."""
    stored: Times
    """From a bundle's seal until it was stored."""
    commit: Times
    """From a slice's submission to etcd's answer."""
    fetch_gets: float
    store: Mapping[str, int]
    """Requests by their method, if something counts them in front of the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    counted: Measured
    records_per_s: float
    puts_per_s: float
    """By the produce service's own counter."""
    flush_s: float | None
    stored_s: float | None
    commit_s: float | None
    fetch_gets_per_s: float
    """Of the fetch service. Nearly all others are of settling."""
    store_puts_per_s: float | None
    store_gets_per_s: float | None
    """In front of the store; None: nothing counts there."""
    etcd_bytes: list[int]
    """What its database uses, at the beginning and after each minute."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate-mb", type=float, default=1.0)
    parser.add_argument("--record-bytes", type=int, default=1_000, help="each record is a request of its own")
    parser.add_argument("--partitions", type=int, nargs="+", default=[10])
    parser.add_argument("--instances", type=int, nargs="+", default=[1], help="of produce and of fetch")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--settle-s", type=int, default=60)
    parser.add_argument("--store", choices=("dir", "s3", "s3-far"), default="s3-far")
    options = parser.parse_args()
    for partitions in options.partitions:
        for instances in options.instances:
            print(f"\n{options.rate_mb:g} MB/s, {partitions:,} partitions, {instances} instances\n")
            one = {**vars(options), "partitions": partitions, "instances": instances}
            _measure(argparse.Namespace(**one))


def _measure(options: argparse.Namespace) -> None:
    """One run. Prints it before the system stops: thousands of partitions take a while to be handed over."""
    tuning = Tuning(settle_ms=options.settle_s * 1000)
    with tempfile.TemporaryDirectory(prefix="kafscale-requests-") as folder:
        system = _system(Path(folder), options.store, tuning, options)
        system.start()
        try:
            create(system, TOPIC, options.partitions)
            print(_table(asyncio.run(_count(system, options)), tuning, options), flush=True)
        finally:
            system.stop()


def _table(found: Found, tuning: Tuning, options: argparse.Namespace) -> str:
    of = Load(
        bytes_per_s=found.records_per_s * options.record_bytes,
        partitions=options.partitions,
        instances=options.instances,
        record_bytes=options.record_bytes,
    )
    flush_ms = round(found.flush_s * 1000) if found.flush_s else tuning.flush_ms
    tunings = (tuning, replace(tuning, flush_ms=flush_ms))
    return _report(found, [_computed(of, each) for each in tunings], of, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    all: Requests
    fetch_gets: float


def _computed(of: Load, tuning: Tuning) -> Computed:
    return Computed(all=requests_of(of, tuning), fetch_gets=reads_of_slices_per_s(of, tuning) * of.reads)


def _system(folder: Path, store: str, tuning: Tuning, options: argparse.Namespace) -> KafScale:
    system = on_directory(folder) if store == "dir" else on_s3(folder, far=store == "s3-far")
    budgets = {
        "KAFSCALE_BUNDLES_PER_S": str(tuning.bundles_per_s),
        "KAFSCALE_PRODUCE_LINGER_MS": str(tuning.linger_ms),
        "KAFSCALE_SETTLE_MS": str(tuning.settle_ms),
    }
    system.cluster.env = {**system.cluster.env, **budgets}
    system.cluster.scale = {"produce": options.instances, "fetch": options.instances}
    return system


async def _count(system: KafScale, options: argparse.Namespace) -> Found:
    seconds, warm_s = options.minutes * 60, WARM_S + options.settle_s * (1 + SPREAD)
    loading = asyncio.create_task(asyncio.to_thread(_load, system.bootstrap, options, int(warm_s + seconds)))
    etcd = EtcdClient.connect([system.cluster.inside().etcd])
    sizes: list[int] = []
    watching = asyncio.create_task(_watch_size(etcd, sizes))
    try:
        await asyncio.to_thread(
            until, "records arrive", lambda: _counters(system).records > 0, START_TIMEOUT_S
        )
        await asyncio.sleep(warm_s)
        before = await asyncio.to_thread(_counters, system)
        counted = await measure(etcd, Keyspace(), seconds)
        after = await asyncio.to_thread(_counters, system)
        if loading.done():
            await loading  # raises if it failed
    finally:
        watching.cancel()
        await asyncio.wait(
            {loading, watching}
        )  # the load program ends by itself, at the latest after its deadline
        await etcd.close()
    return _found(before, after, counted, sizes)


async def _watch_size(etcd: EtcdClient, sizes: list[int]) -> None:
    while True:
        sizes.append((await etcd.status()).db_bytes_in_use)
        await asyncio.sleep(SIZE_EVERY_S)


def _load(bootstrap: str, options: argparse.Namespace, seconds: int) -> None:
    load(
        "endtoend",
        bootstrap,
        TOPIC,
        rate=int(options.rate_mb * MB / options.record_bytes),
        random=1,
        begin=options.settle_s,  # within this time the partitions begin, one after another
        partitions=options.partitions,
        producers=PRODUCERS,
        consumers=min(CONSUMERS, options.partitions),
        size=options.record_bytes,
        warmup=WARM_S,
        seconds=int(seconds * LOAD_LONGER) + LATE_S,
    )


def _counters(system: KafScale) -> Counters:
    at_s = time.monotonic()
    inside = system.cluster.inside()
    scraped = {role: asyncio.run(scrape(inside.instances(role))).values() for role in ("produce", "fetch")}
    store: dict[str, int] = json.loads(system.counts.read_text()) if system.counts is not None else {}

    def total(name: str, role: str = "produce") -> float:
        return sum(each.get(f"kafscale_{role}_{name}", 0.0) for each in scraped[role])

    def times(name: str) -> Times:
        return Times(count=total(f"{name}_count"), seconds=total(f"{name}_sum"))

    return Counters(
        at_s=at_s,
        records=total("records_total"),
        puts=total("puts_total"),
        flush=times("flush_seconds"),
        stored=times("bundle_seconds"),
        commit=times("commit_seconds"),
        fetch_gets=total("cache_loads_total", "fetch"),
        store=store,
    )


def _found(before: Counters, after: Counters, counted: Measured, sizes: list[int]) -> Found:
    over_s = after.at_s - before.at_s

    def at_store(method: str) -> float | None:
        return (after.store[method] - before.store[method]) / over_s if before.store else None

    return Found(
        counted=counted,
        records_per_s=(after.records - before.records) / over_s,
        puts_per_s=(after.puts - before.puts) / over_s,
        flush_s=after.flush.mean_since(before.flush),
        stored_s=after.stored.mean_since(before.stored),
        commit_s=after.commit.mean_since(before.commit),
        fetch_gets_per_s=(after.fetch_gets - before.fetch_gets) / over_s,
        store_puts_per_s=at_store("PUT"),
        store_gets_per_s=at_store("GET"),
        etcd_bytes=sizes,
    )


def _report(found: Found, computed: Sequence[Computed], of: Load, options: argparse.Namespace) -> str:
    took_ms = _ms(found.flush_s)
    return "\n".join(
        (
            f"| per second | counted | computed | deviation | for a flush of {took_ms} ms | deviation |",
            "|---|---|---|---|---|---|",
            *_rows(found, computed),
            "",
            f"counted for {found.counted.over_s:.0f} s; {of.bytes_per_s / MB:.2f} MB/s arrived, "
            f"{options.rate_mb:.2f} were planned",
            f"a flush took {took_ms} ms from the seal to the commit; `kafscale cost` assumes "
            f"{Tuning().flush_ms} ms",
            f"a bundle was stored {_ms(found.stored_s)} ms after its seal; "
            f"a commit to etcd took {_ms(found.commit_s)} ms",
            f"etcd uses, MiB: {', '.join(f'{size / MIB:.1f}' for size in found.etcd_bytes)}",
        )
    )


def _rows(found: Found, computed: Sequence[Computed]) -> list[str]:
    counted = found.counted.requests
    puts = [each.all.puts for each in computed]
    gets = [each.all.gets for each in computed]
    return [
        _row("PUTs", counted.puts, *puts),
        _row("PUTs, by the service's counter", found.puts_per_s, *puts),
        _row("PUTs, in front of the store", found.store_puts_per_s, *puts),
        _row("GETs", counted.gets, *gets),
        _row("GETs, of the fetch service", found.fetch_gets_per_s, *[each.fetch_gets for each in computed]),
        _row("GETs, in front of the store", found.store_gets_per_s, *gets),
        _row("head commits", counted.head_commits, *[each.all.head_commits for each in computed]),
    ]


def _row(name: str, counted: float | None, *computed: float | None) -> str:
    cells = [_number(counted)]
    for each in computed:
        deviation = f"{(each - counted) / counted:+.0%}" if counted and each is not None else "-"
        cells += [_number(each), deviation]
    return "| " + " | ".join((name, *cells)) + " |"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.0f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    main()
