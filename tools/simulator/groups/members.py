"""Groups of consumers. Each group has two to four seats, which one member after another takes: a member reads the
partitions that it owns, commits, and at times leaves, dies without a word, or is slower than its session timeout.

What members have in common is here; how they speak with the coordinator is in `classic.py` and `consumer.py`, and the
laws are in `laws.py`.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import ModuleType
from typing import Any, Final

from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import offset_commit, offset_fetch

from tools.simulator.clients import TOPIC, Client, Reader, Records, Unanswered, end_of, fetched
from tools.simulator.groups.laws import Commit, Ledger
from tools.simulator.world import World

COMMIT_V, OFFSETS_V = 9, 9
BEAT_S: Final = 1.5
WAIT_MS: Final = 300
"""Of a Fetch."""
WORK_S: Final = (0.05, 0.5)
"""What the records of a Fetch cost."""
ABSENT_S: Final = (0.0, 10.0)
SLOW_SESSIONS: Final = (0.3, 2.5)
"""How long a slow member says nothing, in session timeouts."""
TURN_S: Final = 25.0
"""Mean time between two changes of a group's type."""
ERAS_PER_TURN: Final = 1_000_000
COMMIT_SHARE: Final = 0.5
"""How often a member commits after a Fetch."""

AWAY: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""A client asks for the coordinator, and then again."""
LOADING: Final = AWAY | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
COMMIT_CODES: Final = LOADING | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
}
OFFSETS_CODES: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
UNCERTAIN: Final = LOADING | {ErrorCode.REQUEST_TIMED_OUT}
"""After these a commit may have taken effect."""


class Fate(Enum):
    GO_ON = "go on"
    LEAVE = "left"
    DIE = "died"
    ARE_SLOW = "were slow"


FATES: Final = (Fate.LEAVE, Fate.DIE, Fate.ARE_SLOW)
FATE_EVERY_S: Final = 15.0
"""Mean time between two of a member."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Of all members of a group. The cluster has the same session timeout for groups by KIP-848."""

    session_s: float
    rebalance_s: float
    """Longer than a session, so that a member that is answered is not expelled for a rebalance."""


@dataclass(eq=False)
class Seat:
    """`calls` go to the coordinator, one after another, as those of Kafka's clients do."""

    name: str
    calls: Client
    fetches: Client
    instance_id: str | None
    lives: int = 0
    member: Member | None = None

    @property
    def chance(self) -> random.Random:
        return self.calls.chance


