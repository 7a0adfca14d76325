"""Compare-and-swap with a bound on its tries. An attempt reads, decides, and writes if what it read has not changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

TRIES_MAX = 16


class TooContended(Exception):
    """Other processes changed the record in every attempt. Nothing was written."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} was changed by others {TRIES_MAX} times while we tried to change it")


async def swapped(what: str, attempt: Callable[[], Awaitable[T | None]]) -> T:
    """The result of the first attempt that is not None; None means that another process changed the record first.

    `what` names the record in the message. Raises TooContended after TRIES_MAX attempts, and what `attempt` raises.
    """
    for _ in range(TRIES_MAX):
        result = await attempt()
        if result is not None:
            return result
    raise TooContended(what)
