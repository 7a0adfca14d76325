"""What is stored, in the child process: bytes by topic, sizes of segments, bundles, etcd, upkeep's runs.

The bytes and segments of a log are in its head and meta, so they cost reads of etcd alone. Sizes of single segments
are in heads and manifests; at most MANIFESTS_MAX manifests are read, and the answer says how many segments it saw.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafscale.log.heads import Head, ManifestRef, Meta, Seg, decode_head, decode_meta
from kafscale.log.manifests import decode_manifest
from kafscale.operations.status.gather import labelled, metrics_texts, readable
from kafscale.operations.status.picture import newest
from kafscale.storage.etcd.client import EtcdError, KeyValue
from kafscale.storage.job_runs import decode_job_run
from kafscale.storage.keys import TopicId
from kafscale.storage.membership.records import decode_live
from kafscale.storage.objects import ObjectNotFound
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.task_groups import gather_bounded
from kafscale.storage.topics import decode_topic

if TYPE_CHECKING:
    from kafscale.console.direct.questions import Row, Say
    from kafscale.operations.clusters import Cluster

HEADS_PER_READ: Final = 500
RECORDS_PER_READ: Final = 40
MANIFESTS_MAX: Final = 300
MANIFESTS_AT_ONCE: Final = 8
CLASSES: Final = (64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
"""Upper bounds of sizes of segments, in bytes; the last class has none."""


@dataclass(slots=True)
class Sums:
    """Of one topic, or of several."""

    partitions: int = 0
    segments: int = 0
    bytes: int = 0
    slices: int = 0
    slice_bytes: int = 0

    def add(self, head: Head | None, meta: Meta | None) -> None:
        self.partitions += 1
        if head is not None:
            slices = [seg for seg in head.tail if seg.is_slice]
            self.segments += len(head.tail)
            self.bytes += head.bytes
            self.slices += len(slices)
            self.slice_bytes += sum(seg.size for seg in slices)
        if meta is not None:
            self.segments += sum(ref.count for ref in meta.chunks)
            self.bytes -= meta.freed

    def row(self, topic: str | None) -> Row:
        return {
            "topic": topic,
            "partitions": self.partitions,
            "segments": self.segments,
            "bytes": self.bytes,
            "slices": self.slices,
            "slice_bytes": self.slice_bytes,
        }


@dataclass(slots=True)
class Logs:
    """Heads and metas of all partitions, and how much of etcd they are."""

    heads: dict[tuple[TopicId, int], Head] = field(default_factory=dict)
    metas: dict[tuple[TopicId, int], Meta] = field(default_factory=dict)
    unreadable: int = 0

    def by_topic(self, names: Mapping[TopicId, str], seen: frozenset[str]) -> list[Row]:
        """The topics that are seen, the largest first, and the sum of the others with the name None."""
        sums: dict[str | None, Sums] = {}
        for place in self.heads.keys() | self.metas.keys():
            name = names.get(place[0])
            shown = name if name in seen else None
            sums.setdefault(shown, Sums()).add(self.heads.get(place), self.metas.get(place))
        rows = [each.row(name) for name, each in sums.items()]
        return sorted(rows, key=lambda row: (row["topic"] is None, -row["bytes"], row["topic"]))

    @property
    def slices(self) -> list[Seg]:
        return [seg for head in self.heads.values() for seg in head.tail if seg.is_slice]

    @property
    def manifests(self) -> list[ManifestRef]:
        return [ref for meta in self.metas.values() for ref in meta.chunks]


async def answer_storage(cluster: Cluster, question: Row, say: Say) -> None:
    """`topics`: those to name. Says {topics, unreadable}, {etcd}, {upkeep}, {bundles}, {sizes}."""
    families: dict[str, Counter[str]] = {}
    logs = await read_logs(cluster, families)
    names = await topic_names(cluster)
    say({"topics": logs.by_topic(names, frozenset(question["topics"])), "unreadable": logs.unreadable})
    say({"etcd": await _etcd(cluster, families)})
    say({"upkeep": await _upkeep(cluster)})
    say({"bundles": await _bundles(cluster, logs.slices)})
    say({"sizes": await _sizes(cluster, logs)})


async def topic_names(cluster: Cluster) -> dict[TopicId, str]:
    found = await cluster.etcd.prefix(cluster.keys.topics_prefix())
    topics = readable(found.kvs, lambda kv: decode_topic(cluster.keys.parse_topic(kv.key), kv.value))
    return {topic.topic_id: topic.name for topic in topics}


async def read_logs(cluster: Cluster, families: dict[str, Counter[str]]) -> Logs:
    """All heads and metas; `families` gets how many bytes of etcd they are. Raises EtcdError."""
    etcd, keys, logs = cluster.etcd, cluster.keys, Logs()
    heads = families["heads of partitions"] = Counter()
    async for kv in etcd.each(keys.heads_prefix(), page_keys=HEADS_PER_READ):
        _count(heads, kv)
        try:
            logs.heads[keys.parse_head(kv.key)] = decode_head(kv.value)
        except UnreadableValue:
            logs.unreadable += 1
    metas = families["metas of partitions"] = Counter()
    async for kv in etcd.each(keys.metas_prefix(), page_keys=HEADS_PER_READ):
        _count(metas, kv)
        try:
            logs.metas[keys.partition_of(kv.key, keys.metas_prefix())] = decode_meta(kv.value)
        except UnreadableValue:
            logs.unreadable += 1
    return logs


def _count(family: Counter[str], kv: KeyValue) -> None:
    """Not by `update`, which takes as long as decoding the value."""
    family["keys"] += 1
    family["bytes"] += len(kv.key) + len(kv.value)


async def _etcd(cluster: Cluster, families: dict[str, Counter[str]]) -> Row:
    """Unknown is None: some versions of etcd give their status to root alone."""
    etcd, keys = cluster.etcd, cluster.keys
    others = {
        "owners of partitions": keys.owners_prefix(),
        "topics": keys.topics_prefix(),
        "groups": keys.groups_prefix(),
        "committed offsets": keys.commits_prefix(),
        "offsets of open transactions": keys.pendings_prefix(),
        "transactional ids": keys.transactions_prefix(),
        "instances": keys.live_prefix(),
    }
    for name, prefix in others.items():
        with suppress(EtcdError):  # without the right to read it, a family is left out
            sums: Counter[str] = Counter()
            async for kv in etcd.each(prefix, page_keys=RECORDS_PER_READ):
                _count(sums, kv)
            families[name] = sums
    rows = [{"family": name, "keys": each["keys"], "bytes": each["bytes"]} for name, each in families.items()]
    known: Row = {"families": sorted(rows, key=lambda row: -row["bytes"])}
    try:
        status = await etcd.status()
    except EtcdError:
        return known | {"version": None, "file_bytes": None, "used_bytes": None, "quota_bytes": None}
    return known | {
        "version": status.version,
        "file_bytes": status.db_bytes,
        "used_bytes": status.db_bytes_in_use,
        "quota_bytes": status.quota_bytes or cluster.settings.etcd_quota_bytes,
    }


async def _upkeep(cluster: Cluster) -> Row:
    """`next_ms` and `failures` are those that the active instance says; None if it does not answer."""
    etcd, keys = cluster.etcd, cluster.keys
    prefix = keys.job_run("")
    ended: dict[str, int] = {}
    for kv in (await etcd.prefix(prefix)).kvs:
        with suppress(UnreadableValue):
            ended[kv.key.removeprefix(prefix).decode()] = decode_job_run(kv.value)
    live = await etcd.prefix(keys.live_prefix("upkeep"))
    texts = list((await metrics_texts(newest(readable(live.kvs, lambda kv: decode_live(kv, keys))))).values())
    due, failures, stalled = (
        {name: value for text in texts for name, value in labelled(text, metric, "task").items()}
        for metric in (
            "kafscale_upkeep_next_run_timestamp_seconds",
            "kafscale_upkeep_failures_total",
            "kafscale_upkeep_stalled_runs",
        )
    )
    jobs = [
        {
            "job": name,
            "last_ms": ended.get(name),
            "next_ms": round(due[name] * 1000) if name in due else None,
            "failures": int(failures[name]) if name in failures else None,
            "stalled": int(stalled.get(name, 0)),
        }
        for name in sorted(ended.keys() | due.keys())
    ]
    return {"jobs": jobs, "answers": any(texts)}


async def _bundles(cluster: Cluster, slices: list[Seg]) -> Row:
    named = {seg.bundle for seg in slices}
    count = size = named_count = 0
    async for info in cluster.store.list(cluster.keys.bundles_prefix()):
        count += 1
        size += info.size
        named_count += cluster.keys.parse_bundle(info.key) in named
    live = sum(seg.size for seg in slices)
    oldest = min((seg.created_ms for seg in slices), default=None)
    return {
        "bundles": count,
        "bytes": size,
        "named": named_count,
        "live_bytes": live,
        "slices": len(slices),
        "oldest_ms": oldest,
        "now_ms": round(time.time() * 1000),
    }


async def _sizes(cluster: Cluster, logs: Logs) -> Row:
    chunks = logs.manifests
    read = chunks[:MANIFESTS_MAX]
    bodies = await gather_bounded((_manifest(cluster, ref) for ref in read), MANIFESTS_AT_ONCE)
    segments = [seg for some in bodies for seg in some]
    segments += [seg for head in logs.heads.values() for seg in head.tail if not seg.is_slice]
    every = sum(ref.count for ref in chunks) + sum(
        not seg.is_slice for head in logs.heads.values() for seg in head.tail
    )
    return {"classes": size_classes(seg.size for seg in segments), "seen": len(segments), "segments": every}


async def _manifest(cluster: Cluster, ref: ManifestRef) -> tuple[Seg, ...]:
    try:
        return decode_manifest(await cluster.store.get(ref.key)).segments
    except (ObjectNotFound, UnreadableValue):
        return ()  # merged meanwhile, or damaged, which the check reports


def size_classes(sizes: Iterable[int]) -> list[Row]:
    """`below` None: the last class."""
    bounds = [*CLASSES, None]
    found: list[Row] = [{"below": below, "segments": 0, "bytes": 0} for below in bounds]
    for size in sizes:
        row = found[sum(size >= bound for bound in CLASSES)]
        row["segments"] += 1
        row["bytes"] += size
    return found
