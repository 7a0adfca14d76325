"""Offsets of groups without members, next to transactions: plain commits, and fetches of stable offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import offset_commit, offset_fetch

from tools.simulator.clients import Client, Unanswered
from tools.simulator.transactions.history import Book, Position

LEDGER: Final = "ledger"
LEDGER_PARTITIONS: Final = 3
WIDE: Final = "wide"
WIDE_PARTITIONS: Final = 60
"""Nobody writes to them. The end of a transaction moves 50 offsets at a time."""
COMMIT_V: Final = 7
FETCH_V: Final = 7


class Group(NamedTuple):
    """One without members, and the topic whose offsets it has."""

    name: str
    topic: str
    partitions: int


COPIER_GROUP: Final = Group("copier", LEDGER, LEDGER_PARTITIONS)
MIXER_GROUP: Final = Group("mixer", WIDE, WIDE_PARTITIONS)


async def stable_offsets(client: Client, book: Book, group: Group) -> dict[int, int]:
    """By partition; again until none is pending."""
    while True:
        found = await looked_up(client, book, group)
        if len(found) == group.partitions:
            return found
        await client.rest()


async def looked_up(client: Client, book: Book, group: Group) -> dict[int, int]:
    """One request: those that are stable."""
    indexes = list(range(group.partitions))
    topic = offset_fetch.OffsetFetchRequestTopic(name=group.topic, partition_indexes=indexes)
    request = offset_fetch.OffsetFetchRequest(group_id=group.name, topics=[topic], require_stable=True)
    floors = dict(book.floors)
    try:
        answer = await client.ask(offset_fetch, FETCH_V, request)
    except Unanswered:
        return {}
    if answer.error_code != ErrorCode.NONE:
        return {}
    parts = [part for each in answer.topics for part in each.partitions if part.error_code == ErrorCode.NONE]
    for part in parts:
        position = group.name, part.partition_index
        book.has_offset(position, part.committed_offset, floors.get(position, -1))
    return {part.partition_index: part.committed_offset for part in parts}


async def plain_commit(client: Client, book: Book, group: Group, partition: int, offset: int) -> None:
    """Sent once."""
    position: Position = group.name, partition
    book.plain.setdefault(position, set()).add(offset)
    part = offset_commit.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    topic = offset_commit.OffsetCommitRequestTopic(name=group.topic, partitions=[part])
    request = offset_commit.OffsetCommitRequest(group_id=group.name, topics=[topic])
    try:
        answer = await client.ask(offset_commit, COMMIT_V, request)
    except Unanswered:
        book.maybe.setdefault(position, set()).add(offset)
        return
    if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
        book.reaches(position, offset)
    else:
        book.maybe.setdefault(position, set()).add(offset)


@dataclass(eq=False)
class Observer:
    """Looks at the offsets of groups again and again."""

    client: Client
    book: Book
    groups: Sequence[Group]
    pace_s: float

    async def run(self) -> None:
        chance = self.client.chance
        while not self.client.world.stopping:
            await looked_up(self.client, self.book, chance.choice(self.groups))
            await asyncio.sleep(chance.expovariate(1 / self.pace_s))
