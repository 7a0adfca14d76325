"""CPU seconds that each part of KafScale spends on a fixed load, beside another commit.

`python -m bench.cpu` prints milliseconds per MB for large batches, also compressed ones, and microseconds per request
for one producer and for 64 with one record each. `--against 1a2b3c4` measures KafScale as of that commit too, in turns
with this one (A B B A), and prints what this one needs in comparison.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.lines import create
from bench.results import CPU_PARTS
from bench.spent import spent
from bench.systems import KafScale, system_named
from bench.tools import load, producer_performance

RECORDS = 200_000
RECORD_MB = 1024 / 1e6
SECONDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """`run` returns how many units it did. A unit's CPU is shown times `scale`."""

    what: str
    scale: float
    prepare: Callable[[KafScale], object]
    run: Callable[[KafScale], float]


def _large(partitions: int, codec: str) -> Work:
    topic = f"cpu-{partitions}-{codec}"

    def produce(system: KafScale, records: int = RECORDS) -> float:
        producer_performance(system.bootstrap, topic, records, codec=codec)
        return records * RECORD_MB

    def prepare(system: KafScale) -> None:
        create(system, topic, partitions)
        produce(system, RECORDS // 10)

    what = f"produce to {partitions} partitions, codec {codec}, ms per MB of records"
    return Work(what=what, scale=1e3, prepare=prepare, run=produce)


def _read(system: KafScale) -> float:
    load("catchup", system.bootstrap, "cpu-12-none", records=RECORDS)
    return RECORDS * RECORD_MB


def _single(producers: int) -> Work:
    topic = f"cpu-single-{producers}"

    def single(system: KafScale) -> float:
        found = load("oneinflight", system.bootstrap, topic, producers=producers, seconds=SECONDS, warmup=0)
        return found["per_s"] * SECONDS

    what = f"{producers} producers, one record each, us per request"
    return Work(what=what, scale=1e6, prepare=lambda system: create(system, topic, 1), run=single)


WORKS: Sequence[Work] = (
    *(
        _large(partitions, codec)
        for partitions, codec in ((1, "none"), (12, "none"), (12, "lz4"), (12, "zstd"))
    ),
    Work(what="catch-up of 12 partitions, ms per MB", scale=1e3, prepare=lambda _: None, run=_read),
    _single(1),
    _single(64),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", help="a commit of this repository")
    parser.add_argument("--rounds", type=int, default=1, help="the figures are medians")
    parser.add_argument(
        "--only", nargs="+", default=[""], help="parts of the printed texts, as in 'codec none'"
    )
    options = parser.parse_args()
    names = [*([f"kafscale-dir@{options.against}"] if options.against else []), "kafscale-dir"]
    with tempfile.TemporaryDirectory(prefix="kafscale-cpu-") as folder:
        systems: dict[str, KafScale] = {}
        try:
            for name in names:
                system = system_named(name, Path(folder) / name)
                assert isinstance(system, KafScale), name
                system.start()
                systems[name] = system
            for work in WORKS:
                if any(part in work.what for part in options.only):
                    measure(work, systems, options.rounds)
        finally:
            for system in systems.values():
                system.stop()


def measure(work: Work, systems: Mapping[str, KafScale], rounds: int) -> None:
    """Prints a line for each system, and this commit's CPU by the other one's: the median of the rounds' ratios."""
    found: dict[str, list[Mapping[str, float]]] = {name: [] for name in systems}
    for system in systems.values():
        work.prepare(system)
    for number in range(rounds):
        for name in list(systems)[:: -1 if number % 2 else 1]:
            units, cost = spent(systems[name], partial(work.run, systems[name]))
            found[name].append({part: used / units * work.scale for part, used in cost.parts.items()})
    totals = {name: [sum(cost.values()) for cost in costs] for name, costs in found.items()}
    for name, costs in found.items():
        parts = ", ".join(
            f"{part} {statistics.median(cost[part] for cost in costs):.1f}" for part in CPU_PARTS
        )
        spread = f"{min(totals[name]):.1f} to {max(totals[name]):.1f}"
        print(
            f"{work.what}, {name}: {parts}; all {statistics.median(totals[name]):.1f} ({spread})", flush=True
        )
    if len(totals) > 1:
        ratios = sorted(own / other for other, own in zip(*totals.values(), strict=True))
        quarter = len(ratios) // 4
        half = f"half of them from {ratios[quarter]:.3f} to {ratios[-1 - quarter]:.3f}"
        print(f"  ratio {statistics.median(ratios):.3f}, {half}", flush=True)


if __name__ == "__main__":
    main()
