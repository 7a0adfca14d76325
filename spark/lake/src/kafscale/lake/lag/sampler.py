"""Reads what a lag report is made of; and as a sampler does it again and again, and writes the history meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from kafscale.lake.catalog import Lake, Log, read_topics
from kafscale.lake.lag.history import DAY_MS, Files, read_samples, write_sample
from kafscale.lake.lag.measure import Known, measure
from kafscale.lake.lag.outlines import Outlines
from kafscale.lake.lag.owners import owners
from kafscale.lake.lag.positions import Commit, positions, read_commits, read_groups
from kafscale.lake.lag.report import RECENT_MS, Facts, Report, make_report
from kafscale.lake.lag.samples import WHOLE_EVERY_MS, Kind, Memory, sample, thinned
from kafscale.lake.lag.status import Rules
from kafscale.lake.tables import TIME
from kafscale.lake.unknown import UnknownGroup

READER_CACHE_BYTES: Final = 64 << 20
"""For manifests, and as much for files of history."""


async def read_facts(
    lake: Lake,
    now_ms: int,
    *,
    checkpoints: Sequence[Commit] = (),
    chosen: Collection[str] | None = None,
    known: Known | None = None,
    outlines: Outlines | None = None,
    unread_topics: bool = True,
) -> Facts:
    """What etcd and the segments say now, without history. `chosen`: these groups alone, checkpoints among them.
    Without `unread_topics`, only logs that a group reads: in a cluster of many topics these may be few.

    Raises EtcdError and StoreError; UnknownGroup for a chosen group that has neither a member nor a committed offset.
    """
    topics, groups = await read_topics(lake), await read_groups(lake)
    commits = [*await read_commits(lake, topics), *checkpoints]
    if chosen is not None:
        for name in sorted(set(chosen).difference(groups, (each.group for each in commits))):
            raise UnknownGroup(name)
    found = positions(commits, groups, topics)
    offsets: dict[tuple[str, int], set[int]] = {}
    for each in found:
        first = each.offset.offset if each.offset is not None else 0
        offsets.setdefault((each.topic, each.partition), set()).add(first)
    among = None if unread_topics else topics
    logs = await (outlines or Outlines(lake)).read(offsets, now_ms - RECENT_MS, among)
    found = [each for each in found if chosen is None or each.group in chosen]
    return Facts(
        cluster=lake.keys.namespace,
        at_ms=now_ms,
        logs=logs,
        positions=found,
        lags=await measure(lake, logs, found, now_ms, known),
        groups=groups,
    )


async def with_history(lake: Lake, facts: Facts, files: Files | None = None) -> Facts:
    """Read from the store: every sample of the last windows, and the whole samples of a day."""
    now_ms = facts.at_ms
    recent, overview = await asyncio.gather(
        read_samples(lake, now_ms - RECENT_MS, now_ms, files=files),
        read_samples(lake, now_ms - DAY_MS, now_ms, [Kind.WHOLE], files),
    )
    return replace(facts, recent=recent, overview=overview)


class Reader:
    """Makes reports again and again without writing samples. It reads again only what may have changed. Without
    `unread_topics`, the reports have no row of a topic that no group reads."""

    def __init__(
        self, lake: Lake, chosen: Collection[str] | None = None, *, unread_topics: bool = True
    ) -> None:
        self._lake = lake
        self._chosen = chosen
        self._unread_topics = unread_topics
        self._known = Known()
        self._outlines = Outlines(lake, cache_bytes_max=READER_CACHE_BYTES)
        self._files = Files(READER_CACHE_BYTES)

    async def facts(self, now_ms: int, checkpoints: Sequence[Commit] = ()) -> Facts:
        """With history. Raises what `read_facts` raises."""
        found = await read_facts(
            self._lake,
            now_ms,
            checkpoints=checkpoints,
            chosen=self._chosen,
            known=self._known,
            outlines=self._outlines,
            unread_topics=self._unread_topics,
        )
        return await with_history(self._lake, found, self._files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`written`: rows of history."""

    report: Report
    logs: Sequence[Log]
    written: int


class Sampler:
    """Call `step` every so often. It keeps the last windows in memory, so that history is read once."""

    def __init__(self, lake: Lake, rules: Rules | None = None, *, cache_bytes_max: int = 0) -> None:
        self._lake = lake
        self._rules = rules or Rules()
        self._known = Known()
        self._outlines = Outlines(lake, cache_bytes_max=cache_bytes_max)
        self._memory = Memory()
        self._recent: pa.Table | None = None
        self._last_ms = 0

    async def step(self, now_ms: int) -> Step:
        """Write a sample and report. Raises what `read_facts` raises; nothing is lost by it but one sample."""
        if self._recent is None or now_ms - self._last_ms > WHOLE_EVERY_MS:
            # Another sampler may have written what this one did not see.
            self._recent = await read_samples(self._lake, now_ms - RECENT_MS, now_ms)
        self._last_ms = now_ms
        facts = await read_facts(self._lake, now_ms, known=self._known, outlines=self._outlines)
        owned = owners(facts.groups.values(), facts.topics.values())
        found, memory = thinned(sample(facts.logs, facts.positions, owned, now_ms), self._memory, now_ms)
        await write_sample(self._lake, found, now_ms)
        self._memory = memory
        report = await asyncio.to_thread(make_report, replace(facts, recent=self._recent, rules=self._rules))
        since = pa.scalar(now_ms - RECENT_MS, TIME)
        kept = self._recent.filter(pc.field("ts") >= since)
        self._recent = pa.concat_tables([kept, found.rows]).combine_chunks()
        return Step(report=report, logs=facts.logs, written=found.rows.num_rows)
