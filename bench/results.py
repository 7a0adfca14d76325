"""What a run of `make bench` measured: its lines, and the file of JSON that keeps it in bench/results/.

Laws: a file holds every round's value, and the median of each figure follows from the rounds. A figure that a system
has not is missing, never zero. Only a whole run (every system, every line, every record) is written to bench/results/,
because docs/performance.md shows the newest file there. A run with three rounds of all goals is written to
bench/results/goals/.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

RESULTS: Final = Path(__file__).parent / "results"
ROLES: Final = ("frontdoor", "produce", "fetch", "coordinator", "admin", "etcd")

CPU_PARTS: Final = ("frontdoor", "produce", "fetch", "others", "etcd", "store")
"""Of KafScale. `others`: the coordinator, admin, upkeep, and the supervisor. `store`: the S3 server."""
PER_FLUSH: Final = "records per flush"

Figures = tuple[float, ...]
"""One value for each column of a line, or fewer: a system has no figures for the last columns."""


def of_part(part: str) -> str:
    """The column of one part of the CPU, which follows the column of the total."""
    return f"of it {part}"


PER_GB: Final = "CPU s per GB"
"""Of all processes of a system, per 10^9 bytes of values."""
PER_100K: Final = "CPU s per 100k"
"""The same per 100,000 records."""
_OF_IT: Final = tuple(map(of_part, CPU_PARTS))
_BULK: Final = ("records/s", PER_GB, *_OF_IT, PER_FLUSH)
_SINGLES: Final = ("acked/s", "p50 ms", "p99 ms", PER_100K, *_OF_IT, PER_FLUSH)
_READS: Final = ("records/s", "MB/s", PER_GB, *_OF_IT)


class Line(Enum):
    """A row of the table: what is measured, and the columns of its figures. A line is compared by its first column."""

    what: str
    columns: tuple[str, ...]

    def __init__(self, what: str, *columns: str) -> None:
        self.what = what
        self.columns = columns

    ONE_PARTITION = "produce, 1 partition", *_BULK
    TWELVE_PARTITIONS = "produce, 12 partitions", *_BULK
    TWELVE_SMALL = "produce, 12 partitions, 100 B records", *_BULK
    HUNDRED_PARTITIONS = "produce, 100 partitions", *_BULK
    THOUSAND_PARTITIONS = "produce, 1,000 partitions", *_BULK
    ONE_PRODUCER = "1 producer, one record each", *_SINGLES
    PRODUCERS_16 = "16 producers, one record each", *_SINGLES
    PRODUCERS_32 = "32 producers, one record each", *_SINGLES
    PRODUCERS_64 = "64 producers, one record each", *_SINGLES
    PARTITIONS_64 = "64 producers, one record each, on 64 partitions", *_SINGLES
    ONE_REQUEST = "one request to 12 partitions", "p50 ms", "p99 ms"
    CATCH_UP_HOT = "catch-up hot", *_READS
    CATCH_UP_COLD = "catch-up after a restart", "records/s", "MB/s"
    CONSUME_JAVA = "catch-up hot, one Java consumer", *_READS
    END_TO_END = "end to end at 1,000/s", "p50 ms", "p99 ms", PER_100K, *_OF_IT, PER_FLUSH
    MEMORY = "resident memory under load, MiB", *ROLES
    RESTART = "restart with 3,000 segments", "s to the first ack and read", "s to Metadata"


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One line on one system. Each round has a value for each column. A system may lack the last ones of the line."""

    columns: tuple[str, ...]
    rounds: tuple[Figures, ...]
    median: Figures


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Systems and lines have the names that `python -m bench` takes."""

    began: str
    """UTC, as in 2026-11-22T18:30; the time may be missing."""
    commit: str | None
    machine: Mapping[str, str | int | float]
    versions: Mapping[str, str]
    quick: bool
    rounds: int
    missing: tuple[str, ...] = ()
    """What this file has not, for people."""
    systems: Mapping[str, Mapping[str, Measured]]

    def measured(self, system: str, line: Line) -> Measured | None:
        return self.systems.get(system, {}).get(line.name.lower())

    def median(self, system: str, line: Line, column: str) -> float | None:
        """None if this run has not measured it: older files have no CPU."""
        assert column in line.columns, (line, column)
        found = self.measured(system, line)
        if found is None or column not in found.columns:
            return None
        return found.median[found.columns.index(column)]


def of_rounds(columns: tuple[str, ...], rounds: Sequence[Figures]) -> Measured:
    """All rounds have the same columns: the first ones of these."""
    medians = tuple(statistics.median(column) for column in zip(*rounds, strict=True))
    assert len(medians) <= len(columns), (columns, rounds)
    return Measured(columns=columns[: len(medians)], rounds=tuple(rounds), median=medians)


def rounds_of(run: Run, system: str) -> dict[Line, list[Figures]]:
    """What `of_rounds` was given for each line of this system."""
    return {Line[name.upper()]: list(found.rounds) for name, found in run.systems.get(system, {}).items()}


def differences(old: Run, new: Run) -> list[str]:
    """Why the figures of the two cannot stand in one run."""
    return [
        name for name in ("commit", "versions", "quick", "rounds") if getattr(old, name) != getattr(new, name)
    ]


def written(run: Run) -> str:
    """The file's text: one line of it for each line of the table and each system."""
    head = msgspec.json.format(
        msgspec.json.encode(msgspec.structs.replace(run, systems={})), indent=1
    ).decode()
    systems = ",\n".join(
        f'  "{name}": {{\n'
        + ",\n".join(f'   "{line}": {msgspec.json.encode(found).decode()}' for line, found in lines.items())
        + "\n  }"
        for name, lines in run.systems.items()
    )
    return head.replace('"systems": {}', f'"systems": {{\n{systems}\n }}') + "\n"


def read(path: Path) -> Run:
    """Raises msgspec.ValidationError if it is no run, or if a median does not follow from its rounds."""
    run = msgspec.json.decode(path.read_bytes(), type=Run)
    for system, lines in run.systems.items():
        for line, measured in lines.items():
            expected = tuple(statistics.median(column) for column in zip(*measured.rounds, strict=True))
            if measured.median != expected or len(expected) != len(measured.columns):
                raise msgspec.ValidationError(f"{path.name}: {system}, {line}: the median is {expected}")
    return run


def newest(*folders: Path) -> Path:
    """The newest run in all these folders. Names are dates, so it is the one with the last name."""
    return max((path for folder in folders for path in folder.glob("*.json")), key=lambda path: path.name)


def shown(figures: Iterable[float]) -> str:
    """Figures as people read them: 43,789 or 4.3."""
    return ", ".join(f"{value:,.0f}" if value >= 100 else f"{value:,.3g}" for value in figures)
