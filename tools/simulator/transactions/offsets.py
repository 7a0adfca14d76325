"""Offsets of groups without members, next to transactions: plain commits, and fetches of stable offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import offset_commit, offset_fetch

from tools.simulator.clients import Client, Unanswered
from tools.simulator.transactions.history import Book, Position

LEDGER: Final = "ledger"
LEDGER_PARTITIONS: Final = 3
COMMIT_V: Final = 7
FETCH_V: Final = 7


async def stable_offsets(client: Client, book: Book, group: str) -> dict[int, int]:
    """By partition; again until none is pending."""
    while True:
        found = await looked_up(client, book, group)
        if len(found) == LEDGER_PARTITIONS:
            return found
        await client.rest()


async def looked_up(client: Client, book: Book, group: str) -> dict[int, int]:
    """One request: those that are stable."""
    topic = offset_fetch.OffsetFetchRequestTopic(
        name=LEDGER, partition_indexes=list(range(LEDGER_PARTITIONS))
    )
    request = offset_fetch.OffsetFetchRequest(group_id=group, topics=[topic], require_stable=True)
    floors = dict(book.floors)
    try:
        answer = await client.ask(offset_fetch, FETCH_V, request)
    except Unanswered:
        return {}
    if answer.error_code != ErrorCode.NONE:
        return {}
    parts = [part for each in answer.topics for part in each.partitions if part.error_code == ErrorCode.NONE]
    for part in parts:
        position = group, part.partition_index
        book.has_offset(position, part.committed_offset, floors.get(position, -1))
    return {part.partition_index: part.committed_offset for part in parts}


async def plain_commit(client: Client, book: Book, position: Position, offset: int) -> None:
    """Sent once."""
    group, partition = position
    book.plain.setdefault(position, set()).add(offset)
    part = offset_commit.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
    topic = offset_commit.OffsetCommitRequestTopic(name=LEDGER, partitions=[part])
    request = offset_commit.OffsetCommitRequest(group_id=group, topics=[topic])
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
    groups: Sequence[str]
    pace_s: float

    async def run(self) -> None:
        chance = self.client.chance
        while not self.client.world.stopping:
            await looked_up(self.client, self.book, chance.choice(self.groups))
            await asyncio.sleep(chance.expovariate(1 / self.pace_s))
