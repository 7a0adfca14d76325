"""Which planted mistakes does the simulator find by itself, with which seed, and for how much CPU?

    .venv/bin/python -m tools.simulator.hunt acknowledgement --seeds 8 --seconds 90

The mistakes are those of `tools/mutants_*.toml` whose name, file or list holds one of the words. Each is planted in a
copy of its package, and seeds are tried in turn until a run breaks a law.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutants import Mutant, everything, plant
from tools.simulator.apart import cpu_s, run


@dataclass(frozen=True, slots=True)
class Found:
    seed: int
    cpu_s: float
    law: str


def hunted(mutant: Mutant, seeds: range, flags: Sequence[str]) -> Found | None:
    """None: no run breaks a law."""
    began_s = cpu_s()
    with tempfile.TemporaryDirectory(prefix="kafscale-mutant-") as folder:
        plant(mutant, Path(folder))
        for seed in seeds:
            broken = run(["--seed", str(seed), *flags], Path(folder)).broken
            if broken:
                return Found(seed, cpu_s() - began_s, broken[0])
    return None


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tools.simulator.hunt", description=__doc__)
    options.add_argument("words", nargs="+")
    options.add_argument("--seeds", type=int, default=8, help="how many are tried, from 1 on")
    options.add_argument("--seconds", default="90", help="simulated time of each run")
    chosen, others = options.parse_known_args()  # such as --restore: of the simulator
    flags = ["--seconds", chosen.seconds, *others]
    mutants = [
        each
        for each in everything()
        if any(word in f"{each.name} {each.file} {each.listing}" for word in chosen.words)
    ]
    count = 0
    for mutant in mutants:
        found = hunted(mutant, range(1, chosen.seeds + 1), flags)
        count += found is not None
        told = "not found" if found is None else f"seed {found.seed}, {found.cpu_s:.0f} s of CPU: {found.law}"
        print(f"{mutant.file}: {mutant.name}: {told}", flush=True)
    print(f"{count} of {len(mutants)} found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
