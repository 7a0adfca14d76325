"""Members of a group by KIP-848: ConsumerGroupHeartbeat. The coordinator shares the partitions out, and each member
says what it has given up."""

from __future__ import annotations

from typing import Final

from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import consumer_group_heartbeat

from tools.simulator.clients import TOPIC
from tools.simulator.groups.members import LOADING, Group, Member, Seat

VERSION: Final = 1
JOINS: Final = 0
LEAVES: Final = -1
LEAVES_FOR_A_WHILE: Final = -2
ASSIGNORS: Final = (None, "uniform", "range")
CODES: Final = LOADING | {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
OTHER_TYPE: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND})
"""Until the last classic member is gone."""
STATIC_CODES: Final = CODES | {ErrorCode.UNRELEASED_INSTANCE_ID}
"""A static member that died has its place until its session ends."""


class ConsumerMember(Member):
    first_era = JOINS

    def __init__(self, group: Group, seat: Seat) -> None:
        super().__init__(group, seat)
        self.member_id = f"{seat.name}-{seat.lives}"
        self._assignor = seat.chance.choice(ASSIGNORS)
        self._told: frozenset[int] | None = None
        """What it said last that it has; None: the next heartbeat says everything."""
        self._was_unanswered = False
        self._topic_id = b""

    @property
    def asks_as(self) -> tuple[str | None, int]:
        return self.member_id, self.era

    async def beat(self) -> None:
        self.beats_next()
        was_unanswered, self._was_unanswered = self._was_unanswered, False
        answered = await self._say(self.era)
        if answered is None:
            self._told = None
            self._was_unanswered = True
            await self.seat.calls.rest()
            return
        code, answer = answered
        if code is ErrorCode.NONE:
            await self._take(answer)
            return
        self._told = None
        if code is ErrorCode.FENCED_MEMBER_EPOCH and was_unanswered:
            self.ledger.gone(self.name)  # two answers were lost, and with them two epochs
        self.trouble(code)
        await self.seat.calls.rest()

    async def leave(self) -> None:
        if self.is_joined:
            is_back_soon = self.seat.instance_id is not None and self.seat.chance.random() < 0.5
            self.own(frozenset())
            await self._say(LEAVES_FOR_A_WHILE if is_back_soon else LEAVES)

    def trouble(self, code: ErrorCode) -> None:
        match code:
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.GROUP_ID_NOT_FOUND:
                self.ledger.expelled(self.name, code.name, self.now_s)
                self.forget()
                self.era, self._told = JOINS, None
            case ErrorCode.STALE_MEMBER_EPOCH:
                self.beats_next(0)

    async def _say(
        self, epoch: int
    ) -> tuple[ErrorCode, consumer_group_heartbeat.ConsumerGroupHeartbeatResponse] | None:
        is_full = self._told is None and epoch >= JOINS
        owned = None
        if is_full or self._told != self.assigned:
            self._told = self.assigned
            topic = consumer_group_heartbeat.ConsumerGroupHeartbeatRequestTopicPartitions(
                topic_id=self._topic_id, partitions=sorted(self.assigned)
            )
            owned = [topic] if self.assigned else []
            self.ledger.released(self.name, self.assigned)
        request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self.group.name,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.seat.instance_id,
            rebalance_timeout_ms=round(self.group.rules.rebalance_s * 1_000) if is_full else -1,
            subscribed_topic_names=[TOPIC] if is_full else None,
            server_assignor=self._assignor if is_full else None,
            topic_partitions=owned,
        )
        codes = CODES if self.seat.instance_id is None else STATIC_CODES
        codes |= OTHER_TYPE if self.group.changes_type else frozenset()
        return await self.call(consumer_group_heartbeat, VERSION, request, codes)

    async def _take(self, answer: consumer_group_heartbeat.ConsumerGroupHeartbeatResponse) -> None:
        before = self.group_era
        self.era, self.is_joined = answer.member_epoch, True
        self.ledger.reached(self.name, before, self.group_era)
        if answer.assignment is None:
            return
        topics = answer.assignment.topic_partitions
        partitions = frozenset(number for topic in topics for number in topic.partitions)
        self._topic_id = topics[0].topic_id if topics else self._topic_id
        self.ledger.holds(self.group_era, self.name, partitions, self.now_s)
        if self.assigned - partitions:
            await self.commit()
        if not self.is_joined:
            return  # the commit was refused, because it is a member no more
        self.own(partitions)
        if partitions != self._told:
            self.beats_next(0)
