"""The systems that the docs show, by the names that readers know, and when each of them acknowledges a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bench.results import Line, Run

FLUSHED, STORED, CACHED = CLASSES = (
    "after a flush to disk",
    "after an S3 PUT",
    "in the page cache only",
)
"""When a system acknowledges a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A column of the table. `name`: the system's name in a run."""

    label: str
    durability: str
    name: str

    def median(self, run: Run, line: Line, column: str) -> float | None:
        return run.median(self.name, line, column)


DIRECTORY: Final = Shown(label="KafScale, directory", durability=FLUSHED, name="kafscale-dir")
KAFKA_FLUSH: Final = Shown(label="Apache Kafka, flush before ack", durability=FLUSHED, name="kafka-flush")
S3: Final = Shown(label="KafScale, S3 near", durability=STORED, name="kafscale-s3")
S3_FAR: Final = Shown(label="KafScale, S3 far", durability=STORED, name="kafscale-s3-far")
KAFKA: Final = Shown(label="Apache Kafka, defaults", durability=CACHED, name="kafka")
SYSTEMS: Final = (DIRECTORY, KAFKA_FLUSH, S3, S3_FAR, KAFKA)
