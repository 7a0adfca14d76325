"""What upkeep costs over very many segments: peak memory and time of retention and of samples of lag.

    python -m bench.upkeep_scale [--millions 5] [--expired 100000]

Manifests are written as owners' merges leave them, without a front door and without segments: half of the segments are
in logs of 100,000, half in logs of 557,056, whose oldest manifest has them all. Each job runs in a process of its own.
`--expired` segments are beyond their topic's retention, and their deletions are sent, to objects that are not there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from kafscale.lake.catalog import Lake, read_lake
from kafscale.lake.lag.sampler import Sampler
from kafscale.lake.retention.apply import Retention
from kafscale.storage.etcd import EtcdClient, Put, Txn
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.heads import Head, ManifestRef, Meta, Seg, encode_head, encode_meta
from kafscale.storage.keys import Keyspace
from kafscale.storage.manifests import Manifest, encode_manifest, ref_to
from kafscale.storage.objects import IfAbsent, StoreConfig, open_store
from kafscale.storage.slots import slot_of
from kafscale.testkit.etcd import start_etcd
from kafscale.testkit.logbuilder import create_topic

PER_SEGMENT: Final = 100
SMALL: Final = 100_000
LARGE: Final = 557_056
LEVELS: Final = (17_408, 544, 17)
"""Segments of the manifests behind a log's oldest."""
WEEK_MS: Final = 7 * 24 * 3_600_000
JOBS: Final = ("whole", "retention", "lag")


def segments(count: int, expired: int, now_ms: int) -> list[Seg]:
    return [
        Seg(
            base=number * PER_SEGMENT,
            last_delta=PER_SEGMENT - 1,
            size=100_000 + number % 977,
            etag=f"{number:032x}",
            crc32c=(number * 2_654_435_761) & 0xFFFFFFFF,
            index_size=28,
            index_etag=f"{number + 7:032x}",
            epoch=7,
            min_ts=now_ms - (2 * WEEK_MS if number < expired else 3_600_000),
            max_ts=now_ms - (2 * WEEK_MS if number < expired else 3_600_000),
            records=PER_SEGMENT,
            batches=7,
            created_ms=now_ms - 3_600_000,
        )
        for number in range(count)
    ]


async def build(lake: Lake, name: str, logs: int, count: int, expired: int) -> None:
    """`expired` of each log."""
    topic = await create_topic(lake.etcd, lake.keys, name, partitions=logs)
    listed = segments(count, expired, time.time_ns() // 1_000_000)
    cuts = [0, count - sum(LEVELS) - 8]
    for level in LEVELS:
        cuts.append(cuts[-1] + level)
    manifests = [Manifest(segments=tuple(listed[a:b])) for a, b in zip(cuts, cuts[1:], strict=False)]
    bodies = [encode_manifest(each) for each in manifests]
    for partition in range(logs):
        refs: list[ManifestRef] = []
        for level, (manifest, body) in enumerate(zip(manifests, bodies, strict=True)):
            first = manifest.segments[0].base
            key = lake.keys.manifest_key(topic.topic_id, partition, first, f"{level:032x}")
            await lake.store.put(key, [body], condition=IfAbsent())
            refs.append(ref_to(key, manifest, 3 - level))
        head = Head(epoch=7, topic=name, next=count * PER_SEGMENT, tail=tuple(listed[-8:]))
        meta = Meta(manifest_end=listed[-8].base, chunks=tuple(refs))
        where = (topic.topic_id, partition)
        puts = (
            Put(lake.keys.head(*where), encode_head(head)),
            Put(lake.keys.meta(*where), encode_meta(meta)),
        )
        await lake.etcd.txn(Txn(success=puts))
        commit = CommittedOffset(offset=count * PER_SEGMENT // 2, commit_ms=1)
        group = lake.keys.committed(slot_of("g"), "g", topic.topic_id, partition)
        await lake.etcd.put(group, encode_committed(commit))


async def opened(etcd: str, folder: str) -> Lake:
    store = open_store(StoreConfig(kind="dir", directory=Path(folder)))
    await store.probe()
    return Lake(EtcdClient.connect([etcd]), Keyspace("scale"), store)


def peak_mb() -> int:
    """Of this program alone: what getrusage says counts the process that started it as well."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


async def job(name: str, etcd: str, folder: str) -> None:
    lake = await opened(etcd, folder)
    before_s = time.process_time()
    began_s = time.monotonic()
    told: dict[str, object] = {}
    if name == "whole":  # what each of these jobs did before: every segment of every log at once
        told["segments"] = sum(len(log.segments) for log in await read_lake(lake))
    elif name == "retention":
        report = await Retention(lake, grace_s=0, remembers=True).run()
        told["deleted"] = report.segments
        told["missed"] = report.missed
    else:
        sampler = Sampler(lake)
        for _ in range(3):
            at_s = time.monotonic()
            await sampler.step(time.time_ns() // 1_000_000)
            told.setdefault("steps_s", []).append(round(time.monotonic() - at_s, 1))  # type: ignore[attr-defined]
    told |= {
        "job": name,
        "wall_s": round(time.monotonic() - began_s, 1),
        "cpu_s": round(time.process_time() - before_s, 1),
        "rss_peak_mb": peak_mb(),
    }
    print(json.dumps(told))


async def main(millions: float, expired: int, jobs: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, start_etcd(Path(folder)) as etcd:
        target, objects = etcd.endpoint, f"{folder}/objects"
        lake = await opened(target, objects)
        half = int(millions * 500_000)
        small, large = max(1, half // SMALL), max(1, half // LARGE)
        of_each = expired // (small + large)
        await build(lake, "small", small, SMALL, of_each)
        await build(lake, "large", large, LARGE, of_each)
        print(f"{small * SMALL + large * LARGE} segments in {small + large} logs")
        for name in jobs:
            command = [sys.executable, "-m", "bench.upkeep_scale", "--job", name, target, objects]
            await asyncio.to_thread(subprocess.run, command, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--millions", type=float, default=5)
    parser.add_argument("--expired", type=int, default=100_000)
    parser.add_argument("--jobs", default="retention,lag", help="of whole, retention and lag")
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        asyncio.run(job(*given.job))
    else:
        asyncio.run(main(given.millions, given.expired, given.jobs.split(",")))
