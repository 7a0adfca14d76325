"""What a group's member was told about its commits, against what it read back.

A member commits 1, 2, 3 and so on, one at a time, and reads back between; so the order of events is that of the
clock, and an offset that is greater was committed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

NOTHING = -1
"""What is read back before the first commit."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The commit of an offset was answered without an error."""

    offset: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can say whether the commit took place: the connection was lost, or it may be retried."""

    offset: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The commit was answered with an error that says it did not take place, as to a member unknown."""

    offset: int


@dataclass(frozen=True, slots=True)
class Read:
    """An offset was read back; asked after all events before."""

    offset: int


Event = Acknowledged | Unknown | Refused | Read


def violations(group: str, events: Sequence[Event]) -> list[str]:
    """Sentences that say which law is broken; empty when none is.

    Lost commit: something older than an acknowledged one is read. Went back: older than what was read before.
    Phantom: what was never committed. Refused read: what was said not to have taken place.
    """
    found: list[str] = []
    acknowledged = read = NOTHING
    possible, refused = {NOTHING}, set[int]()
    for at, event in enumerate(events):
        match event:
            case Acknowledged(offset):
                possible.add(offset)
                acknowledged = max(acknowledged, offset)
            case Unknown(offset):
                possible.add(offset)
            case Refused(offset):
                refused.add(offset)
            case Read(offset):
                where = f"{group}, event {at}: {offset} was read"
                if offset < acknowledged:
                    found.append(f"lost commit: {where} after {acknowledged} was acknowledged")
                if offset < read:
                    found.append(f"went back: {where} after {read}")
                if offset in refused:
                    found.append(f"refused read: {where}, which was refused")
                elif offset not in possible:
                    found.append(f"phantom: {where}, which was never committed")
                read = max(read, offset)
            case _:
                assert_never(event)
    return found
