"""Which groups a run has, drawn by its seed: a classic one, and one by KIP-848."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

from tools.simulator.classic_members import CooperativeMember, EagerMember
from tools.simulator.clients import Client, Records
from tools.simulator.consumer_members import ConsumerMember
from tools.simulator.group_laws import Ledger
from tools.simulator.members import SEATS, STATIC_SHARE, Fate, Group, Member, Rules, Seat
from tools.simulator.world import World

REBALANCE_S = 20.0


def groups_of(
    world: World, records: Records, partitions: int, client_of: Callable[[str], Client]
) -> list[Group]:
    chance = random.Random(f"groups {world.seed}")
    kinds: tuple[type[Member], ...] = (
        chance.choice((EagerMember, CooperativeMember)),
        ConsumerMember,
    )
    rules = Rules(
        session_s=world.settings["group_consumer_session_timeout_ms"] / 1_000, rebalance_s=REBALANCE_S
    )
    found = []
    for number, kind in enumerate(kinds):
        name = f"group-{number}"
        seats = [_seat(f"{name}-{seat}", client_of, chance) for seat in range(chance.randint(*SEATS))]
        ledger = Ledger(name, rules.session_s, eras_by_partition=kind is ConsumerMember)
        found.append(Group(name, world, records, kind, rules, partitions, client_of(name), ledger, seats))
    return found


def _seat(name: str, client_of: Callable[[str], Client], chance: random.Random) -> Seat:
    instance_id = name if chance.random() < STATIC_SHARE else None
    return Seat(name, client_of(name), client_of(f"{name}-fetches"), instance_id)


def summary(groups: Sequence[Group]) -> str:
    fates = sum((group.fates for group in groups), Counter[Fate]())
    ledgers = [group.ledger for group in groups]
    return (
        f"{sum(len(each.eras) for each in ledgers)} rebalances, {sum(each.acknowledged for each in ledgers)} commits "
        f"and {sum(each.refused for each in ledgers)} refused ones of members, of whom {fates[Fate.LEAVES]} left, "
        f"{fates[Fate.DIES]} died and {fates[Fate.IS_SLOW]} were slow"
    )
