"""Limits repeated log lines: some per second are printed, the rest are counted and reported in one line.

Law: of one event (logger, level, and text without numbers) at most LINES_PER_S lines are printed per second. The number
of suppressed lines is logged as `repeated=n`: one second after the last of them, and every SUM_EVERY_S while the storm
lasts. Memory is bounded by EVENTS_MAX. `Storms` is pure; `StormGuard` has a clock, and a timer that runs only while
lines are suppressed.

Code that warns about what clients do limits its lines itself (`Warnings`): one per kind and WARNING_EVERY_MS.
"""

import atexit
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog
from kafscale.runtime.clock import Clock
from structlog.typing import EventDict, WrappedLogger

LINES_PER_S: Final = 20
SUM_EVERY_S: Final = 10.0
CALM_S: Final = 1.0
EVENTS_MAX: Final = 1_024
WARNING_EVERY_MS: Final = 10_000
TEXT_MAX: Final = 80
"""Characters. Messages of libraries contain values, so only their beginning identifies the event."""
_NUMBER: Final = re.compile(r"0x[0-9a-fA-F]+|[0-9]+")
"""Numbers and addresses of memory: `Task-76163` would make each line another event."""
AUDIT: Final = "kafscale.audit"
"""The logger whose lines are never suppressed: audit.py bounds them."""


class Event(NamedTuple):
    logger: str
    level: str
    text: str


def event_of(logger: str, level: str, text: str) -> Event:
    return Event(logger, level, _NUMBER.sub("#", text[: 2 * TEXT_MAX])[:TEXT_MAX])


class Sum(NamedTuple):
    """The number of suppressed lines of one event."""

    event: Event
    repeated: int


OTHERS: Final = Event("kafscale.logs", "warning", "log lines suppressed")


class _Seen:
    __slots__ = ("left_out", "lines", "second_s", "since_s", "stormed_s")

    def __init__(self, now_s: float) -> None:
        self.second_s = now_s
        self.lines = 0
        self.left_out = 0
        self.since_s = now_s  # time of the first suppressed line
        self.stormed_s = now_s  # time of the last suppressed line


class Storms:
    def __init__(self, *, lines_per_s: int = LINES_PER_S, events_max: int = EVENTS_MAX) -> None:
        self._lines_per_s = lines_per_s
        self._events_max = events_max
        self._seen: OrderedDict[Event, _Seen] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    @property
    def stormy(self) -> bool:
        return any(seen.left_out for seen in self._seen.values())

    def admit(self, event: Event, now_s: float) -> bool:
        seen = self._seen.get(event)
        if seen is None:
            if len(self._seen) >= self._events_max:
                self._forget_oldest(now_s)
            seen = self._seen[event] = _Seen(now_s)
        self._seen.move_to_end(event)
        if now_s - seen.second_s >= 1:
            seen.second_s, seen.lines = now_s, 0
        seen.lines += 1
        if seen.lines <= self._lines_per_s:
            return True
        self._leave_out(seen, 1, now_s)
        return False

    def sums(self, now_s: float, *, everything: bool = False) -> list[Sum]:
        """The counts to log now; they then start from zero."""
        due: list[Sum] = []
        for event, seen in self._seen.items():
            over = now_s - seen.stormed_s >= CALM_S or now_s - seen.since_s >= SUM_EVERY_S
            if seen.left_out and (over or everything):
                due.append(Sum(event, seen.left_out))
                seen.left_out = 0
        return due

    def _leave_out(self, seen: _Seen, lines: int, now_s: float) -> None:
        if not seen.left_out:
            seen.since_s = now_s
        seen.left_out += lines
        seen.stormed_s = now_s

    def _forget_oldest(self, now_s: float) -> None:
        """Adds the count of the forgotten event to OTHERS, which is never forgotten itself."""
        others = self._seen.pop(OTHERS, None) or _Seen(now_s)
        _, oldest = self._seen.popitem(last=False)
        if oldest.left_out:
            self._leave_out(others, oldest.left_out, now_s)
        if others.left_out:
            self._seen[OTHERS] = others


class StormGuard:
    """A processor of structlog. Lines at debug level and those of the audit log are never suppressed."""

    def __init__(self, storms: Storms, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._storms = storms
        self._clock = clock
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        atexit.register(self.log_sums, everything=True)

    def __call__(self, logger: WrappedLogger, method: str, fields: EventDict) -> EventDict:
        if method == "debug" or "repeated" in fields:
            return fields
        name = str(fields.get("logger") or getattr(logger, "name", ""))
        if name == AUDIT:
            return fields
        event = event_of(name, method, str(fields.get("event", "")))
        with self._lock:
            admitted = self._storms.admit(event, self._clock())
            if not admitted and self._timer is None:
                self._start_timer()
        if not admitted:
            raise structlog.DropEvent
        return fields

    def _start_timer(self) -> None:
        self._timer = threading.Timer(CALM_S, self._tick)
        self._timer.daemon = True
        self._timer.start()

    def _tick(self) -> None:
        self.log_sums()
        with self._lock:
            self._timer = None
            if self._storms.stormy:
                self._start_timer()

    def log_sums(self, *, everything: bool = False) -> None:
        """Logs the counts that are due. Any thread may call it."""
        with self._lock:
            sums = self._storms.sums(self._clock(), everything=everything)
        for event, repeated in sums:
            log = getattr(structlog.get_logger(event.logger), event.level)
            log(event.text, repeated=repeated)


class Warnings:
    """Warnings with one event text: one line per kind and interval, with the number of lines that were left out. The
    kinds are few, and constants."""

    def __init__(self, logger: str, event: str, clock: Clock) -> None:
        self._log = structlog.get_logger(logger)
        self._event = event
        self._clock = clock
        self._last_ms: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def log(self, kind: str, **fields: object) -> None:
        now_ms = self._clock.now_ms()
        last_ms = self._last_ms.get(kind)
        if last_ms is not None and now_ms - last_ms < WARNING_EVERY_MS:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            return
        self._last_ms[kind] = now_ms
        self._log.warning(self._event, kind=kind, left_out=self._left_out.pop(kind, 0), **fields)
