"""A log line that repeats: so many per second are printed, the rest is counted and told in one line.

Law: of one event (logger, level and text) at most LINES_PER_S lines leave in a second; those left out are told as
`repeated=n` when the storm has been over for a second, and each SUM_EVERY_S while it lasts. Memory is bounded by
EVENTS_MAX. `Storms` is pure; `StormGuard` has a clock and a timer, which runs only while something is left out.
"""

import atexit
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

import structlog
from structlog.typing import EventDict, WrappedLogger

LINES_PER_S: Final = 20
SUM_EVERY_S: Final = 10.0
CALM_S: Final = 1.0
EVENTS_MAX: Final = 1_024
TEXT_MAX: Final = 80
"""Texts of libraries hold numbers and addresses; their beginnings are the event."""


class Event(NamedTuple):
    logger: str
    level: str
    text: str


class Sum(NamedTuple):
    """What was left out of one event."""

    event: Event
    repeated: int


OTHERS: Final = Event("kafscale.logs", "warning", "log lines left out, of too many events")


class _Seen:
    __slots__ = ("left_out", "lines", "second_s", "since_s", "stormed_s")

    def __init__(self, now_s: float) -> None:
        self.second_s = now_s
        self.lines = 0
        self.left_out = 0
        self.since_s = now_s  # of the first that was left out
        self.stormed_s = now_s  # of the last that was left out


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
        """What is to be told now; counted from zero again."""
        told: list[Sum] = []
        for event, seen in self._seen.items():
            over = now_s - seen.stormed_s >= CALM_S or now_s - seen.since_s >= SUM_EVERY_S
            if seen.left_out and (over or everything):
                told.append(Sum(event, seen.left_out))
                seen.left_out = 0
        return told

    def _leave_out(self, seen: _Seen, lines: int, now_s: float) -> None:
        if not seen.left_out:
            seen.since_s = now_s
        seen.left_out += lines
        seen.stormed_s = now_s

    def _forget_oldest(self, now_s: float) -> None:
        """What was left out of it is told with that of others; their own entry is never forgotten."""
        others = self._seen.pop(OTHERS, None) or _Seen(now_s)
        _, oldest = self._seen.popitem(last=False)
        if oldest.left_out:
            self._leave_out(others, oldest.left_out, now_s)
        if others.left_out:
            self._seen[OTHERS] = others


class StormGuard:
    """As a processor of structlog. Debug lines pass: who asks for them wants all."""

    def __init__(self, storms: Storms, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._storms = storms
        self._clock = clock
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        atexit.register(self.tell, everything=True)

    def __call__(self, logger: WrappedLogger, method: str, fields: EventDict) -> EventDict:
        if method == "debug" or "repeated" in fields:
            return fields
        name = str(fields.get("logger") or getattr(logger, "name", ""))
        event = Event(name, method, str(fields.get("event", ""))[:TEXT_MAX])
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
        self.tell()
        with self._lock:
            self._timer = None
            if self._storms.stormy:
                self._start_timer()

    def tell(self, *, everything: bool = False) -> None:
        """Logs what was left out, from whatever thread this is."""
        with self._lock:
            told = self._storms.sums(self._clock(), everything=everything)
        for event, repeated in told:
            log = getattr(structlog.get_logger(event.logger), event.level)
            log(event.text, repeated=repeated)
