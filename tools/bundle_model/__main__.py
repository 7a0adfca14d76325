"""Prints what the search found: `python -m tools.bundle_model [--all] [--only NAME] [--trace MUTATION]`."""

from __future__ import annotations

import argparse
import sys

from tools.bundle_model.search import search
from tools.bundle_model.state import Limits, Mutation

SMALL = {
    "tiny": Limits(records=1, claims=1, crashes=1, repeats=1, views=1, resets=1, direct=True),
    "base": Limits(records=2, claims=1, crashes=1, views=1),
    "runs": Limits(records=2, plans=3),
    "loss": Limits(records=2, claims=1, plans=0, losses=1),
}
LARGE = {
    "fold": Limits(records=3, claims=1, folds=True),
    "replan": Limits(records=3, plans=2, folds=True, direct=True),
    "settle": Limits(records=2, claims=2, plans=2, direct=True),
    "moves": Limits(records=2, claims=2, crashes=1, resets=1),
    "orphan": Limits(records=3, claims=1, direct=True),
    "deep": Limits(records=3, claims=1, crashes=1),
    "losses": Limits(records=2, claims=1, crashes=1, plans=1, losses=1, direct=True),
}
CAUGHT_IN = {
    Mutation.GC_BY_BASE: "fold",
    Mutation.FOLD_OVER_PLAN: "fold",
    Mutation.GC_MINE_ONLY: "moves",
    Mutation.EQUAL_PLANS: "runs",
    Mutation.SETTLE_UNCOND: "replan",
    Mutation.SETTLE_ANY: "settle",
    Mutation.ORPHANS_TO_NEXT: "settle",
    Mutation.DELETE_UNVERIFIED: "loss",
    Mutation.CLAIM_UNFENCED: "loss",
    Mutation.COMMIT_UNFENCED: "loss",
}
"""The configuration in which a mutation must be caught; `base` for all others."""


def check(name: str) -> bool:
    found = search({**SMALL, **LARGE}[name])
    size = (
        f"{found.states:>9,} states {found.moves:>11,} moves  depth {found.depth:>3} {found.seconds:7.1f} s"
    )
    print(f"{'broken' if found.broken else 'holds ':<8} {name:<16} {size}  {found.broken or ''}", flush=True)
    for step in found.trace:
        print(f"    {step}")
    return not found.broken


def plant(mutation: Mutation, *, trace: bool = False) -> bool:
    name = CAUGHT_IN.get(mutation, "base")
    found = search({**SMALL, **LARGE}[name], mutation)
    verdict = "caught" if found.broken else "MISSED"
    size = f"{found.states:>9,} states in {name:<7} depth {found.depth:>3} {found.seconds:6.1f} s"
    print(f"{verdict:<8} {mutation.name:<16} {size}  {found.broken or mutation.value}", flush=True)
    for step in found.trace if trace else ():
        print(f"    {step}")
    return bool(found.broken)


def main() -> int:
    parser = argparse.ArgumentParser(description="Searches every state of the protocol of bundles.")
    parser.add_argument("--all", action="store_true", help="the large configurations as well")
    parser.add_argument("--only", choices=[*SMALL, *LARGE], help="one configuration, without mutations")
    parser.add_argument("--trace", choices=list(Mutation.__members__), help="the steps that show a mutation")
    chosen = parser.parse_args()
    if chosen.trace:
        return 0 if plant(Mutation[chosen.trace], trace=True) else 1
    if chosen.only:
        return 0 if check(chosen.only) else 1
    results = [check(name) for name in (*SMALL, *(LARGE if chosen.all else ()))]
    results += [plant(mutation) for mutation in Mutation]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