class Member(ABC):
    """From its first call to its end."""

    first_era: int
    """Of one that is no member yet."""

    def __init__(self, group: Group, seat: Seat) -> None:
        self.group, self.seat = group, seat
        self.ledger = group.ledger
        self.turn = group.turn
        self.member_id = ""
        self.era = self.first_era
        self.is_joined = False
        self.assigned: frozenset[int] = frozenset()
        self._readers: dict[int, Reader] = {}
        """Of the assigned partitions whose committed offset it knows."""
        self._done: dict[int, int] = {}
        """partition -> the offset that the group has, as far as this member knows"""
        self._fetching: asyncio.Task[None] | None = None
        self._beat_due_s = 0.0
        self._fate_due_s = self.now_s + seat.chance.expovariate(1 / FATE_EVERY_S)

    @property
    @abstractmethod
    def asks_as(self) -> tuple[str | None, int]:
        """The member id and the epoch of an OffsetFetch."""

    @abstractmethod
    async def beat(self) -> None:
        """Joins, or says that it is there."""

    @abstractmethod
    async def leave(self) -> None:
        """Says so."""

    @abstractmethod
    def trouble(self, code: ErrorCode) -> None:
        """An answer had this error."""

    @property
    def name(self) -> str:
        return self.seat.name

    @property
    def now_s(self) -> float:
        return self.group.world.loop.time()

    @property
    def group_era(self) -> int:
        """Its era, among those of all types that the group has had."""
        return self.turn * ERAS_PER_TURN + self.era

    @property
    def is_placed(self) -> bool:
        """Whether it reads what it owns."""
        return self.is_joined and self.assigned == self._readers.keys()

    async def live(self) -> None:
        while not self.group.is_over and self.turn == self.group.turn:
            if not self.is_joined or self.now_s >= self._beat_due_s:
                await self.beat()
            await self._place()
            await self._read()
            fate = self._fate()
            if fate is Fate.DIE:
                break
            if fate is Fate.LEAVE:
                await self._depart()
                break
            if fate is Fate.ARE_SLOW:
                await asyncio.sleep(self.group.rules.session_s * self.seat.chance.uniform(*SLOW_SESSIONS))
            if fate is Fate.ARE_SLOW or self.seat.chance.random() < COMMIT_SHARE:
                await self.commit()
        else:
            if self.turn != self.group.turn:
                await self._depart()
        self._end()

    async def _depart(self) -> None:
        await self.commit()
        await self.leave()

    def _fate(self) -> Fate:
        if self.now_s < self._fate_due_s or self.group.world.stopping:
            return Fate.GO_ON
        self._fate_due_s += self.seat.chance.expovariate(1 / FATE_EVERY_S)
        fate = self.seat.chance.choice(FATES)
        self.group.fates[fate] += 1
        return fate

    def _end(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
        self.seat.calls.close()
        self.seat.fetches.close()
        self.ledger.gone(self.name)

    # -- calls of the coordinator ----------------------------------------------------------------------

    async def call(
        self,
        api: ModuleType,
        version: int,
        request: object,
        allowed: frozenset[ErrorCode],
        timeout_s: float | None = None,
    ) -> tuple[ErrorCode, Any] | None:
        """The answer and its error; None if there is no answer."""
        sent_s = self.now_s
        try:
            answer = await self.seat.calls.ask(api, version, request, timeout_s)
        except Unanswered:
            return None
        code = self.group.checked(api, answer.error_code, allowed)
        if code is ErrorCode.NONE:
            self.ledger.alive(self.name, sent_s)
        return code, answer

    def beats_next(self, after_s: float = BEAT_S) -> None:
        self._beat_due_s = self.now_s + after_s

    # -- partitions ------------------------------------------------------------------------------------

    def own(self, partitions: frozenset[int]) -> None:
        """It reads these, and no others. What it had stays where it is."""
        self.assigned = partitions
        self._readers = {each: reader for each, reader in self._readers.items() if each in partitions}

    def forget(self) -> None:
        """It owns nothing, and must join again."""
        self.own(frozenset())
        self.is_joined = False

    async def _place(self) -> None:
        """Begins each new partition at the group's offset."""
        new = [each for each in sorted(self.assigned) if each not in self._readers]
        if not new:
            return
        code, found = await self.group.offsets(self.seat.calls, new, *self.asks_as)
        for partition, offset in found.items():
            begin = max(offset, 0)
            self.ledger.begun(partition, begin, self.group_era)
            self._done[partition] = begin
            self._readers[partition] = Reader(self.seat.fetches, self.group.records, partition, begin)
        if code is not ErrorCode.NONE:
            self.trouble(code)
        if not found:
            await self.seat.calls.rest()

    async def _read(self) -> None:
        """Waits for a Fetch, at most until the next heartbeat is due, during which the Fetch goes on."""
        if self._fetching is None:
            if not self._readers:
                await self.seat.calls.rest()
                return
            self._fetching = asyncio.ensure_future(self._fetch(dict(self._readers)))
        until_beat_s = max(0.0, self._beat_due_s - self.now_s)
        done, _ = await asyncio.wait({self._fetching}, timeout=until_beat_s)
        if done:
            self._fetching.result()
            self._fetching = None
            await asyncio.sleep(self.seat.chance.uniform(*WORK_S))

    async def _fetch(self, readers: Mapping[int, Reader]) -> None:
        try:
            parts = await fetched(self.seat.fetches, list(readers.values()), WAIT_MS)
        except Unanswered:
            await self.seat.fetches.rest()
            return
        for part in parts:
            reader = readers[part.partition_index]
            if self._readers.get(reader.partition) is reader and reader.answered(part):
                self.ledger.given(reader.partition, reader.offset)

    async def commit(self) -> None:
        """What it has read since its last commit."""
        offsets = {
            each: reader.offset for each, reader in self._readers.items() if reader.offset != self._done[each]
        }
        if not offsets:
            return
        commits = {each: Commit(offset, self.group_era, self.now_s) for each, offset in offsets.items()}
        for partition, commit in commits.items():
            self.ledger.commit_sent(partition, commit)
        parts = [
            offset_commit.OffsetCommitRequestPartition(partition_index=each, committed_offset=offset)
            for each, offset in offsets.items()
        ]
        request = offset_commit.OffsetCommitRequest(
            group_id=self.group.name,
            generation_id_or_member_epoch=self.era,
            member_id=self.member_id,
            group_instance_id=self.seat.instance_id,
            topics=[offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=parts)],
        )
        try:
            answer = await self.seat.calls.ask(offset_commit, COMMIT_V, request)
        except Unanswered:
            return
        codes = {
            part.partition_index: self.group.checked(offset_commit, part.error_code, COMMIT_CODES)
            for part in answer.topics[0].partitions
        }
        for partition, commit in commits.items():
            code = codes[partition]
            if code is ErrorCode.NONE:
                self.ledger.commit_acknowledged(partition, commit, self.now_s)
                self._done[partition] = commit.offset
            elif code not in UNCERTAIN:
                self.ledger.commit_refused(partition, commit)
        for code in dict.fromkeys(codes.values()):
            if code is not ErrorCode.NONE:
                self.trouble(code)


