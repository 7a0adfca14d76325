"""`python -m tools.simulator --seed 1 --seconds 600`: runs a cluster in simulated time. Fails if a law was broken."""

from __future__ import annotations

import argparse
import ctypes
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from tools.simulator.lasting import TROUBLES
from tools.simulator.plan import Kept, Plan, drawn, dump, load
from tools.simulator.run import client_names, simulate

ADDR_NO_RANDOMIZE: Final = 0x0040000


def _start_again() -> NoReturn:
    """The order of sets of texts, and of sets of objects at their addresses, is part of a run."""
    ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)
    again = [sys.executable, "-m", "tools.simulator", *sys.argv[1:]]
    os.execve(sys.executable, again, {**os.environ, "PYTHONHASHSEED": "0"})


def _plan(chosen: argparse.Namespace) -> Plan:
    if chosen.plan is not None:
        return load(chosen.plan).plan
    plan = drawn(
        chosen.seed,
        chosen.seconds,
        instances=chosen.instances,
        faults=not chosen.no_faults,
        restores=chosen.restore,
        empties=chosen.empty,
        pace_s=chosen.pace,
    )
    if chosen.lasting is not None:
        plan = replace(plan, lasting=chosen.lasting)
    left_out = chosen.without.split(",")
    return replace(plan, without=tuple(name for kind, name in client_names() if kind in left_out))


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m tools.simulator", description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--seconds", type=float, default=600.0, help="simulated time with faults")
    options.add_argument("--instances", type=int, default=2, help="of each role")
    options.add_argument("--no-faults", action="store_true")
    options.add_argument(
        "--restore", action="store_true", help="at the end etcd goes back to an older snapshot"
    )
    options.add_argument("--empty", action="store_true", help="at the end etcd loses all that it holds")
    options.add_argument(
        "--lasting", choices=("", *TROUBLES), help="the trouble that lasts, behind the faults"
    )
    options.add_argument("--pace", type=float, help="mean seconds between two requests of a client")
    options.add_argument(
        "--without", default="", metavar="KINDS", help="clients that do not run: reader,churner"
    )
    options.add_argument("--plan", type=Path, metavar="FILE", help="runs a kept plan; no seed draws one")
    options.add_argument("--print-plan", action="store_true", help="instead of a run: what the seed draws")
    options.add_argument("--json", action="store_true", help="only the outcome, for programs")
    options.add_argument("--quiet", action="store_true", help="only the summary and what was broken")
    options.add_argument("--log-level", default="warning", choices=("debug", "info", "warning", "error"))
    chosen = options.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        _start_again()
    plan = _plan(chosen)
    if chosen.print_plan:
        print(dump(Kept(law="", plan=plan)), end="")
        return 0

    def say(line: str) -> None:
        if not chosen.json and (not chosen.quiet or "** " in line or "!! " in line):
            print(line, flush=True)

    outcome = simulate(plan, say, getattr(logging, chosen.log_level.upper()))
    if chosen.json:
        print(msgspec.json.encode(outcome).decode())
    sys.stderr.write(f"{outcome.cpu_s:.1f} s of CPU\n")
    return 1 if outcome.broken else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what killed processes have left runs no finalizer, as after a SIGKILL
