"""What happened in a run: faults with their times, silences of clients, counts. Pure; all times are seconds of a run.

A *silence* is a time without an acknowledgement for one client on one partition, or for one member of a group. It
belongs to the fault that it overlaps: from its begin until all clients continue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

SILENCE_MIN_S: Final = 0.5
"""Shorter ones happen without a fault on a busy machine, and are not kept."""


@dataclass(frozen=True, slots=True)
class Silence:
    client: str
    begin_s: float
    end_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.begin_s


@dataclass(slots=True)
class Happened:
    """A fault that took place. `end_s` is None while it lasts, `over_s` until all clients continue."""

    kind: str
    words: str
    begin_s: float
    end_s: float | None = None
    over_s: float | None = None


@dataclass(slots=True)
class Timeline:
    seed: int
    faults: list[Happened] = field(default_factory=list)
    silences: list[Silence] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """Operations by kind, at the end."""
    samples: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    """The same counts every few seconds."""
    violations: list[str] = field(default_factory=list)

    def faults_by_kind(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for fault in self.faults:
            found[fault.kind] = found.get(fault.kind, 0) + 1
        return dict(sorted(found.items()))

    def longest_by_fault(self) -> dict[str, Silence]:
        """The longest silence of each kind of fault; "no fault" is a kind too. Silences of two faults at once count
        for neither: nobody can say whose they are."""
        longest: dict[str, Silence] = {}
        for silence in self.silences:
            kind = self._cause(silence)
            if kind is not None and (kind not in longest or longest[kind].seconds < silence.seconds):
                longest[kind] = silence
        return dict(sorted(longest.items()))

    def _cause(self, silence: Silence) -> str | None:
        causes = list(self._near(silence))
        if not causes:
            return NO_FAULT
        return causes[0].kind if len(causes) == 1 else None

    def _near(self, silence: Silence) -> Iterator[Happened]:
        for fault in self.faults:
            over_s = silence.begin_s if fault.over_s is None else fault.over_s
            if fault.begin_s <= silence.end_s and silence.begin_s <= over_s:
                yield fault


NO_FAULT: Final = "no fault"


@dataclass(slots=True)
class Listening:
    """Turns acknowledgements into silences. One for each client; `heard` is called with the time of each."""

    client: str
    silences: list[Silence]
    last_s: float | None = None

    def heard(self, now_s: float) -> None:
        if self.last_s is not None and now_s - self.last_s >= SILENCE_MIN_S:
            self.silences.append(Silence(self.client, self.last_s, now_s))
        self.last_s = now_s
