"""`python -m bench.many_partitions`: what thousands of partitions cost, of which few or all have records.

It creates a topic and measures the time until each partition has acknowledged a record, then the same after a restart
of everything. Then come memory and CPU without load, and the latency of records at a steady rate: to one partition of a
hundred, and to all. Each record is a request of its own. Memory is the resident memory at the end of each step; CPU is
the share of one core.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError, Message, Producer

from bench.cpu import cpu_seconds
from bench.lines import create
from bench.systems import KafScale, on_directory, on_s3, resident
from bench.tools import load

TOPIC: Final = "many"
ROLES: Final = ("frontdoor", "produce", "fetch", "coordinator", "admin", "etcd")
PRODUCERS: Final = 20
READY_TIMEOUT_S: Final = 300.0
WARM_S: Final = 10
MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """`says` is what was measured besides; memory in bytes, CPU as shares of a core."""

    name: str
    says: str
    memory: Mapping[str, int]
    cores: Mapping[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=1_000, help="records of 1 KB per second")
    parser.add_argument("--seconds", type=int, default=60, help="time of each step")
    parser.add_argument("--instances", type=int, default=1, help="produce instances")
    parser.add_argument("--store", choices=("dir", "s3"), default="dir")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafscale-many-") as folder:
        make = on_directory if options.store == "dir" else on_s3
        system = make(Path(folder))
        system.cluster.scale = {"produce": options.instances}
        system.start()
        try:
            show(measure(system, options))
        finally:
            system.stop()


def measure(system: KafScale, options: argparse.Namespace) -> list[Step]:
    partitions, seconds = options.partitions, options.seconds

    def step(name: str, work: Callable[[], str]) -> Step:
        found = watched(system, name, work)
        print(f"{name}: {found.says}", flush=True)
        return found

    def steady(active: int) -> str:
        found = load(
            "steady", system.bootstrap, TOPIC, rate=options.rate, producers=PRODUCERS, partitions=active,
            warmup=WARM_S, seconds=seconds,
        )  # fmt: skip
        return f"{found['per_s']:,.0f}/s, p50 {found['p50_ms']:.0f} ms, p99 {found['p99_ms']:.0f} ms"

    def idle() -> str:
        time.sleep(seconds)
        return f"{seconds} s without a client"

    def made() -> str:
        began = time.monotonic()
        create(system, TOPIC, partitions)
        created_s = time.monotonic() - began
        ready_s = created_s + all_acknowledge(system, partitions)
        return f"created after {created_s:.1f} s, all acknowledge after {ready_s:.1f} s"

    def restarted() -> str:
        answered_s = system.restart()
        ready_s = answered_s + all_acknowledge(system, partitions)
        return f"a client is answered after {answered_s:.1f} s, all acknowledge after {ready_s:.1f} s"

    return [
        step(f"{partitions:,} partitions are created", made),
        step("restart", restarted),
        step("idle", idle),
        step("1 % active", lambda: steady(max(1, partitions // 100))),
        step("all active", lambda: steady(partitions)),
    ]


def all_acknowledge(system: KafScale, partitions: int) -> float:
    """Seconds until each partition has acknowledged a record."""
    began = time.monotonic()
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer({"bootstrap.servers": system.bootstrap, "log_level": 0})
    for partition in range(partitions):
        producer.produce(TOPIC, b"first", partition=partition, on_delivery=delivered)
    if producer.flush(READY_TIMEOUT_S) or errors:
        raise SystemExit(f"not every partition acknowledged a record: {errors[:3]}")
    return time.monotonic() - began


def watched(system: KafScale, name: str, work: Callable[[], str]) -> Step:
    """Processes that were replaced meanwhile have no CPU time."""
    began = time.monotonic()
    before = _cpu(system)
    says = work()
    took_s = time.monotonic() - began
    after = _cpu(system)
    cores = {role: _used(before[role], after[role]) / took_s for role in ROLES}
    memory = {role: max(resident(pid) for pid in system.cluster.pids(role)) for role in ROLES}
    return Step(name=name, says=says, memory=memory, cores=cores)


def _cpu(system: KafScale) -> dict[str, dict[int, float]]:
    return {role: {pid: cpu_seconds(pid) for pid in system.cluster.pids(role)} for role in ROLES}


def _used(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())


def show(steps: list[Step]) -> None:
    print("\n| | measured | " + " | ".join(f"{role}: MiB, CPU" for role in ROLES) + " |")
    print("|---" * (len(ROLES) + 2) + "|")
    for step in steps:
        cells = [f"{step.memory[role] / MIB:.0f}, {step.cores[role]:.1%}" for role in ROLES]
        print(f"| {step.name} | {step.says} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