@dataclass(eq=False)
class Group:
    name: str
    world: World
    records: Records
    kinds: Sequence[Callable[[Group, Seat], Member]]
    """One after another, again and again: a group that is empty may change its type."""
    rules: Rules
    partitions: int
    judge: Client
    ledger: Ledger
    seats: Sequence[Seat]
    turn: int = 0
    """How often the group has changed its type."""
    is_over: bool = False
    fates: Counter[Fate] = field(default_factory=Counter)

    def parts(
        self, writers: Sequence[asyncio.Task[None]], patience_s: float
    ) -> list[tuple[str, Coroutine[object, object, None]]]:
        """By the name of the client. The group is over when it has read what `writers` have written."""
        return [
            *((seat.name, self._sit(seat)) for seat in self.seats),
            (self.name, self._judge(writers, patience_s)),
        ]

    @property
    def changes_type(self) -> bool:
        return len(self.kinds) > 1

    async def _sit(self, seat: Seat) -> None:
        while not self.is_over:
            seat.lives += 1
            seat.member = self.kinds[self.turn % len(self.kinds)](self, seat)
            await seat.member.live()
            if not self.world.stopping:
                await asyncio.sleep(seat.chance.uniform(*ABSENT_S))

    def checked(self, api: ModuleType, error_code: int, allowed: frozenset[ErrorCode]) -> ErrorCode:
        code = ErrorCode(error_code)
        if code is not ErrorCode.NONE and code not in allowed:
            asked = api.__name__.rpartition(".")[2]
            self.ledger.broken.append(
                f"no client goes on: a member of {self.name} got {code.name} for {asked}"
            )
        return code

    async def offsets(
        self, client: Client, partitions: Sequence[int], member_id: str | None = None, era: int = -1
    ) -> tuple[ErrorCode, dict[int, int]]:
        """An error, and the committed offsets as far as they were answered."""
        questions = {each: self.ledger.of(each).asked() for each in partitions}
        topic = offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(partitions))
        asked = offset_fetch.OffsetFetchRequestGroup(
            group_id=self.name, member_id=member_id, member_epoch=era, topics=[topic]
        )
        request = offset_fetch.OffsetFetchRequest(groups=[asked], require_stable=True)
        found: dict[int, int] = {}
        code = ErrorCode.NONE
        try:
            answer = (await client.ask(offset_fetch, OFFSETS_V, request)).groups[0]
        except Unanswered:
            answer = None
        if answer is not None:
            code = self.checked(offset_fetch, answer.error_code, OFFSETS_CODES)
            for part in [part for topic in answer.topics for part in topic.partitions]:
                if self.checked(offset_fetch, part.error_code, OFFSETS_CODES) is ErrorCode.NONE:
                    found[part.partition_index] = part.committed_offset
        for partition, question in questions.items():
            if partition in found:
                self.ledger.offset_found(partition, question, found[partition])
            else:
                self.ledger.of(partition).answered(question)
        return code, found

    async def _judge(self, writers: Sequence[asyncio.Task[None]], patience_s: float) -> None:
        """The group reads and commits all records, and its members share the partitions."""
        everywhere = range(self.partitions)
        while not self.world.stopping:
            await asyncio.sleep(BEAT_S)
            await self.offsets(self.judge, everywhere)
            if self.changes_type and self.judge.chance.random() < BEAT_S / TURN_S:
                self.turn += 1
        why: list[str] = ["the producers are not done"]
        try:
            async with asyncio.timeout(patience_s):
                if writers:
                    await asyncio.wait(writers)
                ends = {each: await end_of(self.judge, TOPIC, each) or 0 for each in everywhere}
                while why:
                    await self.judge.rest()
                    _, found = await self.offsets(self.judge, everywhere)
                    why = self.ledger.behind(ends, found) + self._unsettled()
        except TimeoutError:
            self.ledger.broken.append(f"stuck: {self.name}: {'; '.join(why)}")
        self.is_over = True

    def _unsettled(self) -> list[str]:
        members = [seat.member for seat in self.seats if seat.member is not None]
        owned = sorted(each for member in members for each in member.assigned)
        found = [f"{member.name} is no member" for member in members if not member.is_placed]
        if owned != list(range(self.partitions)):
            found.append(f"its members have {owned}")
        return found
