"""Readers that stay behind the end of a log, where answers come from manifests and the tail together.

Each asks in Kafka's bytes for what lies some records behind the high watermark and checks every answer by itself: a
client library would go on behind a gap without a word. Positions and limits are chances, so that answers begin and
end anywhere.
"""

from __future__ import annotations

import random
import struct
import threading
from dataclasses import dataclass, field

from kafscale.wire.batches import split_batches
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema.fetch import FetchResponsePartition

from e2e.checkers.history import Answer
from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import ask_fetch

BEHIND_MAX = 2_000
"""Records; from a segment or two to a few manifests, so that most answers come from manifests and the tail together."""
ANSWERS_PER_START = 8
BYTES = (1, 20_000, 1 << 20, 1 << 20)
PAUSE_S = 0.05
REST_S = 0.2
"""Before it begins at another place: without a rest, reading takes all CPU that there is."""
END_TIMEOUT_S = 90.0


@dataclass(slots=True)
class ReaderBehind:
    """One thread. `violations` are sentences; `records` counts what it was given."""

    bootstrap: str
    topic: str
    partitions: int
    seed: int
    violations: list[str] = field(default_factory=list)
    records: int = 0
    asked_again: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=f"behind-{self.seed}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join(END_TIMEOUT_S)
        assert not self._thread.is_alive(), "a reader does not come to an end"

    def _run(self) -> None:
        chance = random.Random(self.seed)
        while not self._stop.is_set():
            try:
                with Raw.to(chance.choice(self.bootstrap.split(","))) as raw:
                    while not self._stop.is_set():
                        self._read_on(raw, chance)
                        self._stop.wait(REST_S)
            except (OSError, Closed, struct.error):  # front doors die here too
                self.asked_again += 1
                self._stop.wait(PAUSE_S)

    def _read_on(self, raw: Raw, chance: random.Random) -> None:
        """From some place behind the end, some answers on."""
        partition = chance.randrange(self.partitions)
        end = self._fetch(raw, partition, 0, 1).high_watermark
        offset = max(0, end - chance.randint(1, BEHIND_MAX))
        for _ in range(ANSWERS_PER_START):
            if offset >= end or self._stop.is_set():
                return
            found = self._fetch(raw, partition, offset, chance.choice(BYTES))
            if found.error_code != ErrorCode.NONE:
                self._again(partition, offset, found)
                return
            record_set = found.records or b""
            assert isinstance(record_set, (bytes, memoryview))
            batches = [
                (header.base_offset, header.last_offset, header.records_count)
                for header, _ in split_batches(record_set)
            ]
            self.violations += Answer(partition, offset, batches).skips()
            if batches:
                offset = batches[-1][1] + 1
                self.records += sum(count for _, _, count in batches)

    def _fetch(self, raw: Raw, partition: int, offset: int, bytes_max: int) -> FetchResponsePartition:
        (found,) = ask_fetch(raw, topic=self.topic, part=partition, offset=offset, part_bytes=bytes_max)
        return found

    def _again(self, partition: int, offset: int, found: FetchResponsePartition) -> None:
        """Any error but a retriable one denies records that are there."""
        code = ErrorCode(found.error_code)
        self.asked_again += 1
        if not code.retriable:
            self.violations.append(f"error: partition {partition} at {offset} was answered {code.name}")
        self._stop.wait(PAUSE_S)
