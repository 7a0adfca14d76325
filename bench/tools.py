"""Builds and runs the programs that load a cluster, and reads what they print."""

from __future__ import annotations

import json
import re
import subprocess
from functools import cache
from pathlib import Path

from kafscale.testkit.seaweed import SeaweedServer

from e2e.harness.apache import kafka_classpath, kafka_version

HERE = Path(__file__).parent
BUILT = HERE.parent / "out" / "bench"
RUN_TIMEOUT_S = 600.0
RECORD_BYTES = 1024
VOLUMES = 200
"""For 50 GB: ten minutes of 10 MB/s are stored twice, in bundles and in settled segments, and deleted bundles keep
their space for a while."""
SERVER_MEMORY_MIB = 2_000


def s3_server(folder: Path) -> SeaweedServer:
    """One that runs, the same for all systems."""
    server = SeaweedServer(folder, volumes=VOLUMES, memory_mib=SERVER_MEMORY_MIB)
    server.start()
    server.wait_ready()
    return server


def run(command: list[str], timeout_s: float = RUN_TIMEOUT_S) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(command)[:300]} exited {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
        )
    return done.stdout


@cache
def _load_program() -> str:
    BUILT.mkdir(parents=True, exist_ok=True)
    run(["go", "build", "-C", str(HERE / "go"), "-o", f"{BUILT}/", "./cmd/load"])
    return str(BUILT / "load")


def load(mode: str, bootstrap: str, topic: str, **options: int) -> dict[str, float]:
    """Runs the Go load program and returns its measurements."""
    flags = [f"-{name.replace('_', '')}={value}" for name, value in options.items()]
    command = [_load_program(), f"-mode={mode}", f"-bootstrap={bootstrap}", f"-topic={topic}", *flags]
    out = run(command, RUN_TIMEOUT_S + options.get("seconds", 0))
    found: dict[str, float] = json.loads(out)
    return found


def _kafka_tool(name: str) -> list[str]:
    return ["java", "-Xmx512m", "-cp", kafka_classpath(kafka_version()), f"org.apache.kafka.tools.{name}"]


def producer_performance(
    bootstrap: str,
    topic: str,
    records: int,
    *,
    record_bytes: int = RECORD_BYTES,
    codec: str = "none",
) -> dict[str, float]:
    """Apache Kafka's own ProducerPerformance: records/s, MB/s, latencies in ms."""
    out = run(
        [*_kafka_tool("ProducerPerformance"), "--topic", topic, "--num-records", str(records)]
        + ["--record-size", str(record_bytes), "--throughput", "-1"]
        + [
            "--producer-props",
            f"bootstrap.servers={bootstrap}",
            "acks=all",
            "batch.size=65536",
            "linger.ms=5",
            f"compression.type={codec}",
        ]
    )
    last = out.strip().splitlines()[-1]
    found = re.search(r"([\d.]+) records/sec \(([\d.]+) MB/sec\).*?([\d.]+) ms 50th.*?([\d.]+) ms 99th", last)
    if found is None:
        raise RuntimeError(f"ProducerPerformance said: {last}")
    per_s, mb_per_s, p50, p99 = (float(group) for group in found.groups())
    return {"per_s": per_s, "mb_per_s": mb_per_s, "p50_ms": p50, "p99_ms": p99}


def consumer_performance(
    bootstrap: str, topic: str, records: int, *, partition_bytes: int = 1 << 20
) -> dict[str, float]:
    """Apache Kafka's own ConsumerPerformance, one consumer with default settings: records/s and MB/s from the first
    assignment on. `partition_bytes`: its max.partition.fetch.bytes."""
    out = run(
        [*_kafka_tool("ConsumerPerformance"), "--bootstrap-server", bootstrap, "--topic", topic]
        + ["--num-records", str(records), "--timeout", "60000", "--fetch-size", str(partition_bytes)]
    )
    *_, head, row = out.strip().splitlines()
    found = dict(zip(head.split(", "), row.split(", "), strict=True))
    return {
        "per_s": float(found["fetch.nMsg.sec"]),
        "mb_per_s": float(found["fetch.MB.sec"]) * (1 << 20) / 1e6,
    }
