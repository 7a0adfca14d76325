"""The cost of upkeep and admin with very many segments: peak memory and time of each job.

    python -m bench.upkeep_scale [--millions 5] [--expired 100000] [--jobs lag,orphans]

Manifests are written as owners' merges leave them, without a front door and without segments: half of the segments are
in logs of 100,000, half in logs of 557,056, whose oldest manifest has them all. Each job runs in a separate process.
`--expired` segments are beyond their topic's retention, and their deletions are sent, to objects that are not there.
The collection of orphans and the deletion of the topic with the large logs list two objects for each segment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from kafscale.lake.catalog import NEVER, Lake, read_lake, read_outlines, read_topics
from kafscale.storage.topics import TopicState, encode_topic
from kafscale.testkit.etcd import start_etcd

from bench.built_lake import Built, ListedStore, build, opened, write_down

SMALL: Final = 100_000
LARGE: Final = 557_056
GRACE_S: Final = 2.0
GROUP: Final = 100

Figures = dict[str, Any]


async def whole(lake: Lake) -> Figures:
    """The memory that these jobs once needed: it reads every segment of every log at once."""
    return {"segments": sum(len(log.segments) for log in await read_lake(lake))}


async def retention(lake: Lake) -> Figures:
    from kafscale.lake.retention.apply import Retention

    report = await Retention(lake, grace_s=0, remembers=True).run()
    return {"deleted": report.segments, "missed": report.missed}


async def lag(lake: Lake) -> Figures:
    from kafscale.lake.lag.sampler import Sampler

    sampler = Sampler(lake)
    steps_s = []
    for _ in range(3):
        at_s = time.monotonic()
        await sampler.step(time.time_ns() // 1_000_000)
        steps_s.append(round(time.monotonic() - at_s, 1))
    return {"steps_s": steps_s}


async def orphans(lake: Lake) -> Figures:
    from kafscale.lake.retention.orphans import Orphans

    found = await Orphans(lake, grace_s=GRACE_S, named_max=0, remembers=True).collect()
    fates = {fate.value: count for fate, count in found.fates.items()}
    return {"orphans": found.count, "fates": fates, "missed": found.missed}


async def survey(lake: Lake) -> Figures:
    from kafscale.lake.compaction.due import candidates

    topics = await read_topics(lake)
    for topic in topics:
        compacted = replace(topic, configs={"cleanup.policy": "compact"})
        await lake.etcd.put(lake.keys.topic(topic.name), encode_topic(compacted))
    due, _ = await candidates(lake, None, time.time_ns() // 1_000_000)
    for topic in topics:
        await lake.etcd.put(lake.keys.topic(topic.name), encode_topic(topic))
    return {"due": len(due), "segments": sum(each.dirty.segments for each in due)}


async def publication(lake: Lake) -> Figures:
    """Measures one group of compaction, in a log's oldest and largest manifest."""
    from kafscale.lake.compaction.publish import publish
    from kafscale.lake.compaction.segments import follow

    (topic,) = [each for each in await read_topics(lake) if each.name == "large"]
    (outline,) = await read_outlines(lake, [(topic, 0)])
    log = outline.log(())
    async with aclosing(follow(lake, outline, outline.meta.log_start, NEVER)) as segments:
        group = [await anext(segments) for _ in range(GROUP)]
    key = lake.keys.compacted_key(topic.topic_id, 0, group[0].base, "bench")
    seg = replace(group[0], last_delta=group[-1].last - group[0].base, key=key)
    await publish(lake, log, outline, group, seg)
    return {"listed_in_its_manifest": outline.meta.chunks[0].count}


async def deletion(lake: Lake) -> Figures:
    """Measures the deletion of the topic with the large logs, by an admin's turns."""
    from kafscale.admin.deletion import Deletions
    from kafscale.admin.topic_limits import TopicLimits
    from kafscale.admin.topics import TopicStore
    from kafscale.runtime.clock import SystemClock
    from kafscale.runtime.etcd_space import EtcdSpace
    from kafscale.runtime.metrics import Metrics
    from kafscale.storage.topics import TopicsView

    (topic,) = [each for each in await read_topics(lake) if each.name == "large"]
    doomed = replace(topic, state=TopicState.DELETING)
    await lake.etcd.put(lake.keys.topic(topic.name), encode_topic(doomed))
    view = TopicsView(lake.etcd, lake.keys)
    limits = TopicLimits(view, topics_max=10, partitions_max=1_000)
    space, clock, history = EtcdSpace(lake.etcd, 2 << 30), SystemClock(), lake.etcd_history()
    store = TopicStore(lake.etcd, lake.keys, view, limits, 1, space, history)
    metrics = Metrics("admin")
    deletions = Deletions(lake.etcd, lake.keys, lake.store, store, view, metrics, clock, history)
    tasks = [asyncio.create_task(work) for work in (view.run(), deletions.run())]
    await view.ready()
    gone = asyncio.Event()
    view.subscribe(lambda name, now: gone.set() if name == topic.name and now is None else None)
    await gone.wait()
    for task in tasks:
        task.cancel()
    assert isinstance(lake.store, ListedStore)
    return {"objects": lake.store.deleted}


JOBS: Final[dict[str, Callable[[Lake], Awaitable[Figures]]]] = {
    each.__name__: each for each in (whole, retention, lag, orphans, survey, publication, deletion)
}


def memory_mb(name: str) -> int:
    """The peak memory of this program alone; getrusage would include the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) // 1024


async def job(name: str, etcd: str, folder: str) -> None:
    lake = await opened(etcd, Path(folder))
    before_s = time.process_time()
    began_s = time.monotonic()
    figures = await JOBS[name](lake) | {
        "wall_s": round(time.monotonic() - began_s, 1),
        "cpu_s": round(time.process_time() - before_s, 1),
        "rss_peak_mb": memory_mb("VmHWM"),
    }
    print(json.dumps({"job": name} | figures), flush=True)


async def main(millions: float, expired: int, jobs: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, start_etcd(Path(folder)) as etcd:
        lake = await opened(etcd.endpoint, Path(folder))
        half = int(millions * 500_000)
        small = Built("small", -(-half // SMALL), SMALL)
        large = Built("large", -(-half // LARGE), LARGE)
        for each in (small, large):
            await build(lake, each, expired // (small.logs + large.logs))
        write_down(Path(folder), (small, large))
        count = sum(each.logs * each.count for each in (small, large))
        print(f"{count} segments in {small.logs + large.logs} logs", flush=True)
        for name in jobs:
            command = [sys.executable, "-m", "bench.upkeep_scale", "--job", name, etcd.endpoint, folder]
            await asyncio.to_thread(subprocess.run, command, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--millions", type=float, default=5)
    parser.add_argument("--expired", type=int, default=100_000)
    parser.add_argument("--jobs", default=",".join(name for name in JOBS if name != "whole"))
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        asyncio.run(job(*given.job))
    else:
        asyncio.run(main(given.millions, given.expired, given.jobs.split(",")))
