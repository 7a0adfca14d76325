"""The groups of a run: a classic one, one by KIP-848, and one that changes its type.

The seed draws their kinds and seats.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Container, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafscale.coordinator.settings import CoordinatorSettings

from tools.simulator.clients import Client, Records
from tools.simulator.groups.classic import CooperativeMember, EagerMember
from tools.simulator.groups.consumer import ConsumerMember
from tools.simulator.groups.laws import Ledger
from tools.simulator.groups.members import Fate, Group, Member, Rules, Seat
from tools.simulator.world import World

SEATS_MIN: Final = 2
SEATS_MAX: Final = 4
STATIC_SHARE: Final = 0.3
REBALANCE_S: Final = 20.0
SESSION: Final = "group_consumer_session_timeout_ms"
KINDS: Final[Mapping[str, tuple[tuple[type[Member], ...], ...]]] = {
    "group-0": ((EagerMember,), (CooperativeMember,)),
    "group-1": ((ConsumerMember,),),
    "group-2": ((EagerMember, ConsumerMember), (ConsumerMember, CooperativeMember)),
}
"""Of each group: one of these, whose kinds take turns."""
NAMES: Final = [
    name for group in KINDS for name in (group, *(f"{group}-{seat}" for seat in range(SEATS_MAX)))
]
"""Of the groups, and of their seats."""


@dataclass(eq=False)
class Groups:
    world: World
    records: Records
    partitions: int
    client: Callable[[str], Client]
    all: list[Group] = field(default_factory=list)

    def parts(
        self, without: Container[str], writers: Sequence[asyncio.Task[None]], patience_s: float
    ) -> list[tuple[str, Coroutine[object, object, None]]]:
        """By the name of the client."""
        found = []
        for name, choices in KINDS.items():
            group = self._group(name, choices, without)
            if group.seats and name not in without:
                self.all.append(group)
                found += group.parts(writers, patience_s)
        return found

    def _group(
        self, name: str, choices: Sequence[tuple[type[Member], ...]], without: Container[str]
    ) -> Group:
        chance = random.Random(f"{name} kinds {self.world.seed}")
        kinds, count = chance.choice(choices), chance.randint(SEATS_MIN, SEATS_MAX)
        default_ms: int = CoordinatorSettings.model_fields[SESSION].default
        session_s = self.world.settings.get(SESSION, default_ms) / 1_000
        seats = [self._seat(f"{name}-{number}", chance) for number in range(count)]
        return Group(
            name=name,
            world=self.world,
            records=self.records,
            kinds=kinds,
            rules=Rules(session_s=session_s, rebalance_s=REBALANCE_S),
            partitions=self.partitions,
            judge=self.client(name),
            ledger=Ledger(name, session_s, eras_by_partition=ConsumerMember in kinds),
            seats=[seat for seat in seats if seat.name not in without],
        )

    def _seat(self, name: str, chance: random.Random) -> Seat:
        instance_id = name if chance.random() < STATIC_SHARE else None
        return Seat(name, self.client(name), self.client(f"{name} fetches"), instance_id)

    def broken(self) -> list[str]:
        return [law for group in self.all for law in group.ledger.broken]

    def counts(self) -> dict[str, int]:
        """Of all groups."""
        ledgers = [group.ledger for group in self.all]
        fates = sum((group.fates for group in self.all), Counter[Fate]())
        return {
            "changes of type": sum(group.turn for group in self.all),
            "rebalances": sum(len(each.eras) for each in ledgers),
            "commits of members": sum(each.acknowledged for each in ledgers),
            "refused commits": sum(each.refused for each in ledgers),
            **{f"members that {fate.value}": fates[fate] for fate in (Fate.LEAVE, Fate.DIE, Fate.ARE_SLOW)},
        }
