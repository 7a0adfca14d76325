"""Clients of groups and topics: offsets that are committed again and again, and topics that come and go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import delete_topics, offset_commit, offset_fetch

from e2e.checkers.history import Sent
from tools.simulator.clients import TOPIC, Client, Producer, Question, Records, Unanswered, create, judge

PASSING: Final = "passing"
PARTITIONS: Final = 2
DELETE_V, COMMIT_V, OFFSETS_V = 5, 7, 7
LATE_S: Final = 60.0
"""How long a commit without an answer may still be on its way."""
ROUNDS_MAX: Final = 10
"""Of a producer that writes to a topic before it is deleted."""
TRIES_MAX: Final = 40
HURRY_S: Final = 0.1


async def churn(client: Client, all_records: Records) -> None:
    """A topic is made, written, read and deleted, again and again with one name. No record of an older topic with that
    name may come back. A batch without an answer may come late, and then it is for the topic that has the name now."""
    number, late = 0, list[Sent]()
    while not client.world.stopping:
        number += 1
        records = Records(topic=PASSING)
        records.history.sent += late
        await create(client, PASSING, PARTITIONS)
        rounds = client.chance.randint(1, ROUNDS_MAX)
        name = f"{PASSING}-{number}"
        await Producer(client, records, name, PARTITIONS, False, rounds).run()
        if client.chance.random() < 0.7:
            await judge(client, records, PARTITIONS, TRIES_MAX)
        all_records.broken += records.broken
        late = records.history.undecided()
        await delete(client, PASSING)
        await client.pause()


async def come_and_go(client: Client) -> None:
    """A topic with the name of the client, in a hurry. Nobody judges its records."""
    client.pace_s = HURRY_S
    while not client.world.stopping:
        await create(client, client.name, PARTITIONS, tries_max=2)
        rounds = client.chance.randint(1, 3)
        records = Records(topic=client.name)
        await Producer(client, records, client.name, PARTITIONS, False, rounds).run()
        await delete(client, client.name)


async def delete(client: Client, topic: str) -> None:
    request = delete_topics.DeleteTopicsRequest(topic_names=[topic], timeout_ms=5_000)
    while True:
        answer = await client.patiently(delete_topics, DELETE_V, request)
        if answer.responses[0].error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            return
        await client.rest()


def asks_to_commit(group: str, topic_name: str, offset: int) -> Question:
    """OffsetCommit of partition 0, without a member."""
    part = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = offset_commit.OffsetCommitRequestTopic(name=topic_name, partitions=[part])
    return offset_commit, COMMIT_V, offset_commit.OffsetCommitRequest(group_id=group, topics=[topic])


def asks_committed(group: str, topic_name: str) -> Question:
    """OffsetFetch of partition 0."""
    topic = offset_fetch.OffsetFetchRequestTopic(name=topic_name, partition_indexes=[0])
    return offset_fetch, OFFSETS_V, offset_fetch.OffsetFetchRequest(group_id=group, topics=[topic])


@dataclass(eq=False)
class Committer:
    """Commits the offsets 1, 2, 3, … of a group without members, and reads them back. An answer that is older than the
    last acknowledged offset is a lost commit, unless a commit without an answer may have come late."""

    client: Client
    records: Records
    _sent: int = 0
    _acknowledged: int = -1
    _open: dict[int, float] = field(default_factory=dict)
    """Those without a known outcome, and when they were sent."""

    async def run(self) -> None:
        while not self.client.world.stopping:
            await self._commit()
            if self.client.chance.random() < 0.3:
                await self._check()
            await self.client.pause()
        while not await self._check():
            await self.client.rest()

    async def _commit(self) -> None:
        self._sent += 1
        self._open[self._sent] = self.client.world.loop.time()
        try:
            answer = await self.client.ask(*asks_to_commit(self.client.name, TOPIC, self._sent))
        except Unanswered:
            return
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        if code is ErrorCode.NONE:
            self._acknowledged = self._sent
            del self._open[self._sent]

    async def _check(self) -> bool:
        """Whether the offset could be read."""
        asked_s = self.client.world.loop.time()
        try:
            answer = await self.client.ask(*asks_committed(self.client.name, TOPIC))
        except Unanswered:
            return False
        if answer.error_code != ErrorCode.NONE or answer.topics[0].partitions[0].error_code != ErrorCode.NONE:
            return False
        found = answer.topics[0].partitions[0].committed_offset
        self._open = {
            each: at for each, at in self._open.items() if asked_s - at < LATE_S or each > self._acknowledged
        }
        if found != self._acknowledged and found not in self._open:
            self.records.broken.append(
                f"lost commit: {self.client.name} has {found}, {self._acknowledged} was acknowledged, "
                f"{list(self._open)} may be there"
            )
        return True
