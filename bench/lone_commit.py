"""What one commit costs etcd when commits come one by one: CPU of its process, and the time that the caller waits.

    python -m bench.lone_commit [--seconds 4] [--rounds 3]

The transaction is that of a head: nested, one compare, one put of 2 KB. The arms run alternately, each against a fresh
etcd: as fast as they can, with a pause as between the commits of one producer, with watchers of the heads, and with
settings of etcd's process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import uvloop
from kafscale.runtime.etcd_binary import EtcdProcess, socket_folder
from kafscale.storage.etcd.client import Compare, EtcdClient, Put, Range, Txn, TxnResult
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.testkit.etcd import etcd_program

HEAD_BYTES = 2_000
KEYS = Keyspace("bench")
TOPIC = TopicId(b"t" * 16)
PAUSE_S = 0.0025


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    pause_s: float = 0.0
    watchers: int = 0
    env: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()


ARMS: Mapping[str, Arm] = {
    "without a pause": Arm(),
    "a pause of 2.5 ms": Arm(pause_s=PAUSE_S),
    "and 1 watcher": Arm(pause_s=PAUSE_S, watchers=1),
    "and 4 watchers": Arm(pause_s=PAUSE_S, watchers=4),
    "and 1 watcher, GOMAXPROCS=1": Arm(pause_s=PAUSE_S, watchers=1, env={"GOMAXPROCS": "1"}),
    "and 1 watcher, a tick of 100 ms": Arm(
        pause_s=PAUSE_S, watchers=1, flags=("--heartbeat-interval=100", "--election-timeout=500")
    ),
    "and 1 watcher, GOGC=400": Arm(pause_s=PAUSE_S, watchers=1, env={"GOGC": "400"}),
}


def cpu_us(pid: int) -> float:
    """Of all threads, by the scheduler's clock."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e3


def switches(pid: int) -> int:
    """Context switches of all threads."""
    lines = (
        line
        for task in Path(f"/proc/{pid}/task").iterdir()
        for line in (task / "status").read_text().splitlines()
    )
    return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)


def commit(revision: int) -> Txn:
    head = KEYS.head(TOPIC, 0)
    return Txn(
        success=(
            Txn(
                compare=(Compare(head, "mod", "=", revision),),
                success=(Put(head, os.urandom(HEAD_BYTES)),),
                failure=(Range(head),),
            ),
        )
    )


async def measure(etcd: EtcdProcess, arm: Arm, seconds: float) -> tuple[float, float, float, float]:
    """CPU us of etcd and its context switches for a commit, CPU us of etcd in an idle second, p50 of the wait in us."""
    assert etcd.pid is not None
    async with asyncio.TaskGroup() as tasks:
        clients = [EtcdClient.connect([etcd.endpoint]) for _ in range(1 + arm.watchers)]
        writer = clients[0]
        revision = (await writer.put(KEYS.head(TOPIC, 0), b"")).revision
        watching = [tasks.create_task(watch(each, revision + 1)) for each in clients[1:]]
        idle_us = cpu_us(etcd.pid)
        await asyncio.sleep(1)
        idle_us = cpu_us(etcd.pid) - idle_us
        took: list[float] = []
        before_us, before = cpu_us(etcd.pid), switches(etcd.pid)
        until = time.monotonic() + seconds
        while (begin := time.monotonic()) < until:
            answer = await writer.txn(commit(revision))
            took.append(time.monotonic() - begin)
            (nested,) = answer.responses
            assert isinstance(nested, TxnResult)
            assert nested.succeeded
            revision = answer.revision
            if arm.pause_s:
                await asyncio.sleep(arm.pause_s)
        spent_us, switched = cpu_us(etcd.pid) - before_us, switches(etcd.pid) - before
        for task in watching:
            task.cancel()
    for client in clients:
        await client.close()
    spent_us -= idle_us * seconds
    return spent_us / len(took), switched / len(took), idle_us, median(took) * 1e6


async def watch(client: EtcdClient, revision: int) -> None:
    start = KEYS.heads_prefix()
    async with client.watch(start, range_end=start + b"\xff", start_revision=revision) as batches:
        async for _ in batches:
            pass


async def run(rounds: int, seconds: float) -> None:
    found: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in ARMS}
    for number in range(rounds):
        for name, arm in ARMS.items():
            os.environ.update(arm.env)
            with tempfile.TemporaryDirectory() as folder, socket_folder(Path(folder) / "s") as sockets:
                etcd = EtcdProcess(
                    etcd_program(),
                    Path(folder) / "data",
                    log_path=Path(folder) / "log",
                    sockets=sockets,
                    extra=arm.flags,
                )
                await etcd.start()
                try:
                    found[name].append(await measure(etcd, arm, seconds))
                finally:
                    etcd.kill()
                    for key in arm.env:
                        del os.environ[key]
        print(f"round {number + 1}", flush=True)
    print(f"{'':34} etcd, CPU us   switches   idle us/s   p50 us   (best CPU, best p50)")
    for name, rows in found.items():
        cpu, switched, idle, p50 = (median(column) for column in zip(*rows, strict=True))
        best = (min(row[0] for row in rows), min(row[3] for row in rows))
        print(
            f"{name:34} {cpu:12.0f} {switched:10.1f} {idle:11.0f} {p50:8.0f}   ({best[0]:.0f}, {best[1]:.0f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    uvloop.run(run(options.rounds, options.seconds))


if __name__ == "__main__":
    main()
