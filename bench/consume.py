"""`python -m bench.consume`: what one consumer gets, and what it costs the front door and the fetch service.

Each system has the same records in 12 partitions, and the readers take turns: a bare socket, franz-go with several
fetch sizes, and Apache Kafka's ConsumerPerformance. `--against 1a2b3c4` adds KafScale as of that commit, read in turns
with this one (A B A B), so that a busy machine hurts both. CPU is by process; other work changes it less than rates.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from kafscale.wire.schema import fetch

from bench.lines import create
from bench.spent import spent
from bench.systems import KafScale, system_named
from bench.tools import RECORD_BYTES, consumer_performance, load, producer_performance
from e2e.harness.raw import Raw

TOPIC = "read"
PARTITIONS = 12
FETCH_VERSION = 11
PROCESSES = ("frontdoor", "fetch")
Reader = Callable[[str, int], dict[str, float]]


def franz_go(fetch_mib: int, partition_mib: int) -> Reader:
    """`fetch.max.bytes` and `max.partition.fetch.bytes` in MiB."""
    fetch_max, partition_max = fetch_mib << 20, partition_mib << 20
    return lambda bootstrap, records: load(
        "catchup", bootstrap, TOPIC, records=records, fetch_max=fetch_max, partition_max=partition_max
    )


def java(partition_mib: int) -> Reader:
    """`max.partition.fetch.bytes` in MiB; `fetch.max.bytes` is the default of 50."""
    return lambda bootstrap, records: consumer_performance(
        bootstrap, TOPIC, records, partition_bytes=partition_mib << 20
    )


def raw(fetch_mib: int) -> Reader:
    """A socket that asks for the start of the topic again and again, and looks at no record."""
    part_bytes = (fetch_mib << 20) // PARTITIONS
    parts = [
        fetch.FetchRequestPartition(partition=number, partition_max_bytes=part_bytes)
        for number in range(PARTITIONS)
    ]
    topics = [fetch.FetchRequestTopic(topic=TOPIC, partitions=parts)]
    message = fetch.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=fetch_mib << 20, topics=topics)
    body = fetch.encode_request(message, FETCH_VERSION)

    def read(bootstrap: str, records: int) -> dict[str, float]:
        buffer, got, begin = bytearray(1 << 20), 0, time.monotonic()
        with Raw.to(bootstrap) as client:
            while got < records * RECORD_BYTES:
                client.request(fetch.API_KEY, FETCH_VERSION, body)
                left = size = int.from_bytes(client.socket.recv(4, socket.MSG_WAITALL), "big")
                while left:
                    left -= client.socket.recv_into(buffer, min(left, len(buffer)))
                got += size
        return {"per_s": got / RECORD_BYTES / (time.monotonic() - begin)}

    return read


READERS: Mapping[str, Reader] = {
    "raw-16": raw(16),
    "go-50": franz_go(50, 4),
    "go-8": franz_go(8, 4),
    "java-1": java(1),
    "java-4": java(4),
}
"""The client and how many MiB it asks for: raw and franz-go in all, Java of a partition (its default: 1)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", help="a commit of this repository")
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS), help="which of them")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--records", type=int, default=300_000)
    options = parser.parse_args()
    names = ["kafscale-dir", *([f"kafscale-dir@{options.against}"] if options.against else [])]
    with tempfile.TemporaryDirectory(prefix="kafscale-consume-") as folder:
        systems: dict[str, KafScale] = {}
        try:
            for number, name in enumerate(names):
                system = system_named(name, Path(folder) / str(number))
                assert isinstance(system, KafScale), name
                systems[name] = system
                system.start()
                create(system, TOPIC, PARTITIONS)
                producer_performance(system.bootstrap, TOPIC, options.records)
            for reader in options.readers:
                compare(systems, reader, options.records, options.rounds)
        finally:
            for system in systems.values():
                system.stop()


def compare(systems: Mapping[str, KafScale], reader: str, records: int, rounds: int) -> None:
    """Prints a row for each system: medians, and the lowest and the highest rate."""
    megabytes = records * RECORD_BYTES / 1e6
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in systems}
    for round_ in range(1 + rounds):  # the first one warms up
        for name, system in systems.items():
            result, cost = spent(system, partial(READERS[reader], system.bootstrap, records))
            if round_:
                costs = (cost.parts[role] / megabytes * 1e3 for role in PROCESSES)
                found[name].append((result["per_s"], *costs))
    for name, figures in found.items():
        rate, *medians = (statistics.median(column) for column in zip(*figures, strict=True))
        spread = f"{min(figures)[0]:,.0f} to {max(figures)[0]:,.0f}"
        by_role = ", ".join(f"{role} {one:.2f}" for role, one in zip(PROCESSES, medians, strict=True))
        print(f"{reader}, {name}: {rate:,.0f} records/s ({spread}); ms/MB: {by_role}", flush=True)


if __name__ == "__main__":
    main()
