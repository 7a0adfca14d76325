"""Counts what a running cluster does for some seconds: a watch of all heads, and the metrics of those that read."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.log.heads import Head, decode_head
from kafscale.operations.cost.changes import Changes, slice_bytes_of
from kafscale.operations.cost.load import Requests
from kafscale.operations.sentences import Trouble
from kafscale.operations.status.gather import labelled, metrics_texts, rates, readable, totals
from kafscale.operations.status.picture import Totals, newest
from kafscale.storage.etcd.client import EtcdClient, KeyValue
from kafscale.storage.etcd.errors import WatchCompacted
from kafscale.storage.etcd.ops import EventKind, WatchEvent
from kafscale.storage.keys import Keyspace, prefix_end
from kafscale.storage.membership.records import Instance, decode_live
from kafscale.storage.schema import UnreadableValue

READERS: Final = ("fetch", "produce")
SERVED: Final = "kafscale_fetch_bytes_total"
LOADS: Final = (
    "kafscale_fetch_cache_loads_total",
    "kafscale_fetch_manifest_loads_total",
    "kafscale_produce_settle_reads_total",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    requests: Requests
    over_s: float
    partitions: int
    puts_by_topic: Mapping[str, float]
    """PUTs per second."""
    read_by_topic: Mapping[str, float]
    """Bytes per second that fetch instances served."""
    silent: int
    """Fetch and produce instances that did not answer; with one of them, the GETs are not known."""


async def measure(etcd: EtcdClient, keys: Keyspace, seconds: float) -> Measured:
    """Takes a little longer than `seconds`. Raises EtcdError and Trouble."""
    live = await etcd.prefix(keys.live_prefix())
    known = newest(readable(live.kvs, lambda kv: decode_live(kv, keys)))
    readers = [each for each in known if each.role in READERS]
    heads = Heads()
    texts, began = await metrics_texts(readers), time.monotonic()
    changes, watched_s = await heads.watched(etcd, keys, seconds)
    texts_after, scraped_s = await metrics_texts(readers), time.monotonic() - began
    first: dict[str, Totals] = {name: totals(text) for name, text in texts.items()}
    second: dict[str, Totals] = {name: totals(text) for name, text in texts_after.items()}
    loads, silent = loads_per_s(readers, first, second, scraped_s)
    served, served_after = (_served(found.values()) for found in (texts, texts_after))
    return Measured(
        requests=changes.requests(watched_s, loads_per_s=loads, slice_bytes=heads.slice_bytes),
        over_s=watched_s,
        partitions=len(heads),
        puts_by_topic={topic: puts / watched_s for topic, puts in changes.puts_by_topic().items()},
        read_by_topic={
            topic: max(sent - served.get(topic, 0.0), 0.0) / scraped_s for topic, sent in served_after.items()
        },
        silent=silent,
    )


def _served(texts: Iterable[str]) -> Counter[str]:
    """Bytes by topic."""
    found: Counter[str] = Counter()
    for text in texts:
        found.update(labelled(text, SERVED, "topic"))
    return found


def loads_per_s(
    readers: list[Instance], before: dict[str, Totals], after: dict[str, Totals], over_s: float
) -> tuple[float | None, int]:
    """GETs of all instances that read; None if one did not answer both times. Then how many did not."""
    found = [rates(before[each.role + each.id], after[each.role + each.id], over_s) for each in readers]
    silent = sum(not rate for rate in found)
    return (None if silent else sum(rate.get(name, 0.0) for rate in found for name in LOADS)), silent


class Heads:
    """The last known heads of all partitions."""

    def __init__(self) -> None:
        self._heads: dict[bytes, Head] = {}

    def __len__(self) -> int:
        return len(self._heads)

    @property
    def slice_bytes(self) -> int:
        return sum(map(slice_bytes_of, self._heads.values()))

    async def watched(self, etcd: EtcdClient, keys: Keyspace, seconds: float) -> tuple[Changes, float]:
        """The changes of about `seconds`, and the exact time."""
        prefix, changes = keys.heads_prefix(), Changes()
        read = await etcd.prefix(prefix)
        began = time.monotonic()
        for kv in read.kvs:
            self._take(kv)
        watch = etcd.watch(prefix, range_end=prefix_end(prefix), start_revision=read.revision + 1)
        try:
            async with watch, asyncio.timeout(seconds):
                async for batch in watch:
                    for event in batch.events:
                        self._apply(event, changes)
        except TimeoutError:
            return changes, time.monotonic() - began
        except WatchCompacted as error:
            raise Trouble("etcd has compacted the history that the command was reading; try again") from error
        raise AssertionError("a watch does not end")

    def _apply(self, event: WatchEvent, changes: Changes) -> None:
        before = self._heads.pop(event.kv.key, None)
        if event.kind is EventKind.DELETE:
            return
        after = self._take(event.kv)
        if after is None:
            changes.head_commits += 1
        else:
            changes.note(before, after)

    def _take(self, kv: KeyValue) -> Head | None:
        """None: the head cannot be read. `kafscale fsck` reports it."""
        try:
            head = decode_head(kv.value)
        except UnreadableValue:
            return None
        self._heads[kv.key] = head
        return head
