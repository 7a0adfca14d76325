"""Objects that are lost, replaced or damaged, and not by KafScale: of those that the heads name now.

What an object held is known from the heads and from the directory of a bundle, so a law can say of each record whether
its loss is explained.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from kafscale.log.bundle import parse_bundle
from kafscale.log.heads import Head, Seg, decode_head
from kafscale.log.places import place_of
from kafscale.log.segment import BATCH_HEADER_SIZE, FOOTER_SIZE, HEADER_SIZE
from kafscale.storage.keys import Keyspace, PartitionKey
from kafscale.storage.objects import Buffer
from kafscale.storage.schema import UnreadableValue

from tools.simulator.store import Kept
from tools.simulator.world import World

KEYS: Final = Keyspace()
LOST, REPLACED, DAMAGED = "is lost", "is replaced", "is damaged"
OTHER: Final = b"of another program"
WAYS: Final = (LOST, LOST, REPLACED, DAMAGED)


@dataclass(frozen=True, slots=True)
class Loss:
    key: str
    how: str
    kept: Kept
    """The object as it was."""
    touched: frozenset[PartitionKey]
    """The partitions that have records in it. A bystander is any other."""


def heads(world: World) -> dict[PartitionKey, Head]:
    """As etcd has them now: those that can be read."""
    found = {}
    for kv in world.etcd.model.under(KEYS.heads_prefix()):
        with suppress(UnreadableValue):
            found[KEYS.parse_head(kv.key)] = decode_head(kv.value)
    return found


def places(world: World) -> dict[str, list[tuple[PartitionKey, Seg]]]:
    """By the key of the object: what tails name."""
    found: dict[str, list[tuple[PartitionKey, Seg]]] = {}
    for where, head in heads(world).items():
        for seg in head.tail:
            found.setdefault(place_of(KEYS, head.topic, where[1], seg).key, []).append((where, seg))
    return found


def partitions_in(data: Buffer) -> frozenset[PartitionKey]:
    """Of a bundle: also those that may commit their slice later."""
    return frozenset((entry.topic_id, entry.partition) for entry in parse_bundle(data).entries)


def lose(
    world: World, chance: random.Random, spared: frozenset[PartitionKey] = frozenset(), *, most: bool = False
) -> Loss | None:
    """One of the objects that heads name, and that no `spared` partition has a part in. None: there is no such one.
    `most`: the one that the most partitions name, with all that it holds."""
    objects, choice = world.store.objects, list[tuple[str, frozenset[PartitionKey]]]()
    by_key = places(world)
    for key, segs in by_key.items():
        data = objects.bytes_of(key)
        if data is None or data == OTHER:
            continue
        touched = frozenset(where for where, _ in segs)
        if KEYS.parse_bundle(key) is not None:
            touched |= partitions_in(data)
        if not touched & spared:
            choice.append((key, touched))
    if not choice:
        return None
    if most:
        largest = max(len(by_key[key]) for key, _ in choice)
        choice = [each for each in choice if len(by_key[each[0]]) == largest]
    key, touched = chance.choice(choice)
    how = chance.choice((LOST, REPLACED) if most else WAYS)
    if how == LOST:
        kept = objects.lose(key)
    elif how == REPLACED:
        kept = objects.replace(key, OTHER)
    else:
        _, seg = chance.choice(by_key[key])
        first = seg.position + HEADER_SIZE + BATCH_HEADER_SIZE
        kept = objects.damage(key, chance.randrange(first, seg.position + seg.size - FOOTER_SIZE))
    world.note(f"** the object {key} {how}; {len(touched)} partitions have records in it")
    return Loss(key, how, kept, touched)


def give_back(world: World, loss: Loss) -> None:
    """As an operator restores a version of the object."""
    world.note(f"** the object {loss.key} is there again")
    world.store.objects.give_back(loss.kept)
