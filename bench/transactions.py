"""`python -m bench.transactions`: what commits cost a producer, with Apache Kafka beside.

One producer (franz-go, which speaks both protocols of transactions) writes to 10 partitions. It sends for 100 ms or
for a second, commits, and begins again. The same producer without transactions flushes in place of the commit. The
ratio of their rates is what transactions cost. *Paced*: a record of 4 KB to each partition each 10 ms; what it would
have sent while it commits is lost. *Saturated*: it always has 200 such records under way. Another case has one record
in each partition and a read_committed consumer, which shows when a transaction is visible.

On S3, KafScale has its default budgets: SeaweedFS bills nothing, but users have them. A system runs once, and its
cases take turns in each round, in every second one in the reverse order. A run of all systems with three rounds goes to
bench/results/transactions/, and `make gen` puts the newest one into docs/performance-history.md; any other goes to
out/bench/.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from bench.lines import create
from bench.machine import commit, machine, versions
from bench.results import RESULTS, Figures, Measured, Run, of_rounds, shown, written
from bench.systems import NO_BUDGET, SYSTEMS, KafScale, System, emptied, on_directory, on_s3
from bench.tools import BUILT, load

COMMIT_RESULTS: Final = RESULTS / "transactions"
TOPIC: Final = "commits"
PARTITIONS: Final = 10
RECORD_BYTES: Final = 4096
TICK_MS: Final = 10
BUFFERED: Final = 200
ROUNDS: Final = 3
SECONDS: Final = 3
WARM_S: Final = 1
KINDS: Final = ("flush", "TV1", "TV2")
"""By the program's number of the protocol."""
COLUMNS: Final = {
    "per_s": "records/s",
    "commits_per_s": "commits/s",
    "flush_p50_ms": "flush p50 ms",
    "flush_p99_ms": "flush p99 ms",
    "end_p50_ms": "EndTxn p50 ms",
    "end_p99_ms": "EndTxn p99 ms",
    "visible_p50_ms": "visible p50 ms",
    "visible_p99_ms": "visible p99 ms",
}
"""By the load program's names. A case without transactions has the first four, and only `VISIBLE` has the last two."""
TIMES: Final = {
    "EndTxn": "EndTxn",
    "from EndTxn until a read_committed consumer has all 10 records": "visible",
    "the flush before EndTxn": "flush",
}
"""Of `VISIBLE`: what readers see, and the beginning of the columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`tick_ms`: from one record of each partition to the next; 0 if the producer is saturated."""

    tick_ms: int
    every_ms: int
    protocol: int
    follow: bool = False

    @property
    def name(self) -> str:
        return f"{'one-record' if self.follow else self._load}-{self.every_ms}-{KINDS[self.protocol].lower()}"

    @property
    def what(self) -> str:
        """For readers."""
        each = "each second" if self.every_ms == 1_000 else f"each {self.every_ms} ms"
        if self.protocol == 0:
            return f"flush {each}, {self._load}, records/s"
        return f"commit {each} with {KINDS[self.protocol]}, {self._load}"

    @property
    def _load(self) -> str:
        return "paced" if self.tick_ms else "saturated"

    @property
    def flags(self) -> Mapping[str, int]:
        """Of the load program."""
        flags = {"every": self.every_ms, "tick": self.tick_ms, "protocol": self.protocol}
        return (
            flags | ({} if self.tick_ms else {"buffered": BUFFERED}) | ({"follow": 1} if self.follow else {})
        )

    @property
    def flushes(self) -> Case:
        """The case that it is compared with."""
        return Case(tick_ms=self.tick_ms, every_ms=self.every_ms, protocol=0)

    @property
    def at_least(self) -> float | None:
        """The goal: the share of the rate of `flushes`."""
        return {(100, 2): 0.8, (1_000, 2): 0.9, (1_000, 1): 0.9}.get((self.every_ms, self.protocol))


