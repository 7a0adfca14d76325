"""Members of a classic group: JoinGroup, SyncGroup, Heartbeat. The leader shares the partitions out.

An eager group gives up all partitions before it rebalances. A cooperative one keeps them: a partition that moves is
nobody's for one generation, and who had it joins once more.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from kafscale.wire.consumer_protocol import assigned
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import heartbeat, join_group, leave_group, sync_group

from tools.simulator.clients import TOPIC
from tools.simulator.groups.members import AWAY, LOADING, Member

JOIN_V, SYNC_V, HEARTBEAT_V, LEAVE_V = 9, 5, 4, 5
JOIN_GRACE_S: Final = 5.0
"""By which a client waits longer than its rebalance timeout."""
NO_GENERATION: Final = -1
PROTOCOL_TYPE: Final = "consumer"
GIVES_UP_UNCOMMITTED: Final = 0.2
"""The share of rebalances before which a member does not commit."""

JOIN_CODES: Final = LOADING | {
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
}
OTHER_TYPE: Final = frozenset({ErrorCode.INCONSISTENT_GROUP_PROTOCOL})
"""Until the last member by KIP-848 is gone."""
SYNC_CODES: Final = AWAY | {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
}
HEARTBEAT_CODES: Final = SYNC_CODES
LEAVE_CODES: Final = LOADING | {ErrorCode.UNKNOWN_MEMBER_ID}

_HEAD: Final = struct.pack(">hih", 1, 1, len(TOPIC)) + TOPIC.encode() + struct.pack(">i", -1)
"""A subscription to the topic, version 1, without user data."""
_VERSION: Final = struct.pack(">h", 1)
_NO_USER_DATA: Final = struct.pack(">i", -1)


class EagerMember(Member):
    protocol = "range"
    first_era = NO_GENERATION

    @property
    def asks_as(self) -> tuple[str | None, int]:
        return None, NO_GENERATION

    async def beat(self) -> None:
        if not self.is_joined:
            await self._rebalance()
            return
        request = heartbeat.HeartbeatRequest(
            group_id=self.group.name,
            generation_id=self.era,
            member_id=self.member_id,
            group_instance_id=self.seat.instance_id,
        )
        self.beats_next()
        sent_s = self.now_s
        answered = await self.call(heartbeat, HEARTBEAT_V, request, HEARTBEAT_CODES)
        if answered is not None:
            self.trouble(answered[0])
            if answered[0] is ErrorCode.NONE:
                self.ledger.answered_in(self.group_era, self.name, "Heartbeat", sent_s)

    async def leave(self) -> None:
        if self.member_id:
            leaver = leave_group.LeaveGroupRequestMemberIdentity(
                member_id=self.member_id, group_instance_id=self.seat.instance_id
            )
            request = leave_group.LeaveGroupRequest(group_id=self.group.name, members=[leaver])
            await self.call(leave_group, LEAVE_V, request, LEAVE_CODES)

    def trouble(self, code: ErrorCode) -> None:
        match code:
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.ledger.expelled(self.name, code.name, self.now_s)
                self.forget()
                self.member_id, self.era = "", NO_GENERATION
            case ErrorCode.ILLEGAL_GENERATION:
                self.forget()
                self.era = NO_GENERATION
            case ErrorCode.REBALANCE_IN_PROGRESS:
                self.is_joined = False

    async def give_up(self) -> None:
        """Before it joins."""
        if self.seat.chance.random() >= GIVES_UP_UNCOMMITTED:
            await self.commit()
        self.own(frozenset())

    async def take(self, partitions: frozenset[int]) -> None:
        """Of a new generation."""
        self.own(partitions)

    def share(self, owned: Mapping[str, frozenset[int]]) -> dict[str, frozenset[int]]:
        """The leader's assignment. `owned`: what each member has now."""
        quotas = _quotas(owned, self.group.partitions)
        rest = iter(range(self.group.partitions))
        return {member: frozenset(_some(rest, quotas[member])) for member in sorted(owned)}

    async def _rebalance(self) -> None:
        await self.give_up()
        joined = await self._join()
        if joined is None:
            await self.seat.calls.rest()
        else:
            await self._sync(joined)

    async def _join(self) -> join_group.JoinGroupResponse | None:
        protocol = join_group.JoinGroupRequestProtocol(
            name=self.protocol, metadata=_HEAD + _listed(self.assigned)
        )
        request = join_group.JoinGroupRequest(
            group_id=self.group.name,
            session_timeout_ms=round(self.group.rules.session_s * 1_000),
            rebalance_timeout_ms=round(self.group.rules.rebalance_s * 1_000),
            member_id=self.member_id,
            group_instance_id=self.seat.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        timeout_s = self.group.rules.rebalance_s + JOIN_GRACE_S
        codes = JOIN_CODES | OTHER_TYPE if self.group.changes_type else JOIN_CODES
        answered = await self.call(join_group, JOIN_V, request, codes, timeout_s)
        if answered is None:
            return None
        answer: join_group.JoinGroupResponse
        code, answer = answered
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        self.trouble(code)
        if code is not ErrorCode.NONE:
            return None
        before = self.group_era
        self.member_id, self.era = answer.member_id, answer.generation_id
        self.ledger.reached(self.name, before, self.group_era)
        return answer

    async def _sync(self, joined: join_group.JoinGroupResponse) -> None:
        shares: dict[str, frozenset[int]] = {}
        if joined.leader == self.member_id and not joined.skip_assignment:
            shares = self.share({each.member_id: _owned(each.metadata) for each in joined.members})
            self.ledger.made(self.group_era, shares)
        request = sync_group.SyncGroupRequest(
            group_id=self.group.name,
            generation_id=self.era,
            member_id=self.member_id,
            group_instance_id=self.seat.instance_id,
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
            assignments=[
                sync_group.SyncGroupRequestAssignment(
                    member_id=member, assignment=_VERSION + _listed(share) + _NO_USER_DATA
                )
                for member, share in shares.items()
            ],
        )
        timeout_s = self.group.rules.rebalance_s + JOIN_GRACE_S
        sent_s = self.now_s
        answered = await self.call(sync_group, SYNC_V, request, SYNC_CODES, timeout_s)
        if answered is None:
            return
        code, answer = answered
        self.trouble(code)
        if code is ErrorCode.NONE:
            self.ledger.answered_in(self.group_era, self.name, "SyncGroup", sent_s)
            partitions = frozenset(number for _, number in assigned(answer.assignment) or ())
            self.ledger.assigned(self.group_era, self.name, partitions, self.now_s)
            self.is_joined = True
            self.beats_next()
            await self.take(partitions)


class CooperativeMember(EagerMember):
    protocol = "cooperative-sticky"

    async def give_up(self) -> None:
        """Nothing."""

    async def take(self, partitions: frozenset[int]) -> None:
        if self.assigned - partitions:
            await self.commit()
            self.is_joined = False
        if self.era != NO_GENERATION:  # else the commit was refused, because it is a member no more
            self.own(partitions)

    def share(self, owned: Mapping[str, frozenset[int]]) -> dict[str, frozenset[int]]:
        """Each keeps what it has, up to its quota. The rest of it is free in the next generation."""
        claims = Counter(each for theirs in owned.values() for each in theirs)
        quotas = _quotas(owned, self.group.partitions)
        kept = {
            member: frozenset([each for each in sorted(theirs) if claims[each] == 1][: quotas[member]])
            for member, theirs in sorted(owned.items())
        }
        free = iter([each for each in range(self.group.partitions) if not claims[each]])
        return {
            member: theirs | frozenset(_some(free, quotas[member] - len(theirs)))
            for member, theirs in kept.items()
        }


def _quotas(members: Iterable[str], partitions: int) -> dict[str, int]:
    """In the order of their ids."""
    names = sorted(members)
    each, more = divmod(partitions, len(names))
    return {name: each + (number < more) for number, name in enumerate(names)}


def _some(numbers: Iterable[int], count: int) -> list[int]:
    """At most so many of them."""
    return [number for _, number in zip(range(count), numbers, strict=False)]


def _listed(partitions: Iterable[int]) -> bytes:
    """As ConsumerProtocol has them in subscriptions and assignments."""
    numbers = sorted(partitions)
    if not numbers:
        return struct.pack(">i", 0)
    name = TOPIC.encode()
    return struct.pack(f">ih{len(name)}si{len(numbers)}i", 1, len(name), name, len(numbers), *numbers)


def _owned(metadata: bytes) -> frozenset[int]:
    """What the member of this subscription has."""
    found = assigned(_VERSION + metadata[len(_HEAD) :])
    assert found is not None, "all members are of one program"
    return frozenset(number for _, number in found)
