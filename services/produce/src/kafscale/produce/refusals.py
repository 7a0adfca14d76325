"""Keeps the order of a lane across a redirect.

Pure. The law: once a request of (connection, partition) was refused with NOT_OWNER, every request
of that lane with the same or an older lane epoch is refused too, even when this instance owns the
partition by then. The front door holds the lane, waits for all of it, and sends it again in order
with a higher lane epoch; without this, a later request could pass the refused one.
"""

from __future__ import annotations

from kafscale.storage.keys import TopicId

REFUSALS_MAX = 1 << 16
REFUSAL_KEPT_MS = 60_000
"""Longer than a front door may hold a request on its way."""

Lane = tuple[int, TopicId, int]


class Refusals:
    """The refused lanes of the last minute, oldest first."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, tuple[int, int]] = {}  # → lane epoch, when

    def __len__(self) -> int:
        return len(self._lanes)

    def add(self, lane: Lane, lane_epoch: int, now_ms: int) -> None:
        known = self._lanes.pop(lane, None)
        if known is not None:
            lane_epoch = max(lane_epoch, known[0])
        self._lanes[lane] = (lane_epoch, now_ms)
        self._trim(now_ms)

    def refuses(self, lane: Lane, lane_epoch: int) -> bool:
        known = self._lanes.get(lane)
        if known is None:
            return False
        if lane_epoch <= known[0]:
            return True
        del self._lanes[lane]
        return False

    def _trim(self, now_ms: int) -> None:
        while self._lanes:
            oldest = next(iter(self._lanes))
            if len(self._lanes) <= REFUSALS_MAX and now_ms - self._lanes[oldest][1] < REFUSAL_KEPT_MS:
                return
            del self._lanes[oldest]
