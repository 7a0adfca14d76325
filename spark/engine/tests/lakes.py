"""A small lake for a test: who writes to it, and the options by which Spark finds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kafscale.lake.catalog import Lake
from kafscale.storage.topics import encode_topic
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.wire.records import Codec
from pyspark.sql import DataFrame, SparkSession


@dataclass(slots=True, kw_only=True)
class World:
    """A lake, who writes to it, and the options by which Spark finds it."""

    lake: Lake
    options: dict[str, str]
    objects: Path
    logs: dict[str, LogBuilder] = field(default_factory=dict)

    async def topic(self, name: str, *, partitions: int = 1, **configs: str) -> Sequence[LogBuilder]:
        """A new one, also if there was one of the name; `retention_ms="5"` is its retention.ms."""
        topic = await create_topic(self.lake.etcd, self.lake.keys, name, partitions=partitions)
        topic = replace(topic, configs={key.replace("_", "."): value for key, value in configs.items()})
        await self.lake.etcd.put(self.lake.keys.topic(name), encode_topic(topic))
        found = [
            LogBuilder(self.lake.etcd, self.lake.keys, self.lake.store, topic, number)
            for number in range(partitions)
        ]
        self.logs |= {f"{name}:{number}": log for number, log in enumerate(found)}
        return found

    async def widen(self, log: LogBuilder) -> LogBuilder:
        """One more partition of its topic."""
        topic = replace(log.topic, partitions=log.topic.partitions + 1)
        await self.lake.etcd.put(self.lake.keys.topic(topic.name), encode_topic(topic))
        return LogBuilder(self.lake.etcd, self.lake.keys, self.lake.store, topic, topic.partitions - 1)

    async def filled(
        self, name: str, *, segments: int = 5, partitions: int = 1, count: int = 10, **configs: str
    ) -> None:
        """Each partition with `segments` of `count` records, a second apart; codecs take turns."""
        for log in await self.topic(name, partitions=partitions, **configs):
            for number in range(segments):
                await self.append(log, count, codec=Codec(number % 5))

    async def append(self, log: LogBuilder, count: int, *, codec: Codec = Codec.NONE) -> None:
        label = f"{log.topic.name}-{log.partition}-{log.next}-"
        some = records(count, timestamp=1_000 * log.next, step_ms=1_000, label=label)
        half = max(1, count // 2)
        await log.append(*(part for part in (some[:half], some[half:]) if part), codec=codec)

    def read(self, spark: SparkSession, **options: object) -> DataFrame:
        said = {name: str(value) for name, value in options.items()}
        return spark.read.format("kafscale").options(**self.options, **said).load()

    def segments(self) -> list[Path]:
        return sorted(self.objects.rglob("*.kfs"))
