"""Facts of a live page: recent for those who ask, read once for all of them, and nobody waits for a slow store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from kafscale.lake.lag import live
from kafscale.lake.lag.live import LiveFacts
from kafscale.lake.lag.report import Facts
from kafscale.storage.etcd.client import EtcdUnknown, UnknownKind

DONE_S = 60
NOTHING = Facts(cluster="c", at_ms=1, logs=[], positions=[], lags=[])


@dataclass
class Source:
    """Facts that a test sets. A reading waits while `opened` is clear."""

    facts: Facts = NOTHING
    trouble: Exception | None = None
    reads: int = 0
    cpu_s: float = 0.0
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.opened.set()

    async def read(self) -> Facts:
        self.reads += 1
        await self.opened.wait()
        if self.trouble is not None:
            raise self.trouble
        return self.facts

    def name(self, cluster: str) -> None:
        self.facts = replace(self.facts, cluster=cluster)


@asynccontextmanager
async def living(source: Source, every_s: float = 0) -> AsyncIterator[LiveFacts]:
    """With 0 everybody who asks wants a new reading."""
    async with asyncio.timeout(DONE_S), asyncio.TaskGroup() as tasks:
        yield LiveFacts(source.read, every_s, tasks, lambda: source.cpu_s)
        source.opened.set()


async def cluster(facts: LiveFacts) -> str | None:
    found = await facts.newest()
    return None if found is None else found.cluster


async def test_a_reading_is_made_again_when_it_is_old_and_somebody_asks() -> None:
    source = Source()
    async with living(source) as facts:
        assert await cluster(facts) == "c"
        source.name("d")
        assert await cluster(facts) == "d"
    source = Source()
    async with living(source, every_s=3_600) as facts:
        assert await cluster(facts) == "c"
        source.name("d")
        assert (await cluster(facts), source.reads) == ("c", 1)


async def test_a_process_that_worked_much_for_a_reading_waits_long_with_the_next() -> None:
    source = Source()
    async with living(source) as facts:
        assert await cluster(facts) == "c"
        source.name("d")
        source.cpu_s = 3_600.0
        assert (await cluster(facts), source.reads) == ("c", 1)
        source.cpu_s = 0.0
        assert (await cluster(facts), source.reads) == ("d", 2)


async def test_those_who_ask_at_once_share_a_reading() -> None:
    source = Source()
    source.opened.clear()
    async with living(source, every_s=3_600) as facts:
        asking = [asyncio.create_task(cluster(facts)) for _ in range(10)]
        while source.reads < 1:
            await asyncio.sleep(0)
        source.opened.set()
        assert await asyncio.gather(*asking) == ["c"] * 10
        assert source.reads == 1


async def test_a_slow_store_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PATIENCE_S", 0.01)
    source = Source()
    source.opened.clear()
    async with living(source) as facts:
        assert (await cluster(facts), facts.is_reading) == (None, True)
        source.opened.set()
        while await cluster(facts) is None:
            pass
        source.opened.clear()
        source.name("d")
        assert await cluster(facts) == "c", "the last reading"


async def test_a_reading_that_fails_is_named_and_the_last_one_stays() -> None:
    source = Source()
    async with living(source) as facts:
        assert await cluster(facts) == "c"
        source.trouble = EtcdUnknown(UnknownKind.TIMEOUT, "no answer in 5 s")
        assert await cluster(facts) == "c"
        assert facts.trouble == "etcd does not answer: no answer in 5 s"
        source.trouble = None
        await facts.newest()
        assert facts.trouble is None


async def test_a_store_that_never_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "READ_TIMEOUT_S", 0.01)
    source = Source()
    source.opened.clear()
    async with living(source) as facts:
        await facts.newest()
        assert "did not answer within" in (facts.trouble or "")
