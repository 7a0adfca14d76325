"""`python -m bench.start`: how long `kafscale up` takes until a record is acknowledged, and what its start costs.

`--against COMMIT` measures an older version in the same environment, in turns with this one: A B A B. `fresh` is a
start on an empty directory: from the start of the command to the acknowledgement of a first record, by a producer that
waits for the port. `restart` is the same with a topic of SEGMENTS segments, and then the first record of that topic is
read; `make bench` counts the stop, too. CPU is that of all processes until then, etcd included; the client is not. PSS
is the memory of all processes SETTLE_S later, and counts each shared page once. The bytecode of each version is
compiled before, as `tools/setup.sh` does it. etcd is on PATH: no fresh start waits for its download.

The figures are for comparing within a run; CPU depends less on other load of the machine than wall time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from kafscale.testkit.etcd import etcd_program

from bench.cpu import cpu_seconds
from bench.footprint import MB, shared_out
from e2e.harness.cluster import Cluster
from e2e.harness.versions import checked_out, version_env

SEGMENTS: Final = 3_000
SETTLE_S: Final = 5.0
ACK_TIMEOUT_S: Final = 120.0
TOPIC: Final = "start"
IMPATIENT: Final = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 20, "retry.backoff.ms": 10}
HERE: Final = "here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Of one start: seconds of wall time and of CPU, bytes of memory."""

    wall_s: float
    cpu_s: float
    stop_s: float
    pss: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", metavar="COMMIT", help="an older version")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--segments", type=int, default=SEGMENTS)
    options = parser.parse_args()
    found: dict[tuple[str, str], list[Found]] = {}
    with tempfile.TemporaryDirectory(prefix="kafscale-start-") as folder:
        versions = environments(Path(folder), options.against)
        full = {
            name: filled(Path(folder) / f"full-{name}", env, options.segments)
            for name, env in versions.items()
        }
        for number in range(-1, options.rounds):  # the first round compiles bytecode, and does not count
            for name, env in versions.items():
                clusters = {
                    "fresh": Cluster(Path(folder) / f"{name}-{number}", env=env),
                    "restart": full[name],
                }
                for kind, cluster in clusters.items():
                    one = start(cluster, read=kind == "restart")
                    if number >= 0:
                        found.setdefault((kind, name), []).append(one)
                        print(kind, name, one, flush=True)
    print(table(found))


def environments(folder: Path, against: str | None) -> Mapping[str, Mapping[str, str]]:
    """Version -> its environment. Bytecode has its own folder, whatever the caller's environment says."""
    common = {
        "PATH": f"{etcd_program().parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
    }
    older = {} if against is None else {against: {**version_env(checked_out(against)), **common}}
    return {**older, HERE: common}


def filled(folder: Path, env: Mapping[str, str], segments: int) -> Cluster:
    """A stopped cluster with a topic of that many segments: one record in each."""
    cluster = Cluster(folder, env={**env, "KAFSCALE_BUNDLES": "0"})
    cluster.start()
    producer = Producer(client(cluster) | {"linger.ms": 0})
    for _ in range(segments):
        producer.produce(TOPIC, b"x", partition=0)
        assert producer.flush(ACK_TIMEOUT_S) == 0
    cluster.stop()
    return cluster


def client(cluster: Cluster) -> dict[str, Any]:
    """A client that does not log the refused connections of a cluster that starts."""
    return {
        "bootstrap.servers": cluster.bootstrap,
        "log_level": 0,
        "error_cb": lambda _error: None,
        **IMPATIENT,
    }


def start(cluster: Cluster, *, read: bool) -> Found:
    """Starts the cluster until a record is acknowledged (and the first is read), and stops it."""
    began = time.monotonic()
    cluster.launch()
    try:
        producer = Producer(client(cluster))
        producer.produce(TOPIC, b"x", partition=0)
        assert producer.flush(ACK_TIMEOUT_S) == 0
        if read:
            read_first(cluster)
        wall_s, cpu_s = time.monotonic() - began, sum(map(cpu_seconds, cluster.tree()))
        cluster.wait_for("KafScale is ready")
        time.sleep(SETTLE_S)
        pss = sum(map(shared_out, cluster.tree()))
    except BaseException:
        cluster.kill()
        raise
    began = time.monotonic()
    cluster.stop()
    return Found(wall_s=wall_s, cpu_s=cpu_s, stop_s=time.monotonic() - began, pss=pss)


def read_first(cluster: Cluster) -> None:
    consumer = Consumer(client(cluster) | {"group.id": "start"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    message = consumer.poll(ACK_TIMEOUT_S)
    assert message is not None
    assert message.error() is None, message.error()
    consumer.close()


def table(found: Mapping[tuple[str, str], Sequence[Found]]) -> str:
    """The medians in Markdown."""
    lines = [
        "| start | version | until the first ack, s | CPU of it, s | stop, s | PSS, MB |",
        "|---|---|---|---|---|---|",
    ]
    for (kind, name), starts in found.items():
        rows = ((each.wall_s, each.cpu_s, each.stop_s, each.pss / MB) for each in starts)
        wall, cpu, stop, pss = map(statistics.median, zip(*rows, strict=True))
        lines.append(f"| {kind} | {name} | {wall:.2f} | {cpu:.2f} | {stop:.2f} | {pss:.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
