"""Long work in Python, done on the event loop a piece at a time.

A thread would not help: Python runs one thread at a time, so each turn of the loop would wait for a thread that
computes, up to five milliseconds. So such work is a generator that stops every millisecond, and all of it takes turns.
After a piece the loop is left alone for twice as long as the piece took. A mere turn between two pieces would not do:
an append takes some thirty turns, and each of them would wait for a piece.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from kafscale.storage.system import monotonic_s

REST_SHARE = 2


class Pieces:
    """Shared by work of one kind. It takes turns, so work of few pieces does not wait for work of many."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, steps: Iterator[None]) -> None:
        """Returns when the steps are exhausted; raises what they raise."""
        done = object()
        while True:
            async with self._turn:
                began_s = monotonic_s()
                if next(steps, done) is done:
                    return
                await asyncio.sleep(REST_SHARE * (monotonic_s() - began_s))
