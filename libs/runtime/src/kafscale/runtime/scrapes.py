"""Makes the text of /metrics for many scrapers at the price of one.

Laws: one text is made at a time, and all scrapers that wait share it. After a text that took `t`, the next one waits
for 9 t, at most REST_S_MAX, so texts take a tenth of the process at most. A text is never older than its request.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

REST_FACTOR: Final = 9
REST_S_MAX: Final = 1.0

T = TypeVar("T")


def rest_s(took_s: float) -> float:
    """The pause after a text that took this long."""
    return min(REST_FACTOR * took_s, REST_S_MAX)


class Scrapes(Generic[T]):
    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._turn = asyncio.Lock()
        self._begun = 0
        self._made: tuple[int, T] | None = None
        self._rest_until_s = 0.0

    async def newest(self) -> T:
        """What was made after this call. Raises what `make` raises."""
        asked_after = self._begun
        async with self._turn:
            if self._made is not None and self._made[0] > asked_after:
                return self._made[1]
            loop = asyncio.get_running_loop()
            await asyncio.sleep(max(0.0, self._rest_until_s - loop.time()))
            self._begun += 1
            began_s, number = loop.time(), self._begun
            try:
                made = await self._make()
            finally:
                self._rest_until_s = loop.time() + rest_s(loop.time() - began_s)
            self._made = number, made
            return made
