"""A plan: the settings, clients and faults of a run. It is drawn from a seed, or read from a file.

What is left to chance while a run goes on are delays of messages, the fate of single requests to the store, and what
clients send. So a plan can be made smaller: a fault, a client or seconds less change no other line of it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from tools.simulator.faults import Fault, drawn_faults
from tools.simulator.lasting import NEEDS, TROUBLES
from tools.simulator.world import drawn_settings, nodes_of

PACES_S: Final = (0.1, 0.5, 2.0, 5.0, 10.0)
"""Most runs are slow: faults are looked for, and not records."""
COMPRESSIONS: Final = ("producer", "producer", "gzip")
FAULTS_EVERY_S: Final = (1.0, 2.0, 4.0)
FAULTS_LAST_S: Final = (1.0, 3.0, 6.0)


LEFT_OUT: Final[Mapping[str, float]] = {
    "group": 0.5,
    "transactions": 0.5,
    "shortened": 0.3,
    "churner": 0.3,
    "committer": 0.3,
    "orderly": 0.3,
}
"""The share of seeds in which the clients of a kind do not run: a seed that has few kinds goes deeper into them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    seconds: float
    """Simulated time with faults."""
    instances: int = 2
    """Of each role."""
    partitions: int = 4
    compression: str = "producer"
    """The `compression.type` of the topic. Another one than "producer" has each batch repacked in a thread."""
    pace_s: float = 0.5
    """Mean time between two requests of a client."""
    settings: Mapping[str, int] = field(default_factory=dict)
    """Of all services. Others have their defaults."""
    faults: tuple[Fault, ...] = ()
    without: tuple[str, ...] = ()
    """Kinds and names of clients that do not run."""
    lasting: str = ""
    """The trouble that lasts, behind the faults; see `lasting.TROUBLES`. "": none."""
    lasting_s: float = 90.0
    snapshot_s: float | None = None
    """At the end, etcd is restored to the state that it has now. None: it is not."""
    empties: bool = False
    """At the end, etcd is empty."""


def drawn(
    seed: int,
    seconds: float,
    *,
    instances: int = 2,
    faults: bool = True,
    restores: bool = False,
    empties: bool = False,
    pace_s: float | None = None,
) -> Plan:
    """`pace_s`: instead of the one that the seed draws.

    Each part has chances of its own, so that one more does not change the others."""
    chance = random.Random(f"plan {seed}")
    drawn_pace_s = chance.choice(PACES_S)
    every_s, last_s = chance.choice(FAULTS_EVERY_S), chance.choice(FAULTS_LAST_S)
    lasting = random.Random(f"lasting {seed}").choice(("", "", *TROUBLES)) if faults else ""
    snapshot_s = round(seconds * chance.random(), 2)
    nodes = nodes_of(instances)
    return Plan(
        seed=seed,
        seconds=seconds,
        instances=instances,
        partitions=random.Random(f"partitions {seed}").choice((4, 12)),
        compression=random.Random(f"compression {seed}").choice(COMPRESSIONS),
        pace_s=drawn_pace_s if pace_s is None else pace_s,
        settings={**drawn_settings(random.Random(f"settings {seed}")), **NEEDS.get(lasting, {})},
        faults=drawn_faults(seed, seconds, nodes, every_s, last_s) if faults else (),
        without=tuple(
            kind
            for kind, share in LEFT_OUT.items()
            if random.Random(f"without {kind} {seed}").random() < share
        ),
        lasting=lasting,
        snapshot_s=snapshot_s if restores else None,
        empties=empties,
    )


# -- files -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A plan that once broke a law."""

    law: str
    """What it broke."""
    mutant: str = ""
    """The planted mistake with which it did. Without it, all laws hold."""
    plan: Plan


def load(path: Path) -> Kept:
    return msgspec.json.decode(path.read_bytes(), type=Kept)


def dump(kept: Kept) -> str:
    """JSON with one fault per line."""
    plan: dict[str, Any] = msgspec.to_builtins(kept.plan)
    faults = plan.pop("faults")
    lines = [f'  "{name}": {_json(value)}' for name, value in plan.items()]
    lines.append('  "faults": [' + ",".join(f"\n   {_json(each)}" for each in faults) + "]")
    head = "".join(f' "{name}": {_json(getattr(kept, name))},\n' for name in ("law", "mutant"))
    return "{\n" + head + ' "plan": {\n' + ",\n".join(lines) + "\n }\n}\n"


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()