VISIBLE: Final = Case(tick_ms=100, every_ms=100, protocol=2, follow=True)
CASES: Final = (
    VISIBLE,
    *(
        Case(tick_ms=tick_ms, every_ms=every_ms, protocol=protocol)
        for tick_ms, every_ms, protocol in itertools.product((TICK_MS, 0), (100, 1_000), (0, 2, 1))
    ),
)
BESIDE: Final = tuple(
    case for case in CASES if case.follow or (case.every_ms, case.protocol) in {(100, 0), (100, 2)}
)
"""Of Apache Kafka."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """A system with the settings of this benchmark. `label`: for readers."""

    label: str
    make: Callable[[Path], System]
    cases: Sequence[Case] = CASES


def _kafscale(store: Callable[[Path], KafScale], instances: int) -> Callable[[Path], System]:
    def make(folder: Path) -> System:
        system = store(folder)
        env = system.cluster.env.items()
        system.cluster.env = {name: value for name, value in env if name not in NO_BUDGET}
        system.cluster.scale = {"produce": instances}
        return system

    return make


def _far(folder: Path) -> KafScale:
    return on_s3(folder, far=True)


SETUPS: Final[Mapping[str, Setup]] = {
    "kafscale-dir": Setup(label="KafScale, directory", make=_kafscale(on_directory, 1)),
    "kafscale-dir-3": Setup(label="directory, three produce", make=_kafscale(on_directory, 3)),
    "kafscale-s3-far": Setup(label="KafScale, S3 far", make=_kafscale(_far, 1)),
    "kafscale-s3-far-3": Setup(label="S3 far, three produce", make=_kafscale(_far, 3)),
    "kafka-flush": Setup(label="Apache Kafka, flush before ack", make=SYSTEMS["kafka-flush"], cases=BESIDE),
    "kafka": Setup(label="Apache Kafka, defaults", make=SYSTEMS["kafka"], cases=BESIDE),
}


def main() -> None:
    options = _options()
    now = datetime.datetime.now(datetime.UTC)
    run = Run(
        began=f"{now:%Y-%m-%dT%H:%M}",
        commit=commit(),
        machine=machine(),
        versions=versions(),
        quick=options.seconds < SECONDS,
        rounds=options.rounds,
        systems={},
    )
    kept = BUILT / f"transactions-{now:%Y-%m-%dT%H%M}.json"
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kafscale-transactions-") as folder:
        for name in options.only:
            print(f"== {name}, load {os.getloadavg()[0]:.1f}", flush=True)
            found = measure(SETUPS[name], Path(folder) / name, options.rounds, options.seconds)
            emptied(Path(folder) / name)
            run = msgspec.structs.replace(run, systems={**run.systems, name: found})
            kept.write_text(written(run))  # a run that is stopped has its figures in it
    if set(options.only) == set(SETUPS) and options.rounds >= ROUNDS and not run.quick:
        COMMIT_RESULTS.mkdir(exist_ok=True)
        kept = kept.rename(COMMIT_RESULTS / f"{now:%Y-%m-%dT%H%M}.json")
    print(f"{table(run)}\n{kept}", flush=True)


def measure(setup: Setup, folder: Path, rounds: int, seconds: int) -> Mapping[str, Measured]:
    """Its cases by name, with the figures of each round."""
    columns: dict[str, tuple[str, ...]] = {}
    found: dict[str, list[Figures]] = {case.name: [] for case in setup.cases}
    system = setup.make(folder)
    system.start()
    try:
        create(system, TOPIC, PARTITIONS)
        for number in range(rounds):
            for case in setup.cases[:: -1 if number % 2 else 1]:  # what comes later finds a warmer system
                figures = measured(system.bootstrap, case, seconds)
                columns[case.name] = tuple(figures)
                found[case.name].append(tuple(figures.values()))
                print(f"  {case.name}: {shown(figures.values())}", flush=True)
    finally:
        system.stop()
    return {name: of_rounds(columns[name], figures) for name, figures in found.items()}


def measured(bootstrap: str, case: Case, seconds: int) -> Mapping[str, float]:
    """Figures by their columns. Refuses those of a client that spoke another protocol than the case names."""
    flags = {"partitions": PARTITIONS, "size": RECORD_BYTES, "warmup": WARM_S, "seconds": seconds}
    result = load("commits", bootstrap, TOPIC, **flags, **case.flags)
    assert (result["joins"] > 0) == (case.protocol == 1), (case.name, result)
    return {column: result[key] for key, column in COLUMNS.items() if key in result}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SETUPS, default=list(SETUPS), help="which systems")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of each case")
    return parser.parse_args()


def table(run: Run) -> str:
    """Times and shares as Markdown. A goal that is missed is written as missed."""
    names = [name for name in SETUPS if name in run.systems]
    rows = [
        "| | goal |" + "".join(f" {SETUPS[name].label} |" for name in names),
        "|---|---|" + "---|" * len(names),
    ]
    for what, column in TIMES.items():
        cells = (_times(run, name, column) for name in names)
        rows.append(f"| {what}, p50 and p99, ms | |" + "".join(f" {cell} |" for cell in cells))
    for case in CASES:
        if not case.follow:
            cells = (_rate(run, name, case) for name in names)
            goal = f"{case.at_least:.0%}" if case.at_least else ""
            rows.append(f"| {case.what} | {goal} |" + "".join(f" {cell} |" for cell in cells))
    return "\n".join(rows)


def _times(run: Run, name: str, what: str) -> str:
    found = run.systems[name][VISIBLE.name]
    figures = dict(zip(found.columns, found.median, strict=True))
    return shown(figures[f"{what} {quantile} ms"] for quantile in ("p50", "p99"))


def _rate(run: Run, name: str, case: Case) -> str:
    """Records per second of a producer that flushes. Of one that commits: its share of them, the median of the rounds,
    with the lowest and the highest in brackets."""
    own, other = (run.systems[name].get(one.name) for one in (case, case.flushes))
    if own is None or other is None:
        return "-"
    if case.protocol == 0:
        return shown(own.median[:1])
    shares = [mine[0] / its[0] for mine, its in zip(own.rounds, other.rounds, strict=True)]
    share = statistics.median(shares)
    missed = SETUPS[name].cases is CASES and case.at_least is not None and share < case.at_least
    return f"{share:.0%} ({min(shares):.0%} to {max(shares):.0%})" + (", missed" if missed else "")


if __name__ == "__main__":
    main()
