"""Which planted mistakes does the simulator find by itself, with which seed, and for how much CPU?

    .venv/bin/python -m tools.simulator.hunt acknowledgement --seeds 8 --seconds 90

The mistakes are those of `tools/mutants_*.toml` whose name, file or list holds one of the words. Each is planted in a
copy of its package, and seeds are tried in turn until a run breaks a law.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.mutants import ROOT, Mutant, everything, plant


@dataclass(frozen=True, slots=True)
class Found:
    seed: int
    cpu_s: float
    law: str


def cpu_s() -> float:
    """Of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def hunted(mutant: Mutant, seeds: range, flags: Sequence[str]) -> Found | None:
    """None: no run breaks a law."""
    began_s = cpu_s()
    with tempfile.TemporaryDirectory(prefix="kafscale-mutant-") as folder:
        plant(mutant, Path(folder))
        for seed in seeds:
            law = broken_by(seed, flags, Path(folder))
            if law is not None:
                return Found(seed, cpu_s() - began_s, law)
    return None


def broken_by(seed: int, flags: Sequence[str], shadow: Path) -> str | None:
    """The first law that a run with this seed breaks; how it ended, if it did not come to its end."""
    command = [sys.executable, "-m", "tools.simulator", "--seed", str(seed), *flags]
    environment = {**os.environ, "PYTHONPATH": str(shadow)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode == 0:
        return None
    broken = re.search(r"!! (.*)", ended.stdout)
    return (ended.stderr.strip().splitlines() or ["no output"])[-1] if broken is None else broken[1]


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tools.simulator.hunt", description=__doc__)
    options.add_argument("words", nargs="+")
    options.add_argument("--seeds", type=int, default=8, help="how many are tried, from 1 on")
    options.add_argument("--seconds", default="90", help="simulated time of each run")
    options.add_argument("--restore", action="store_true", help="etcd goes back at the end of each run")
    chosen = options.parse_args()
    flags = ["--seconds", chosen.seconds, *["--restore"] * chosen.restore]
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
