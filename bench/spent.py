"""What a system spends on a load: user and system seconds of all its processes, which a busy machine hardly disturbs.

Laws: children that ended are counted, and so is what a system does in the seconds after the load (`SETTLE_S`), such as
the commit of the last records. The load program is not counted. What a system does later is not in it either: a
settled segment, or pages that the kernel writes back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from bench.results import CPU_PARTS, Figures
from bench.systems import Flushed, System

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
SETTLE_S: Final = 2.5
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """CPU seconds by part of the system, and the records and flushes of produce (None if the system counts none)."""

    parts: Mapping[str, float]
    flushed: Flushed | None

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    def per(self, units: float) -> Figures:
        """The total for each unit of work, then that of KafScale's parts. Other systems have no parts."""
        parts = [self.parts[part] for part in CPU_PARTS] if set(self.parts) == set(CPU_PARTS) else []
        return tuple(seconds / units for seconds in (self.total, *parts))

    @property
    def records_per_flush(self) -> Figures:
        """One figure, or none if nothing was flushed."""
        flushed = self.flushed
        return (flushed.records / flushed.flushes,) if flushed is not None and flushed.flushes else ()


def spent(system: System, work: Callable[[], T]) -> tuple[T, Spent]:
    """What `work` returns, and what the system spent from its begin until `SETTLE_S` after its end."""
    flushed, before = system.flushed(), _by_part(system)
    done = work()
    time.sleep(SETTLE_S)
    after = _by_part(system)
    parts = {part: after[part] - before[part] for part in after}
    return done, Spent(parts=parts, flushed=_since(flushed, system.flushed()))


def _since(before: Flushed | None, after: Flushed | None) -> Flushed | None:
    if before is None or after is None:
        return None
    return Flushed(records=after.records - before.records, flushes=after.flushes - before.flushes)


def _by_part(system: System) -> Mapping[str, float]:
    return {part: cpu_of(pids) for part, pids in system.processes().items()}


def cpu_of(pids: Iterable[int]) -> float:
    """Of processes, the parent before its children. Children are read first: one that ended meanwhile is counted by
    its parent."""
    return sum(map(cpu_seconds, reversed([*pids])))


def cpu_seconds(pid: int) -> float:
    """Of a process and of its children that ended, as it waited for them. 0 if it has ended itself."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(map(int, fields[11:15])) / TICKS_PER_S
