"""Consumers as the clients write them, against a judged group: the plain simulation of law L13.

Each consumer is a small program: join, take an id if told so, lead or follow, sync, heartbeat; on an
error do what the Java client does. Eager ones give up what they had before they join; cooperative
ones (KIP-429) keep it, and the leader hands out only what nobody else still owns.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from kafscale.coordinator.classic.machine import next_deadline
from kafscale.coordinator.classic.model import (
    NO_GENERATION,
    NO_MEMBER_ID,
    Abandon,
    Generation,
    Heartbeat,
    InstanceId,
    Join,
    JoinReply,
    Leave,
    Leaver,
    MemberId,
    Phase,
    Reply,
    Rules,
    StatusReply,
    Sync,
    SyncReply,
    Tick,
    Token,
)
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.classic.classic_laws import Judge

RULES = Rules(session_timeout_min_ms=100, initial_rebalance_delay_ms=300)
PARTITIONS = frozenset(range(7))
SESSION_MS = 1_000
REBALANCE_MS = 3_000
HEARTBEAT_MS = 300
TURN_MS = 50
RETRY_MS = 100


def pack(partitions: frozenset[int]) -> bytes:
    return bytes(sorted(partitions))


@dataclass(slots=True)
class Consumer:
    """One process. `token` is its request that is open; `todo` what it does next."""

    name: str
    instance: InstanceId | None
    cooperative: bool
    v4: bool
    member_id: MemberId = NO_MEMBER_ID
    generation: Generation = NO_GENERATION
    owned: frozenset[int] = frozenset()
    todo: str = "join"
    token: Token | None = None
    asked_ms: int = 0
    next_ms: int = 0
    fenced: bool = False
    roster: tuple[tuple[MemberId, frozenset[int]], ...] = ()

    @property
    def settled(self) -> bool:
        return self.todo == "beat"


@dataclass(slots=True)
class Town:
    """Consumers and their group. `lossy`: answers may get lost, and their connections with them."""

    seed: int
    cooperative: bool
    judge: Judge = field(default_factory=lambda: Judge(RULES))
    consumers: list[Consumer] = field(default_factory=list)
    chance: random.Random = field(init=False)
    lossy: bool = True
    born: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)

    def start(self, instance: str | None = None) -> None:
        self.born += 1
        taken = None if instance is None else InstanceId(instance)
        consumer = Consumer(f"c{self.born}", taken, self.cooperative, self.chance.random() < 0.5)
        self.consumers.append(consumer)

    def stop(self, consumer: Consumer, *, politely: bool) -> None:
        self.consumers.remove(consumer)
        if consumer.token is not None:
            self._hear(self.judge.do(Abandon(token=consumer.token)))
        if politely and consumer.member_id:
            token = self.judge.token()
            self._hear(self.judge.do(Leave(token=token, leavers=(Leaver(member_id=consumer.member_id),))))

    def restart(self, consumer: Consumer) -> None:
        """A static member's process comes back at once, the former one may not be gone yet."""
        if self.chance.random() < 0.7:
            self.stop(consumer, politely=False)
        self.start(consumer.instance)

    def crash_coordinator(self) -> None:
        self.judge.crash()
        for consumer in self.consumers:
            self._lose(consumer)

    def run(self, elapsed_ms: int) -> None:
        until_ms = self.judge.now_ms + elapsed_ms
        while self.judge.now_ms < until_ms:
            self.judge.now_ms += self.chance.randrange(1, TURN_MS)
            due_ms = next_deadline(self.judge.group)
            if due_ms is not None and due_ms <= self.judge.now_ms:
                self._hear(self.judge.do(Tick()))
            for consumer in self.chance.sample(self.consumers, len(self.consumers)):
                self._act(consumer)

    def _act(self, consumer: Consumer) -> None:
        now_ms = self.judge.now_ms
        if consumer.fenced or now_ms < consumer.next_ms:
            return
        if consumer.token is not None:
            if now_ms - consumer.asked_ms > 3 * REBALANCE_MS:
                self._hear(self.judge.do(Abandon(token=consumer.token)))
                self._lose(consumer)
            return
        consumer.token, consumer.asked_ms = self.judge.token(), now_ms
        self._hear(self.judge.do(self._request(consumer, consumer.token)))

    def _request(self, consumer: Consumer, token: Token) -> Join | Sync | Heartbeat:
        if consumer.todo == "join":
            if not consumer.cooperative:
                consumer.owned = frozenset()
            return Join(
                token=token,
                member_id=consumer.member_id,
                fresh_id=self.judge.fresh_id(consumer.name),
                instance_id=consumer.instance,
                protocol_type="consumer",
                protocols=(("p", pack(consumer.owned)),),
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                needs_known_id=consumer.v4,
                may_skip_assignment=consumer.v4,
            )
        if consumer.todo == "beat":
            return Heartbeat(
                token=token,
                generation=consumer.generation,
                member_id=consumer.member_id,
                instance_id=consumer.instance,
            )
        return Sync(
            token=token,
            generation=consumer.generation,
            member_id=consumer.member_id,
            instance_id=consumer.instance,
            protocol_name="p",
            assignments=tuple(self._assign(consumer)),
        )

    def _assign(self, leader: Consumer) -> list[tuple[MemberId, bytes]]:
        """As even as it goes; cooperatively, nobody gets what another has not given up yet."""
        members = [member_id for member_id, _ in leader.roster]
        ordered = sorted(PARTITIONS)
        wanted = {member_id: frozenset(ordered[at :: len(members)]) for at, member_id in enumerate(members)}
        if leader.cooperative:
            owned = dict(leader.roster)
            for member_id in members:
                others = [owned[other] for other in members if other != member_id]
                wanted[member_id] -= frozenset[int]().union(*others) - owned[member_id]
        return [(member_id, pack(partitions)) for member_id, partitions in wanted.items()]

    def _hear(self, replies: tuple[Reply, ...]) -> None:
        for reply in replies:
            for consumer in self.consumers:
                if consumer.token == reply.token:
                    if self.lossy and self.chance.random() < 0.1:
                        self._lose(consumer)
                    else:
                        consumer.token = None
                        self._take(consumer, reply)

    def _lose(self, consumer: Consumer) -> None:
        """The answer did not arrive: the same again, a little later."""
        consumer.token = None
        consumer.next_ms = self.judge.now_ms + RETRY_MS

    def _take(self, consumer: Consumer, reply: Reply) -> None:
        match reply.error:
            case ErrorCode.NONE:
                self._succeed(consumer, reply)
            case ErrorCode.MEMBER_ID_REQUIRED if isinstance(reply, JoinReply):
                consumer.member_id = reply.member_id
            case ErrorCode.REBALANCE_IN_PROGRESS:
                consumer.todo = "join"
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                consumer.member_id, consumer.generation = NO_MEMBER_ID, NO_GENERATION
                consumer.owned, consumer.todo = frozenset(), "join"
            case ErrorCode.FENCED_INSTANCE_ID:
                consumer.fenced = True
            case _:
                raise AssertionError(reply)

    def _succeed(self, consumer: Consumer, reply: Reply) -> None:
        match reply:
            case JoinReply():
                consumer.member_id, consumer.generation = reply.member_id, reply.generation
                consumer.roster = ()
                if not reply.skip_assignment:
                    consumer.roster = tuple(
                        (m.member_id, frozenset(m.metadata or b"")) for m in reply.members
                    )
                consumer.todo = "sync"
            case SyncReply():
                given = frozenset(reply.assignment)
                revoked = consumer.owned - given
                consumer.owned, consumer.todo = given, "beat"
                if consumer.cooperative and revoked:
                    consumer.todo = "join"  # give it up, then tell the others by joining again
            case StatusReply():
                consumer.next_ms = self.judge.now_ms + HEARTBEAT_MS

    # --- what has to hold ----------------------------------------------------------------------

    def trouble(self) -> None:
        kind = self.chance.random()
        static = [consumer for consumer in self.consumers if consumer.instance is not None]
        if kind < 0.3 or not self.consumers:
            if len(self.consumers) < 6:
                names = {consumer.instance for consumer in static}
                free = [name for name in ("s0", "s1") if name not in names]
                self.start(free[0] if free and self.chance.random() < 0.3 else None)
        elif kind < 0.5:
            self.stop(self.chance.choice(self.consumers), politely=self.chance.random() < 0.5)
        elif kind < 0.7 and static:
            self.restart(self.chance.choice(static))
        elif kind < 0.85:
            self.crash_coordinator()
        else:
            self.run(2 * SESSION_MS)

    def must_be_settled(self) -> None:
        """L13: everyone alive is in the same generation, and each partition has exactly one owner."""
        alive = [consumer for consumer in self.consumers if not consumer.fenced]
        group = self.judge.group
        if not alive:
            assert group.phase is Phase.EMPTY
            return
        assert group.phase is Phase.STABLE
        assert {consumer.member_id for consumer in alive} == {*group.members}
        assert {consumer.generation for consumer in alive} == {group.generation}
        assert all(consumer.settled for consumer in alive)
        owned = [partition for consumer in alive for partition in consumer.owned]
        assert len(owned) == len(set(owned)), "a partition has two owners"
        assert {*owned} == PARTITIONS, "a partition has no owner"


def simulate(seed: int, *, cooperative: bool, troubles: int) -> Town:
    town = Town(seed, cooperative)
    for instance in ("s0", None, None):
        town.start(instance)
    for _ in range(troubles):
        town.run(town.chance.randrange(4 * SESSION_MS))
        town.trouble()
    town.lossy = False
    town.run(6 * REBALANCE_MS + 4 * SESSION_MS)
    town.must_be_settled()
    return town
