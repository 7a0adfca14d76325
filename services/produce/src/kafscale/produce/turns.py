"""Who may flush next where a flush costs no money but CPU: a few partitions at a time.

Pure. A flush takes the same milliseconds of CPU whatever it carries, so when many partitions want one, those
that wait their turn gather company. The laws: no more than AT_ONCE_MAX partitions hold a turn, from the grant
to the commit; among the waiting the one with the greatest need goes first; a turn whose commit does not come
lapses after TURN_MS_MAX, so that one partition's trouble does not stop the others. However long a turn takes,
a writer seals without one when its longest linger is over.
"""

from __future__ import annotations

from kafscale.produce.governor import Governor, K

AT_ONCE_MAX = 4
TURN_MS_MAX = 1_000


class Turns(Governor[K]):
    """A governor that gives turns instead of tokens."""

    def __init__(self) -> None:
        super().__init__()
        self._turns: dict[K, int] = {}  # partition → since ms, oldest first

    def admit(self, key: K, bytes_waiting: int, now_ms: int) -> bool:
        self._lapse(now_ms)
        if key in self._turns:
            return True
        if not self._waiting and len(self._turns) < AT_ONCE_MAX:
            self._turns[key] = now_ms
            return True
        self._queue(key, bytes_waiting, now_ms)
        return False

    def done(self, key: K) -> None:
        self._turns.pop(key, None)

    def forget(self, key: K) -> None:
        super().forget(key)
        self.done(key)

    def due(self, now_ms: int) -> list[K]:
        self._lapse(now_ms)
        granted = self._take(AT_ONCE_MAX - len(self._turns), now_ms)
        self._turns |= dict.fromkeys(granted, now_ms)
        return granted

    def next_due_ms(self, now_ms: int) -> int | None:
        if not self._waiting:
            return None
        self._lapse(now_ms)
        if len(self._turns) < AT_ONCE_MAX:
            return now_ms
        return next(iter(self._turns.values())) + TURN_MS_MAX

    def _lapse(self, now_ms: int) -> None:
        while self._turns:
            oldest = next(iter(self._turns))
            if now_ms - self._turns[oldest] < TURN_MS_MAX:
                return
            del self._turns[oldest]
