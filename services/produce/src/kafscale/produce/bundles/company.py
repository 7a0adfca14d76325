"""How long a bundle waits for more requests before it is sealed.

Pure; all times are mono_ms. A flush costs about the same for one request as for many. So a bundle that could be sealed
waits while more requests are likely: while another bundle is in flight, or while there are fewer requests than the last
bundle answered and left waiting. The wait begins when something could be sealed, and ends after `patience_ms`. It does
not begin with the first record. That one may have waited for a flight of its partition, and its wait would end with
that flight. Then two crowds of producers take turns for ever, in twice as many bundles.

The patience is learned. It begins with 0. It is raised when a bundle missed requests, because they came soon after its
seal or waited for its end. It doubles with each wait that brought requests, and each wait in vain halves it. A producer
that is alone, with one request in flight, sends nothing while a bundle is in flight. So it never waits.

The limit is the linger, or half the time that a bundle takes where that is longer: the shorter time of the last two, so
that one slow bundle changes nothing. What is expected is counted again when a bundle ends, so producers that left are
waited for once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kafscale.produce.log.model import NEVER

_FLIGHT_SHARE: Final = 2
_FIRST_SHARE: Final = 3
_WORTH: Final = 8
"""A wait was in vain if it added less than an eighth to the requests that waited."""


@dataclass(frozen=True, slots=True)
class Waited:
    """How long a bundle waited for more requests, and whether too few came."""

    ms: int
    in_vain: bool


class Company:
    """Of one instance. `linger_ms` limits the wait where bundles are fast, `most_ms` where they are slow."""

    def __init__(self, linger_ms: int, most_ms: int) -> None:
        self._linger_ms = linger_ms
        self._most_ms = max(linger_ms, most_ms)
        self.limit_ms = linger_ms
        self.patience_ms = 0
        self._took_ms = 0  # the last bundle
        self._begun_ms = NEVER  # since when something could be sealed
        self._first = 0  # requests at that moment
        self._expected = 0
        self._landed_ms = 0

    def landed(self, answered: int, waiting: int, took_ms: int, now_ms: int) -> None:
        """A bundle ended. It answers `answered` requests; `waiting` others can be sealed now."""
        slow_ms = min(self._took_ms, took_ms) // _FLIGHT_SHARE
        self._took_ms = took_ms
        self.limit_ms = max(self._linger_ms, min(slow_ms, self._most_ms))
        self.patience_ms = min(self.patience_ms, self.limit_ms)
        self._expected = answered + waiting
        self._landed_ms = now_ms
        if waiting:
            self.missed()

    def missed(self) -> None:
        """Requests came that the last bundle would have carried if it had waited."""
        self.patience_ms = max(self.patience_ms, -(-self.limit_ms // _FIRST_SHARE))

    def gathers(self, requests: int, now_ms: int) -> None:
        """So many requests could be sealed now."""
        if not requests:
            self._begun_ms = NEVER
        elif self._begun_ms == NEVER:
            self._begun_ms, self._first = now_ms, requests

    def until_ms(self, requests: int, now_ms: int, *, in_flight: bool) -> int:
        """When to seal them, if no more come."""
        begun_ms = min(self._begun_ms, now_ms)
        come_back = requests < self._expected and begun_ms <= self._landed_ms + self.limit_ms
        return begun_ms + self.patience_ms if in_flight or come_back else begun_ms

    def sealed(self, requests: int, now_ms: int) -> Waited:
        """They are sealed now, maybe as several bundles."""
        waited_ms = min(now_ms - min(self._begun_ms, now_ms), self.patience_ms)
        if not waited_ms:
            return Waited(0, in_vain=False)
        in_vain = (requests - self._first) * _WORTH < self._first
        self.patience_ms = self.patience_ms // 2 if in_vain else min(2 * self.patience_ms, self.limit_ms)
        return Waited(waited_ms, in_vain)
