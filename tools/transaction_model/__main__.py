"""Prints what the searches found: `python -m tools.transaction_model [--all] [--only NAME] [--trace MUTATION]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

from tools.transaction_model.configurations import (
    ENDLESS_PROTOCOLS,
    LARGE_INDEXES,
    LARGE_PROTOCOLS,
    MUTATED_INDEXES,
    MUTATED_PROTOCOLS,
    SMALL_INDEXES,
    SMALL_PROTOCOLS,
)
from tools.transaction_model.group import Offsets
from tools.transaction_model.index import Index
from tools.transaction_model.mutations import Mutation
from tools.transaction_model.protocol import Protocol
from tools.transaction_model.reader import search_every_range
from tools.transaction_model.search import Searched, search

Searches = dict[str, Callable[[], Searched]]

SMALL: Searches = {
    **{name: partial(search, Protocol(config)) for name, config in SMALL_PROTOCOLS.items()},
    **{name: partial(search, Index(shape)) for name, shape in SMALL_INDEXES.items()},
    "group: the offsets of a transaction": partial(search, Offsets()),
    "group: with a fetch of stable offsets": partial(search, Offsets(fetches=True)),
    "reader: every range of four batches": partial(search_every_range, 4),
}
LARGE: Searches = {
    **{name: partial(search, Protocol(config)) for name, config in LARGE_PROTOCOLS.items()},
    **{name: partial(search, Index(shape)) for name, shape in LARGE_INDEXES.items()},
    "reader: every range of five batches": partial(search_every_range, 5),
    "reader: every range of six batches": partial(search_every_range, 6),
}
ENDLESS: Searches = {name: partial(search, Protocol(config)) for name, config in ENDLESS_PROTOCOLS.items()}


def check(name: str) -> bool:
    found = {**SMALL, **LARGE, **ENDLESS}[name]()
    verdict = "broken" if found.broken else "holds" if found.is_whole else "STOPPED"
    size = f"{found.states:>9,} states  depth {found.depth:>3} {found.seconds:7.1f} s"
    print(f"{verdict:<8} {name:<52} {size}  {found.broken or ''}", flush=True)
    for step in found.trace:
        print(f"    {step}")
    return not found.broken and found.is_whole


def plant(mutation: Mutation, *, trace: bool = False) -> bool:
    found = mutated(mutation)
    verdict = "caught" if found.broken else "MISSED"
    size = f"{found.states:>6,} states  depth {found.depth:>3} {found.seconds:6.1f} s"
    print(f"{verdict:<8} {mutation.name:<26} {size}  {found.broken or mutation.value}", flush=True)
    for step in found.trace if trace else ():
        print(f"    {step}")
    return bool(found.broken)


def mutated(mutation: Mutation) -> Searched:
    if mutation in MUTATED_PROTOCOLS:
        return search(Protocol(MUTATED_PROTOCOLS[mutation], mutation))
    if mutation in MUTATED_INDEXES:
        return search(Index(MUTATED_INDEXES[mutation], mutation))
    if mutation is Mutation.STOP_AT_REACHED:
        return search_every_range(6, mutation)
    return search(Offsets(mutation, fetches=mutation is Mutation.PENDING_READ_LAST))


def main() -> int:
    parser = argparse.ArgumentParser(description="Searches every state of transactions.")
    parser.add_argument("--all", action="store_true", help="the large configurations as well")
    parser.add_argument("--endless", action="store_true", help="those of several million states as well")
    parser.add_argument("--only", choices=[*SMALL, *LARGE, *ENDLESS], help="one of them, without mutations")
    parser.add_argument("--trace", choices=list(Mutation.__members__), help="the steps that show a mutation")
    chosen = parser.parse_args()
    if chosen.trace:
        return 0 if plant(Mutation[chosen.trace], trace=True) else 1
    if chosen.only:
        return 0 if check(chosen.only) else 1
    large = LARGE if chosen.all or chosen.endless else {}
    results = [check(name) for name in (*SMALL, *large, *(ENDLESS if chosen.endless else {}))]
    results += [plant(mutation) for mutation in Mutation]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
