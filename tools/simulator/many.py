"""Many seeds, one line each, and a total.

    .venv/bin/python -m tools.simulator.many --seeds 100 --seconds 3600 --processes 2
    .venv/bin/python -m tools.simulator.many --seeds 100 --from-seed 57          goes on where it was interrupted

A line is: the seed, simulated and CPU seconds, faults, records, and the laws that were broken. Exits with 1 if a law
was broken. `tools.simulator --seed N` with the same seconds shows a run again.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tools.simulator.apart import run
from tools.simulator.run import Outcome


@dataclass(eq=False)
class Total:
    seeds: int = 0
    simulated_s: float = 0.0
    cpu_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    broken: dict[int, list[str]] = field(default_factory=dict)

    def add(self, seed: int, outcome: Outcome) -> None:
        self.seeds += 1
        self.simulated_s += outcome.simulated_s
        self.cpu_s += outcome.cpu_s
        self.faults.update(outcome.faults)
        self.counts.update(outcome.counts)
        if outcome.broken:
            self.broken[seed] = outcome.broken

    def lines(self) -> Iterator[str]:
        hours = self.simulated_s / 3_600
        pace = self.simulated_s / max(self.cpu_s, 0.1)
        yield (
            f"{self.seeds} seeds: {hours:.1f} simulated hours, {self.cpu_s:.0f} s of CPU ({pace:.0f} simulated seconds "
            f"for each), {self.faults.total()} faults, {len(self.broken)} seeds broke a law"
        )
        yield "faults: " + _told(self.faults)
        yield "clients: " + _told(self.counts)
        for seed, laws in self.broken.items():
            yield f"seed {seed}: {laws[0]}"


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))


def line_of(seed: int, outcome: Outcome) -> str:
    law = f", {len(outcome.broken)} laws broken: {outcome.broken[0]}" if outcome.broken else ""
    return (
        f"seed {seed}: {outcome.simulated_s:.0f} s, {outcome.cpu_s:.0f} s of CPU, "
        f"{sum(outcome.faults.values())} faults, {outcome.counts.get('records sent', 0)} records{law}"
    )


def outcomes(seeds: range, flags: Sequence[str], processes: int) -> Iterator[tuple[int, Outcome]]:
    """In the order of the seeds."""
    with ThreadPoolExecutor(processes) as pool:
        yield from zip(seeds, pool.map(lambda seed: run(["--seed", str(seed), *flags]), seeds), strict=True)


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tools.simulator.many", description=__doc__)
    options.add_argument("--seeds", type=int, default=20, help="how many")
    options.add_argument("--from-seed", type=int, default=1)
    options.add_argument("--seconds", default="600", help="simulated time with faults of each")
    options.add_argument("--processes", type=int, default=1, help="at once")
    options.add_argument("flags", nargs="*", help="of tools.simulator, behind --")
    chosen = options.parse_args()
    flags = ["--seconds", chosen.seconds, *chosen.flags]
    total = Total()
    for seed, outcome in outcomes(
        range(chosen.from_seed, chosen.from_seed + chosen.seeds), flags, chosen.processes
    ):
        total.add(seed, outcome)
        print(line_of(seed, outcome), flush=True)
    print("\n".join(total.lines()))
    return 1 if total.broken else 0


if __name__ == "__main__":
    sys.exit(main())
