"""A manual clock, for everything that takes a Clock."""


class ManualClock:
    """Moves only by `advance`. Implements kafscale.runtime.clock.Clock."""

    __slots__ = ("_now_ms", "_wall_ms")

    def __init__(self, *, now_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def advance(self, delta_ms: int) -> None:
        self._now_ms += delta_ms
        self._wall_ms += delta_ms
