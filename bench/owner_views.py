"""The cost of the owner records of a large cluster in a front door.

    python -m bench.owner_views [--topics 1000]

A front door holds the owner record of every partition. It reads all of them before it listens, and again every minute,
because etcd has lost watch events before. This program measures both reads against a real etcd: the CPU time of the
process, and the longest stall of the event loop. All requests wait while the second read, the reconcile, stalls the
loop. A stall is CPU time of the loop's thread, so other load on the machine hardly changes it. As in a service, the
garbage collector is tuned after the first read. No record changes between the two reads. The memory is the growth of
the process after the first read, and its peak.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import uvloop
from kafscale.runtime.memory_tuning import calm_collector
from kafscale.storage.etcd.client import EtcdClient, Put, Txn
from kafscale.storage.heads import OwnerRecord, encode_owner
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.storage.owner_views import OwnersView
from kafscale.testkit.etcd import start_etcd

from bench.upkeep_scale import memory_mb

PARTITIONS: Final = 100
"""Of each topic: one transaction writes their records, and etcd's default limit is 128 operations."""
TICK_S: Final = 0.001
SETTLE_S: Final = 0.05
"""Long enough for a tick after the end of a read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    cpu_s: float
    stall_s: float

    def __str__(self) -> str:
        return f"{self.cpu_s:.2f} s of CPU (longest stall {self.stall_s:.2f} s)"


async def write_records(etcd: EtcdClient, keyspace: Keyspace, topics: int) -> None:
    """As after claims by four produce services."""
    values = [encode_owner(OwnerRecord(epoch=7, owner=f"{node}/{uuid.uuid4().hex}")) for node in range(4)]
    for _ in range(topics):
        topic_id = TopicId(uuid.uuid4().bytes)
        puts = [Put(keyspace.owner(topic_id, n), values[n % len(values)]) for n in range(PARTITIONS)]
        await etcd.txn(Txn(success=tuple(puts)))


async def watch_loop(stalls_s: list[float]) -> None:
    """Notes the CPU seconds that the loop's thread used between two ticks."""
    last_s = time.thread_time()
    while True:
        await asyncio.sleep(TICK_S)
        now_s = time.thread_time()
        stalls_s.append(now_s - last_s)
        last_s = now_s


async def read_all(owners: OwnersView) -> Cost:
    """One read of all records."""
    stalls_s: list[float] = []
    watching = asyncio.create_task(watch_loop(stalls_s))
    await asyncio.sleep(SETTLE_S)
    began_s = time.process_time()
    await owners.refresh()
    cpu_s = time.process_time() - began_s
    await asyncio.sleep(SETTLE_S)
    watching.cancel()
    return Cost(cpu_s=cpu_s, stall_s=max(stalls_s))


async def run(endpoint: str, topics: int) -> None:
    etcd, keyspace = EtcdClient.connect([endpoint]), Keyspace("bench")
    await write_records(etcd, keyspace, topics)
    owners = OwnersView(etcd, keyspace)
    before_mb = memory_mb("VmRSS")
    first = await read_all(owners)
    held_mb = memory_mb("VmRSS")
    calm_collector()
    again = await read_all(owners)
    peak_mb = memory_mb("VmHWM")
    print(
        f"{len(owners.items):,} owner records: first read {first}, reconcile {again}; "
        f"memory +{held_mb - before_mb} MB after the first read, +{peak_mb - before_mb} MB at the peak"
    )
    await etcd.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=1_000, help=f"of {PARTITIONS} partitions each")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafscale-owners-") as folder, start_etcd(Path(folder)) as etcd:
        uvloop.run(run(etcd.endpoint, args.topics))


if __name__ == "__main__":
    main()
