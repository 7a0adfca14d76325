"""Runs of the simulator in processes of their own, as its command makes them, so that each repeats line by line."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tools.mutants import ROOT
from tools.simulator.plan import Kept, Plan, dump
from tools.simulator.run import Outcome


def run(flags: Sequence[str], shadow: Path | None = None) -> Outcome:
    """`shadow`: a folder whose packages take the place of ours. A process that does not come to its end has broken the
    law that it should."""
    command = [sys.executable, "-m", "tools.simulator", "--json", *flags]
    environment = dict(os.environ) if shadow is None else {**os.environ, "PYTHONPATH": str(shadow)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode in (0, 1) and ended.stdout.startswith("{"):
        return msgspec.json.decode(ended.stdout, type=Outcome)
    last = (ended.stderr.strip().splitlines() or ["no output"])[-1]
    return Outcome([f"no end: {last}"])


def run_plan(plan: Plan, shadow: Path | None = None) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="kafscale-plan-") as folder:
        file = Path(folder) / "plan.json"
        file.write_text(dump(Kept(law="", plan=plan)))
        return run(["--plan", str(file)], shadow)


def kind_of(law: str) -> str:
    """What two breaches of one law have in common."""
    kind, _, text = law.partition(":")
    error = re.search(r"(\w+)\(", text) if kind in ("failed", "no end") else None
    return kind if error is None else f"{kind}: {error[1]}"


def cpu_s() -> float:
    """Of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
