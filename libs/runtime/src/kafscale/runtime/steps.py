"""Step times: when one request reached each step of its way, for `kafscale trace-one`.

A client asks for them with a tagged field in the header of its request, and the header of the answer carries them. They
are noted where spans are: a `StepSpan` takes the place of a span for an exporter. A service returns its times with its
reply, and the front door inserts them into its own.

Laws: a request that does not ask costs one comparison in each process. One process notes at most STEPS_MAX steps of a
request. Times are nanoseconds of CLOCK_MONOTONIC, which all processes of one machine share until it restarts. Times of
two machines cannot be compared, so each list of times names its machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import blake2b
from time import monotonic_ns
from typing import Final

import orjson

TIMED: Final = "-80"
"""The flags of a traceparent that asks a service for step times. An earlier version ignores it."""
STEPS_MAX: Final = 64
REPORT_BYTES_MAX: Final = 16 << 10
BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"


@cache
def machine() -> str:
    """Equal in all processes that share this clock. It shows nothing of the machine."""
    try:
        with open(BOOT_ID, "rb") as file:
            boot_id = file.read()
    except OSError:  # not Linux: no two processes are known to share a clock
        boot_id = os.urandom(16)
    return blake2b(boot_id, digest_size=8, person=b"step-times").hexdigest()


class Steps:
    """What one process notes of one request, in order: steps with their times, and the reports of services."""

    __slots__ = ("_noted",)

    def __init__(self) -> None:
        self._noted: list[tuple[str, int] | orjson.Fragment] = []

    def note(self, step: str) -> None:
        if len(self._noted) < STEPS_MAX:
            self._noted.append((step, monotonic_ns()))

    def insert(self, report: bytes) -> None:
        if len(self._noted) < STEPS_MAX and len(report) <= REPORT_BYTES_MAX:
            self._noted.append(orjson.Fragment(report))

    def report(self) -> bytes:
        """JSON: the machine, and a list of [step, ns] and of reports of services."""
        return orjson.dumps({"machine": machine(), "steps": self._noted})


class StepSpan:
    """A `tracing.Span` that notes when it begins and ends, in the steps of its request."""

    __slots__ = ("_ended", "_name", "_steps")

    def __init__(self, name: str, steps: Steps | None = None) -> None:
        self._name = name
        self._steps = Steps() if steps is None else steps
        self._ended = False
        self._steps.note(f"{name} begun")

    @property
    def traceparent(self) -> str:
        return f"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}{TIMED}"

    def child(
        self,
        name: str,
        attributes: Mapping[str, str | int] | None = None,
        links: Sequence[object] = (),
        *,
        kind: str = "internal",
    ) -> StepSpan:
        return StepSpan(name, self._steps)

    def set(self, name: str, value: str | int) -> None:
        """Attributes are not kept."""

    def event(self, name: str) -> None:
        self._steps.note(f"{self._name} {name}")

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._steps.note(f"{self._name} ended")

    def replied(self, report: bytes) -> None:
        """The reply has come with the report of its service."""
        self.end()
        if report:
            self._steps.insert(report)

    def report(self) -> bytes:
        """Ends the span. The times for the answer."""
        self.end()
        return self._steps.report()
