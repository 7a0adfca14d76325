"""Clients of topics that upkeep shortens: one whose records expire soon, and one that is compacted.

Laws: a record that is younger than its topic's retention is there. Of a compacted topic the newest acknowledged value
of each key is there, or a newer one of the key. What is there at an offset is what was acknowledged there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kafscale.storage.system import wall_ms
from kafscale.wire.batches import split_batches
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch, records_in
from kafscale.wire.schema import produce

from tools.simulator.clients import (
    EARLIEST,
    LATEST,
    PRODUCE_V,
    Client,
    Reader,
    Records,
    Unanswered,
    asks_offset,
    create,
    fetched,
    record_bytes,
)

EXPIRING, COMPACTED = "expiring", "compacted"
RETENTION_MS: Final = 90_000
SKEW_MS: Final = 60_000
"""A clock may be ahead by so much when a record is judged, so it may go so much earlier."""
CONFIGS: Final = {
    EXPIRING: {"retention.ms": str(RETENTION_MS)},
    COMPACTED: {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "10000",
    },
}
KEYS: Final = 8
PADDING: Final = b"." * 1_000
LOOK: Final = 0.1
"""The share of rounds in which the log is looked at."""
WAIT_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Written:
    offset: int
    key: bytes
    value: bytes
    at_ms: int


@dataclass(eq=False)
class Shortened:
    """Writes a topic of one partition, and looks at what is left of it."""

    client: Client
    records: Records
    topic: str
    written: dict[int, Written] = field(default_factory=dict)
    """Acknowledged, by offset."""
    start: int = 0
    """The highest that was answered."""
    _number: int = 0

    async def run(self) -> None:
        await create(self.client, self.topic, 1, configs=CONFIGS[self.topic])
        while not self.client.world.stopping:
            await self._write()
            if self.client.chance.random() < LOOK:
                await self._look_at_start()
            await self.client.pause()
        await self._judge()

    async def _write(self) -> None:
        self._number += 1
        key = b"%d" % self.client.chance.randrange(KEYS)
        value, at_ms = b"%s:%d" % (self.topic.encode(), self._number), wall_ms()
        batch = build_batch([Record(timestamp=at_ms, key=key, value=value + PADDING)])
        part = produce.ProduceRequestPartition(index=0, records=batch)
        topic = produce.ProduceRequestTopic(name=self.topic, partition_data=[part])
        request = produce.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=[topic])
        try:
            answer = await self.client.ask(produce, PRODUCE_V, request)
        except Unanswered:
            return
        (found,) = answer.responses[0].partition_responses
        if found.error_code == ErrorCode.NONE:
            self.written[found.base_offset] = Written(found.base_offset, key, value, at_ms)
            self.records.counts[f"acknowledged in the topic {self.topic}"] += 1

    async def _look_at_start(self) -> None:
        start = await self._offset(EARLIEST)
        if start is None:
            return
        if start < self.start:
            self._broken(f"log start: it was {self.start}, and is {start}")
        self.start = max(self.start, start)
        self._expired(start)

    def _expired(self, start: int) -> None:
        """What is below the start must be old. Each record is judged once."""
        latest_ms = wall_ms() + SKEW_MS
        for offset in [each for each in self.written if each < start]:
            record = self.written.pop(offset)
            self.records.counts[f"gone from the topic {self.topic}"] += 1
            if self.topic == COMPACTED or record.at_ms + RETENTION_MS > latest_ms:
                age_ms = wall_ms() - record.at_ms
                self._broken(f"expired early: {record.value!r} at {offset}, which is {age_ms} ms old")

    async def _judge(self) -> None:
        await self._look_at_start()
        while (end := await self._offset(LATEST)) is None:
            await self.client.rest()
        log = await self._read(end)
        newest: dict[bytes, int] = {}
        for offset, (key, _) in log.items():
            newest[key] = max(offset, newest.get(key, -1))
        for offset, record in self.written.items():
            there = log.get(offset)
            if there is not None and there != (record.key, record.value):
                self._broken(f"divergent: {record.value!r} was acknowledged at {offset}, there is {there!r}")
            elif there is None and (self.topic == EXPIRING or newest.get(record.key, -1) < offset):
                self._broken(f"lost write: {record.value!r} was acknowledged at {offset}, nothing is there")
            elif there is None:
                self.records.counts[f"gone from the topic {self.topic}"] += 1

    async def _read(self, end: int) -> dict[int, tuple[bytes, bytes]]:
        """Key and value by offset. The log may be shortened meanwhile."""
        log: dict[int, tuple[bytes, bytes]] = {}
        here, offset = Records(topic=self.topic), self.start
        while offset < end:
            try:
                (part,) = await fetched(self.client, [Reader(self.client, here, 0, offset)], WAIT_MS)
            except Unanswered:
                await self.client.rest()
                continue
            code = ErrorCode(part.error_code)
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._look_at_start()
                offset = max(offset, self.start)
            if code is not ErrorCode.NONE:
                await self.client.rest()
                continue
            data = record_bytes(part)
            for header, batch in split_batches(data) if data else ():
                offset = header.base_offset + header.last_offset_delta + 1
                for record in records_in(batch, header):
                    log[record.offset] = record.key or b"", (record.value or b"").removesuffix(PADDING)
        self._expired(self.start)
        return log

    async def _offset(self, timestamp: int) -> int | None:
        try:
            answer = await self.client.ask(*asks_offset(self.topic, 0, timestamp))
        except Unanswered:
            return None
        found = answer.topics[0].partitions[0]
        return int(found.offset) if found.error_code == ErrorCode.NONE else None

    def _broken(self, law: str) -> None:
        self.records.broken.append(f"{law} (topic {self.topic})")
