"""`python -m e2e.chaos`: faults for some time, then the verdict. Exit code 1 if a law was broken."""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from random import Random, SystemRandom

from e2e.chaos.page import page
from e2e.chaos.run import Plan, chaos
from e2e.chaos.timeline import Timeline
from e2e.harness.exactly_once import ALL

PROGRAMS = 4
"""That copy exactly once: so many of those that there are, by the seed."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.chaos", description="Faults over real processes, and what clients were told."
    )
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="of faults (600); the verdict takes some minutes more"
    )
    parser.add_argument("--seed", type=int, help="of the plan: which faults, whose, when (random)")
    parser.add_argument("--instances", type=int, default=2, help="of each service, 2 to 4 (2)")
    parser.add_argument("--out", type=Path, default=Path("out/chaos"), help="where the page goes (out/chaos)")
    options = parser.parse_args()
    seed = SystemRandom().randrange(2**32) if options.seed is None else options.seed
    copies = Random(seed).sample(ALL, PROGRAMS)
    plan = Plan(seed=seed, seconds=options.seconds, instances=options.instances, copies=copies)
    print(
        f"chaos: SEED={seed} SECONDS={options.seconds:.0f}, {options.instances} instances of each service",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="kafscale-chaos-") as folder:
        timeline = chaos(Path(folder), plan, lambda words: print(words, flush=True))
        if timeline.violations:  # the logs are what one needs next
            kept = options.out / f"{seed}-logs"
            keep_logs(Path(folder), kept)
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / f"{datetime.now(UTC):%Y-%m-%dT%H%M}-{seed}.html"
    programs = ", ".join(copy.name for copy in copies)
    about = f"{options.seconds:.0f} s of faults; {options.instances} instances of each service. Copied by {programs}."
    file.write_text(page(timeline, "Chaos", about))
    report(timeline)
    print(f"page: {file}")
    return 1 if timeline.violations else 0


def keep_logs(folder: Path, kept: Path) -> None:
    kept.mkdir(parents=True, exist_ok=True)
    for log in folder.rglob("*.log"):
        (kept / "-".join(log.relative_to(folder).parts)).write_bytes(log.read_bytes())
    print(f"logs: {kept}")


def report(timeline: Timeline) -> None:
    for name, count in timeline.counts.items():
        print(f"{count:12,}  {name}")
    print(f"{len(timeline.faults):12,}  faults, and the longest silence of each kind:")
    longest = timeline.longest_by_fault()
    for kind, times in timeline.faults_by_kind().items():
        silence = longest.get(kind)
        print(f"{times:12,}  {kind}" + (f": {silence.seconds:.1f} s ({silence.client})" if silence else ""))
    for law in timeline.violations[:20]:
        print(f"VIOLATION  {law}")
    print(f"{len(timeline.violations)} violations")


if __name__ == "__main__":
    sys.exit(main())
