"""Makes a run that breaks a law smaller, and keeps its plan.

    .venv/bin/python -m tools.simulator.shrink --seed 7 --seconds 300
    .venv/bin/python -m tools.simulator.shrink --seed 1 --mutant 'a repeat in flight is acknowledged'

Faults, clients, seconds, settings and instances are taken out as long as the same law breaks. Each smaller plan is run
with some seeds, as it moves all messages a little. The plan is written after each step that made it smaller; the gate
runs those in `tools/simulator/kept`.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from tools.mutants import Mutant, everything, plant
from tools.simulator.apart import cpu_s, kind_of, run_plan
from tools.simulator.faults import Fault
from tools.simulator.plan import Kept, Plan, drawn, dump, load
from tools.simulator.run import client_names

KEPT: Final = Path(__file__).parent / "kept"
SECONDS: Final = (2.0, 5.0, 10.0, 20.0, 40.0)
"""That a smaller plan may last longer than its faults."""
FIRST_FAULT_S: Final = 3.0

T = TypeVar("T")


def fewer(items: Sequence[T], still: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """Takes parts out as long as `still` holds for the rest: all, then halves, at last single ones."""
    size = len(items)
    while size:
        first = 0
        while first < len(items):
            rest = [*items[:first], *items[first + size :]]
            if still(rest):
                items = rest
            else:
                first += size
        size //= 2
    return items


@dataclass(eq=False)
class Shrinking:
    """`kept` is the smallest plan until now that breaks the law."""

    kept: Kept
    tries: int
    changed: Callable[[Kept], None]
    shadow: Path | None = None
    runs: int = 0

    def breaks(self, plan: Plan) -> bool:
        """Whether one of the seeds breaks the law that is looked at. If so, that plan is kept."""
        for seed in range(plan.seed, plan.seed + self.tries):
            self.runs += 1
            tried = replace(plan, seed=seed)
            for law in run_plan(tried, self.shadow).broken:
                if kind_of(law) == kind_of(self.kept.law):
                    self.kept = replace(self.kept, law=law, plan=tried)
                    self.changed(self.kept)
                    return True
        return False

    def run(self) -> None:
        while True:
            before = self.kept.plan
            self._faults()
            self._clients()
            self._sooner()
            self._seconds()
            self._settings()
            if replace(self.kept.plan, seed=0) == replace(before, seed=0):
                return

    def _try(self, **changes: object) -> bool:
        smaller = replace(self.kept.plan, **changes)  # type: ignore[arg-type]
        return smaller != self.kept.plan and self.breaks(smaller)

    def _faults(self) -> None:
        fewer(self.kept.plan.faults, lambda rest: self._try(faults=tuple(rest)))

    def _clients(self) -> None:
        names = [name for _, name in client_names() if name not in self.kept.plan.without]

        def still(rest: Sequence[str]) -> bool:
            return self._try(without=tuple(name for _, name in client_names() if name not in rest))

        fewer(names, still)

    def _sooner(self) -> None:
        faults = self.kept.plan.faults
        if faults and faults[0].at_s > FIRST_FAULT_S:
            by_s = faults[0].at_s - FIRST_FAULT_S
            self._try(faults=tuple(replace(each, at_s=round(each.at_s - by_s, 2)) for each in faults))

    def _seconds(self) -> None:
        end_s = max(map(_end_s, self.kept.plan.faults), default=0.0)
        for more_s in SECONDS:
            seconds = round(end_s + more_s, 1)
            if seconds >= self.kept.plan.seconds or self._try(seconds=seconds):
                return

    def _settings(self) -> None:
        settings = self.kept.plan.settings

        def still(rest: Sequence[str]) -> bool:
            return self._try(settings={name: settings[name] for name in rest})

        fewer(list(settings), still)
        self._try(instances=1)


def _end_s(fault: Fault) -> float:
    return fault.at_s + fault.lasts_s


def shrink(plan: Plan, mutant: Mutant | None, tries: int, changed: Callable[[Kept], None]) -> Kept | None:
    """None: the plan breaks no law."""
    with ExitStack() as stack:
        shadow = None
        if mutant is not None:
            shadow = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kafscale-mutant-")))
            plant(mutant, shadow)
        broken = run_plan(plan, shadow).broken
        if not broken:
            return None
        kept = Kept(law=broken[0], mutant="" if mutant is None else mutant.name, plan=plan)
        changed(kept)
        shrinking = Shrinking(kept, tries, changed, shadow)
        shrinking.run()
        return shrinking.kept


def mutant_named(name: str) -> Mutant:
    (found,) = [each for each in everything() if each.name == name]
    return found


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tools.simulator.shrink", description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--restore", action="store_true", help="at the end etcd goes back")
    options.add_argument("--pace", type=float, help="mean seconds between two requests of a client")
    options.add_argument("--plan", type=Path, metavar="FILE", help="instead of what a seed draws")
    options.add_argument("--mutant", help="the name of a planted mistake in tools/mutants_*.toml")
    options.add_argument("--tries", type=int, default=3, help="seeds for each smaller plan")
    options.add_argument("--to", type=Path, help="the file; otherwise named after the law or the mistake")
    chosen = options.parse_args()
    mutant = None if chosen.mutant is None else mutant_named(chosen.mutant)
    plan = drawn(chosen.seed, chosen.seconds, restores=chosen.restore, pace_s=chosen.pace)
    if chosen.plan is not None:
        plan = load(chosen.plan).plan

    def changed(kept: Kept) -> None:
        name = re.sub(r"\W+", "_", kept.mutant or kind_of(kept.law)).strip("_")
        (chosen.to or KEPT / f"{name}.json").write_text(dump(kept))
        now, clients = kept.plan, len(client_names()) - len(kept.plan.without)
        told = f"{len(now.faults)} faults, {clients} clients, {now.seconds:g} s, {len(now.settings)} settings"
        print(f"{cpu_s():6.0f} s of CPU: {told}: {kept.law}", flush=True)

    kept = shrink(plan, mutant, chosen.tries, changed)
    if kept is None:
        print("no law is broken")
    return 0 if kept is not None else 1


if __name__ == "__main__":
    sys.exit(main())
