"""Which protocol a generation speaks: one that every member offers, by the votes of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from kafscale.coordinator.classic.model import Member, Phase, Protocol
from kafscale.coordinator.classic.turn import Turn


def supports(turn: Turn, protocol_type: str, protocols: tuple[Protocol, ...]) -> bool:
    """Whether who offers these can be a member: one of them is offered by all that are (in Kafka, and
    so here, a member that joins again is held against its own former offer as well)."""
    if turn.phase is Phase.EMPTY:
        return bool(protocol_type and protocols)
    if protocol_type != turn.protocol_type:
        return False
    members = turn.members.values()
    return any(all(_offers(member, name) for member in members) for name, _ in protocols)


def select(members: Collection[Member]) -> str:
    """Each member votes for the first of its protocols that all offer; the earlier member breaks ties."""
    common = {name for member in members for name, _ in member.protocols}
    for member in members:
        common.intersection_update([name for name, _ in member.protocols])
    assert common, "no member is let in that has nothing in common with the others"
    votes = Counter(next(name for name, _ in member.protocols if name in common) for member in members)
    return max(votes, key=votes.__getitem__)


def metadata_for(protocols: tuple[Protocol, ...], chosen: str) -> bytes:
    return next(metadata for name, metadata in protocols if name == chosen)


def _offers(member: Member, name: str) -> bool:
    return any(name == offered for offered, _ in member.protocols)
