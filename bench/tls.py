"""Produce and consume over TLS and without it, by the same processes in one run.

    python -m bench.tls [--rounds 3] [--records 500000] [--workers 1]

One front door has a listener of each kind. The producer is Apache Kafka's ProducerPerformance, the consumer the Go
program of `make bench`. Plaintext and TLS take turns, and each figure is the median of the rounds. The CPU of the front
door per MB changes less than MB/s with what else runs on the machine. `--workers` is KAFSCALE_FRONTDOOR_WORKERS.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from kafscale.runtime.ports import free_port
from kafscale.testkit.authority import Authority

from bench.cpu import RECORD_MB, family_seconds
from bench.tools import load, producer_performance
from e2e.harness.deployment import Deployment

HOST = "127.0.0.1"
PARTITIONS = (1, 12)


@dataclass(frozen=True, slots=True)
class Listener:
    """`ca`: what its clients trust; None without TLS."""

    name: str
    bootstrap: str
    ca: Path | None


@dataclass(frozen=True, slots=True)
class Figure:
    """Of one measurement. `cpu_ms`: of the front door, for each MB."""

    mb_per_s: float
    cpu_ms: float


@contextmanager
def running(folder: Path, workers: int) -> Iterator[tuple[Deployment, list[Listener]]]:
    authority = Authority(folder / "tls")
    files = authority.issue(HOST)
    ports = {"PLAINTEXT": free_port(), "SSL": free_port()}
    deployment = Deployment(folder / "deployment", 1, on_s3=False)
    env = {
        "KAFSCALE_LISTENERS": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "KAFSCALE_SSL_CERTIFICATE": str(files.certificate),
        "KAFSCALE_SSL_KEY": str(files.key),
        "KAFSCALE_FRONTDOOR_WORKERS": str(workers),
    }
    try:
        deployment.start_etcd()
        deployment.start_services(env)
        deployment.wait_ready()
        yield (
            deployment,
            [
                Listener(name, f"{HOST}:{port}", authority.ca if name == "SSL" else None)
                for name, port in ports.items()
            ],
        )
    finally:
        deployment.kill()


class Run:
    """Measures over any listener."""

    def __init__(self, deployment: Deployment, listeners: list[Listener], records: int) -> None:
        self._door = deployment.services["frontdoor"].process.pid
        self._records = records
        self._listeners = listeners
        admin = AdminClient({"bootstrap.servers": listeners[0].bootstrap})
        topics = [NewTopic(topic_of(one, count), count, 1) for one in listeners for count in PARTITIONS]
        for future in admin.create_topics(topics).values():
            future.result(60)
        self._written = {topic.topic: 0 for topic in topics}

    def produce(self, listener: Listener, partitions: int) -> Figure:
        topic, began_s = topic_of(listener, partitions), family_seconds(self._door)
        found = producer_performance(listener.bootstrap, topic, self._records, ca=listener.ca)
        self._written[topic] += self._records
        return Figure(
            found["mb_per_s"], (family_seconds(self._door) - began_s) * 1e3 / (self._records * RECORD_MB)
        )

    def consume(self, listener: Listener, partitions: int) -> Figure:
        """All that was written over this listener."""
        topic, began_s = topic_of(listener, partitions), family_seconds(self._door)
        records = self._written[topic]
        found = load("catchup", listener.bootstrap, topic, ca=listener.ca, records=records)
        return Figure(found["mb_per_s"], (family_seconds(self._door) - began_s) * 1e3 / (records * RECORD_MB))

    def compare(self, rounds: int) -> Iterator[str]:
        for name, take in (("produce", self.produce), ("consume", self.consume)):
            for partitions in PARTITIONS:
                found: dict[str, list[Figure]] = {one.name: [] for one in self._listeners}
                for _ in range(rounds):
                    for one in self._listeners:
                        found[one.name].append(take(one, partitions))
                yield line(f"{name}, {partitions} partitions", found["PLAINTEXT"], found["SSL"])


def topic_of(listener: Listener, partitions: int) -> str:
    return f"{listener.name.lower()}-{partitions}"


def line(what: str, plain: list[Figure], tls: list[Figure]) -> str:
    rates = [statistics.median(one.mb_per_s for one in each) for each in (plain, tls)]
    cpus = [statistics.median(one.cpu_ms for one in each) for each in (plain, tls)]
    return (
        f"{what:24}{rates[0]:12.1f}{rates[1]:10.1f}{rates[1] / rates[0]:8.0%}{cpus[0]:14.2f}{cpus[1]:11.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=500_000, help="of 1 KiB, in each measurement")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="kafscale-tls-") as folder,
        running(Path(folder), options.workers) as (deployment, listeners),
    ):
        run = Run(deployment, listeners, options.records)
        print(f"{'':24}{'plain MB/s':>12}{'TLS MB/s':>10}{'':8}{'plain ms/MB':>14}{'TLS ms/MB':>11}")
        for text in run.compare(options.rounds):
            print(text, flush=True)


if __name__ == "__main__":
    main()
