"""The audit log: who logged in, who was refused and why, on the logger `kafscale.audit`.

Laws: an alteration has a line of its own, always. Of other lines, the first of equal ones is logged at once. Those that
follow within `SUM_EVERY_S` are counted, and logged as one line with `repeated=n`. Beyond `LINES_MAX` different lines in
that time, lines are counted without the fields that clients choose. Texts are cut to `CHARS_MAX`. No line holds a
secret, because its callers pass none. The guard against log storms lets these lines pass.
"""

import asyncio
from collections.abc import Mapping
from contextvars import Context
from typing import Final, Literal, NamedTuple

import structlog
from kafscale.runtime.log_storms import AUDIT

SUM_EVERY_S: Final = 10.0
LINES_MAX: Final = 1_000
CHARS_MAX: Final = 256

Level = Literal["debug", "info", "warning"]


class Line(NamedTuple):
    level: Level
    event: str
    fields: tuple[tuple[str, object], ...]


class AuditSums:
    """Pure. Counts equal lines until `drain`."""

    def __init__(self, lines_max: int = LINES_MAX) -> None:
        self._lines_max = lines_max
        self._repeats: dict[Line, int] = {}

    def __len__(self) -> int:
        return len(self._repeats)

    def admit(self, line: Line, chosen: frozenset[str]) -> Line | None:
        """The line to log now; None: it was counted. `chosen`: the fields that clients choose."""
        if line not in self._repeats and len(self) >= self._lines_max:
            line = line._replace(fields=tuple(one for one in line.fields if one[0] not in chosen))
        if line not in self._repeats and len(self) >= 2 * self._lines_max:
            line = line._replace(fields=())  # clients of very many addresses
        if line in self._repeats:
            self._repeats[line] += 1
            return None
        self._repeats[line] = 0
        return line

    def drain(self) -> list[tuple[Line, int]]:
        """The lines that were counted and how often, after which all counts begin again."""
        due = [(line, count) for line, count in self._repeats.items() if count]
        self._repeats.clear()
        return due


class AuditLog:
    """Call it on the event loop, which has a timer while lines are counted."""

    def __init__(self, sums: AuditSums | None = None) -> None:
        self._sums = AuditSums() if sums is None else sums
        self._log = structlog.get_logger(AUDIT)
        self._timer: asyncio.TimerHandle | None = None

    def write(
        self, level: Level, event: str, fields: Mapping[str, object], *, chosen: frozenset[str] = frozenset()
    ) -> None:
        """`chosen`: the names of the fields whose values the client chose. Values must be hashable."""
        cut = tuple((name, _cut(value)) for name, value in fields.items() if value is not None)
        line = self._sums.admit(Line(level, event, cut), chosen)
        if line is not None:
            self._print(line)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            # The sums belong to no request: an empty context has no ids for their lines.
            self._timer = loop.call_later(SUM_EVERY_S, self._end_interval, context=Context())

    def write_always(self, level: Level, event: str, fields: Mapping[str, object]) -> None:
        """For what an administrator does: neither summed nor cut, so nothing hides it. The caller bounds the texts."""
        self._print(Line(level, event, tuple(fields.items())))

    def close(self) -> None:
        """Logs what was counted."""
        if self._timer is not None:
            self._timer.cancel()
            self._end_interval()

    def _end_interval(self) -> None:
        self._timer = None
        for line, count in self._sums.drain():
            self._print(line, repeated=count)

    def _print(self, line: Line, **more: int) -> None:
        getattr(self._log, line.level)(line.event, **dict(line.fields), **more)


def _cut(value: object) -> object:
    return value[:CHARS_MAX] if isinstance(value, str) else value
