"""Lag over time on an even grid, for charts and trends. Pure.

A place keeps its last known lag until the next sample says another; before its first sample nothing is known (-1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from kafscale.lake.lag.owners import GroupPartition
from kafscale.lake.lag.samples import PLACE
from numpy.typing import NDArray

UNKNOWN: Final = -1
Line = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """`lines[place][i]` is the lag in records at `start_ms + i * step_ms`."""

    start_ms: int = 0
    step_ms: int = 1
    points: int = 0
    lines: Mapping[GroupPartition, Line] = field(default_factory=dict)

    def total(self, places: Iterable[GroupPartition]) -> Line:
        """The sum of those that are known; UNKNOWN where none is."""
        lines = [line for place in places if (line := self.lines.get(place)) is not None]
        if not lines:
            return np.full(self.points, UNKNOWN)
        all_of_them = np.stack(lines)
        known = all_of_them >= 0
        return np.where(known.any(axis=0), np.where(known, all_of_them, 0).sum(axis=0), UNKNOWN)


def series(samples: pa.Table, end_ms: int, span_ms: int, points: int) -> Series:
    """`points` moments that end with `end_ms`, over the rows of `samples`, which are ordered by time."""
    step_ms = max(1, span_ms // max(1, points - 1))
    start_ms = end_ms - step_ms * (points - 1)
    times = samples["ts"].cast(pa.int64()).to_numpy()
    slots = np.clip(-(-(times - start_ms) // step_ms), 0, points - 1)
    lags = samples["lag"].to_numpy()
    lines: dict[GroupPartition, Line] = {}
    for row, place in enumerate(_places(samples)):
        line = lines.get(place)
        if line is None:
            line = lines[place] = np.full(points, UNKNOWN)
        line[slots[row]] = lags[row]
    for line in lines.values():
        known = np.maximum.accumulate(np.where(line >= 0, np.arange(points), -1))
        line[:] = np.where(known >= 0, line[np.maximum(known, 0)], UNKNOWN)
    return Series(start_ms=start_ms, step_ms=step_ms, points=points, lines=lines)


def _places(samples: pa.Table) -> Sequence[GroupPartition]:
    columns = (samples[name].to_pylist() for name in PLACE)
    return list(zip(*columns, strict=True))


def slope_per_s(line: Line, step_ms: int, span_ms: int) -> float | None:
    """By how many records a second a line rises over its last `span_ms` (least squares). None: too little is known."""
    wanted = line[-(span_ms // step_ms + 1) :]
    known = np.flatnonzero(wanted >= 0)
    if known.size < 2 or (known[-1] - known[0]) * step_ms * 2 < span_ms:
        return None
    x = (known - known.mean()) * (step_ms / 1000)
    y = wanted[known].astype(np.float64)
    return float((x * (y - y.mean())).sum() / (x * x).sum())
