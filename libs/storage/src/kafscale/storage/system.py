"""Time and randomness of the machine, from one place: a process on simulated time replaces them here.

Services, and the libraries below them, ask nothing else for a time or for random bytes (`tools/one_clock.py` sees to
it, and names the exceptions). Work that has a `Clock` asks its clock, and waits use the event loop's time.
"""

from __future__ import annotations

import os
import random
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol


class System(Protocol):
    def monotonic_ns(self) -> int:
        """Only differences mean anything."""
        ...

    def wall_ns(self) -> int:
        """Since 1970; may jump."""
        ...

    def random_bytes(self, count: int) -> bytes: ...


class Machine:
    """Of the operating system. The random bytes are fit for secrets."""

    __slots__ = ()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def wall_ns(self) -> int:
        return time.time_ns()

    def random_bytes(self, count: int) -> bytes:
        return os.urandom(count)


_MACHINE: Final = Machine()
_system: System = _MACHINE


@contextmanager
def replaced(system: System) -> Iterator[None]:
    """Until the end of the context the whole process uses `system`."""
    global _system
    before, _system = _system, system
    try:
        yield
    finally:
        _system = before


def monotonic_ns() -> int:
    return _system.monotonic_ns()


def monotonic_s() -> float:
    return _system.monotonic_ns() / 1e9


def monotonic_ms() -> int:
    return _system.monotonic_ns() // 1_000_000


def wall_s() -> float:
    return _system.wall_ns() / 1e9


def wall_ms() -> int:
    return _system.wall_ns() // 1_000_000


def random_bytes(count: int) -> bytes:
    return _system.random_bytes(count)


def random_uuid() -> uuid.UUID:
    """Of version 4."""
    return uuid.UUID(bytes=_system.random_bytes(16), version=4)


def random_source() -> random.Random:
    """For loads that are spread and samples that are drawn, never for secrets."""
    return random.Random(_system.random_bytes(16))  # noqa: S311
