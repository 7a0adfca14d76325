"""CPU seconds that each process spends on a fixed load: a figure that a busy machine hardly disturbs.

`python -m bench.cpu` prints milliseconds per MB for large batches, also compressed ones, and microseconds per request
for 64 producers with one record each.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from bench.lines import create
from bench.systems import KafScale
from bench.tools import load, producer_performance
from e2e.harness.cluster import Cluster

ROLES = ("frontdoor", "produce", "fetch", "etcd")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
RECORDS = 200_000
RECORD_MB = 1024 / 1e6
T = TypeVar("T")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def spent(system: KafScale, work: Callable[[], T]) -> tuple[T, Mapping[str, float]]:
    """What `work` returns, and the CPU seconds of each role while it ran."""
    before = {role: sum(map(cpu_seconds, system.cluster.pids(role))) for role in ROLES}
    units = work()
    after = {role: sum(map(cpu_seconds, system.cluster.pids(role))) for role in ROLES}
    return units, {role: after[role] - before[role] for role in ROLES}


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kafscale-cpu-") as folder:
        system = KafScale(Cluster(data_dir=Path(folder)))
        system.start()
        try:
            measure(system)
        finally:
            system.stop()


def measure(system: KafScale) -> None:
    for partitions, codec in ((1, "none"), (12, "none"), (12, "lz4"), (12, "zstd")):
        topic = create(system, f"cpu-{partitions}-{codec}", partitions)
        producer_performance(system.bootstrap, topic, RECORDS // 10, codec=codec)

        def produce(topic: str = topic, codec: str = codec) -> float:
            producer_performance(system.bootstrap, topic, RECORDS, codec=codec)
            return RECORDS * RECORD_MB

        show(
            f"produce to {partitions} partitions, codec {codec}, ms per MB of records",
            *spent(system, produce),
            1e3,
        )

    def read() -> float:
        load("catchup", system.bootstrap, "cpu-12-none", records=RECORDS)
        return RECORDS * RECORD_MB

    show("catch-up of 12 partitions, ms per MB", *spent(system, read), 1e3)
    for producers in (1, 64):
        topic = create(system, f"cpu-single-{producers}", 1)

        def single(topic: str = topic, producers: int = producers) -> float:
            found = load("oneinflight", system.bootstrap, topic, producers=producers, seconds=8, warmup=0)
            return found["per_s"] * 8

        show(f"{producers} producers, one record each, us per request", *spent(system, single), 1e6)


def show(what: str, units: float, seconds: Mapping[str, float], scale: float) -> None:
    print(
        f"{what}: " + ", ".join(f"{role} {used / units * scale:.1f}" for role, used in seconds.items()),
        flush=True,
    )


if __name__ == "__main__":
    main()
