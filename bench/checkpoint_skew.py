"""How long the two halves of a checkpoint are apart in a fetch service.

    python -m bench.checkpoint_skew [--seconds 30] [--partitions 8]

A checkpoint moves segments from a partition's head to its meta in one transaction. A fetch service that knows only the
head's half finds committed segments in neither, and must not answer from that state. This program measures how long
the service's `Heads` knows one half without the other, with a real watch on a real etcd. Owners commit and checkpoint
as fast as etcd allows, and the partitions are read again every 3 s instead of every minute. The program also counts the
checkpoints whose halves arrived in different turns of the event loop: only then can a request see such a state.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvloop
from kafscale.fetch.heads import Heads, HeadTimes
from kafscale.fetch.log_table import LogTable, PartitionKey
from kafscale.runtime.clock import SystemClock
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.testkit.etcd import start_etcd
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records

RECONCILE_MS: Final = 3_000
TAIL_MAX: Final = 24
KEPT: Final = 8
"""Segments that a checkpoint leaves in the tail."""

Write = tuple[PartitionKey, int]
"""A partition, and the revision of a transaction that wrote its head, its meta or both."""


class TimedTable(LogTable):
    """Notes when each write of a head and of a meta is first known."""

    def __init__(self, keyspace: Keyspace) -> None:
        super().__init__(keyspace)
        self.heads_s: dict[Write, float] = {}
        self.metas_s: dict[Write, float] = {}
        self.apart: set[Write] = set()
        """Checkpoints of which other tasks could see one half alone."""
        self._past: set[Write] = set()  # known since an earlier turn of the loop

    def learn_head(self, key: PartitionKey, value: bytes | None, revision: int) -> None:
        if value is not None:
            self._note(self.heads_s, self.metas_s, (key, revision))
        super().learn_head(key, value, revision)

    def learn_meta(self, key: PartitionKey, value: bytes | None, revision: int) -> None:
        if value is not None:
            self._note(self.metas_s, self.heads_s, (key, revision))
        super().learn_meta(key, value, revision)

    def _note(self, half: dict[Write, float], other: dict[Write, float], write: Write) -> None:
        if write in half:
            return
        half[write] = time.perf_counter()
        if write not in other:
            asyncio.get_running_loop().call_soon(self._past.add, write)
        elif write in self._past:
            self.apart.add(write)

    def skews_ms(self) -> list[float]:
        """Of each checkpoint; positive if the head was known first."""
        return [(at_s - self.heads_s[w]) * 1e3 for w, at_s in self.metas_s.items() if w in self.heads_s]


class TimedHeads(Heads):
    def __init__(self, etcd: EtcdClient, keyspace: Keyspace, tasks: asyncio.TaskGroup) -> None:
        times = HeadTimes(reconcile_ms=RECONCILE_MS)
        super().__init__(etcd, keyspace, clock=SystemClock(), tasks=tasks, times=times)
        self._table = self.timed = TimedTable(keyspace)


async def own(log: LogBuilder, until_s: float) -> None:
    """Commits segments, and checkpoints when the tail is long."""
    while time.monotonic() < until_s:
        await log.append(records(3))
        if len(log.head.tail) > TAIL_MAX:
            await log.checkpoint(keep=KEPT)


async def run(endpoint: str, seconds: float, partitions: int) -> None:
    etcd, keyspace, store = EtcdClient.connect([endpoint]), Keyspace("bench"), MemoryStore()
    topic = await create_topic(etcd, keyspace, "t", partitions=partitions)
    logs = [LogBuilder(etcd, keyspace, store, topic, number) for number in range(partitions)]
    async with asyncio.TaskGroup() as tasks:
        heads = TimedHeads(etcd, keyspace, tasks)
        running = tasks.create_task(heads.run())
        await heads.refresh(PartitionKey(topic.topic_id, number) for number in range(partitions))
        until_s = time.monotonic() + seconds
        async with asyncio.TaskGroup() as owners:
            for log in logs:
                owners.create_task(own(log, until_s))
        running.cancel()
    report(heads.timed)
    await etcd.close()


def report(table: TimedTable) -> None:
    skews_ms = table.skews_ms()
    head_first = sorted(skew for skew in skews_ms if skew > 0)
    print(
        f"{len(skews_ms):,} checkpoints: the head first in {len(head_first):,}, by {spread(head_first)}; "
        f"the halves in different turns of the event loop in {len(table.apart):,}"
    )


def spread(ordered_ms: Sequence[float]) -> str:
    if not ordered_ms:
        return "-"
    p50, p99 = (ordered_ms[len(ordered_ms) * share // 100] for share in (50, 99))
    return f"p50 {p50:.3f}, p99 {p99:.3f}, max {ordered_ms[-1]:.3f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--partitions", type=int, default=8)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafscale-skew-") as folder, start_etcd(Path(folder)) as etcd:
        uvloop.run(run(etcd.endpoint, args.seconds, args.partitions))


if __name__ == "__main__":
    main()
