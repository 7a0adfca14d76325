"""Compares the answers to a member's commits with the offsets that it read back.

A member commits 1, 2, 3 and so on, one at a time, and reads back in between. So the events are in order of time, and a
greater offset was committed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

NOTHING = -1
"""The result of a read before the first commit."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The commit of an offset was answered without an error."""

    offset: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The outcome of the commit is unknown: the connection was lost, or the error is retriable."""

    offset: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The commit failed with an error that says it was not made, such as UNKNOWN_MEMBER_ID."""

    offset: int


@dataclass(frozen=True, slots=True)
class Read:
    """An offset was read back. The read started after all earlier events."""

    offset: int


Event = Acknowledged | Unknown | Refused | Read


def violations(group: str, events: Sequence[Event]) -> list[str]:
    """One sentence per broken law; empty if none is broken.

    Lost commit: a read is older than an acknowledged commit. Went back: a read is older than an earlier read.
    Phantom: a read of an offset that was never committed. Refused read: a read of a commit that failed.
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
