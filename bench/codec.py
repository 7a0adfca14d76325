"""CPU time of the wire codec, compared with kio and kafka-python on the same bytes.

    python bench/codec.py [--rounds 5] [--oracles]

Prints microseconds per message (process CPU, the median of the rounds) for reading and writing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from kafscale.wire.schema import api_versions, fetch, metadata, produce

TOPIC = "orders-{:04d}-eu-central"
CALLS_MAX = 20_000
ROUND_SECONDS = 0.15


class Case(NamedTuple):
    """A message in one version; `kind` is request or response."""

    name: str
    module: ModuleType
    kind: str
    version: int
    message: Any


def metadata_response(topics: int, partitions: int) -> metadata.MetadataResponse:
    return metadata.MetadataResponse(
        brokers=[
            metadata.MetadataResponseBroker(node_id=n, host=f"broker-{n}.example.org", port=9092)
            for n in range(3)
        ],
        cluster_id="abcdefghijklmnopqrstuv",
        controller_id=1,
        topics=[
            metadata.MetadataResponseTopic(
                name=TOPIC.format(t),
                topic_id=bytes(range(16)),
                partitions=[
                    metadata.MetadataResponsePartition(
                        partition_index=p,
                        leader_id=p % 3,
                        leader_epoch=7,
                        replica_nodes=[0, 1, 2],
                        isr_nodes=[0, 1, 2],
                    )
                    for p in range(partitions)
                ],
            )
            for t in range(topics)
        ],
    )


def metadata_request(topics: int) -> metadata.MetadataRequest:
    names = [metadata.MetadataRequestTopic(name=TOPIC.format(t)) for t in range(topics)]
    return metadata.MetadataRequest(topics=names, allow_auto_topic_creation=True)


def produce_request(partitions: int, size: int) -> produce.ProduceRequest:
    records = [produce.ProduceRequestPartition(index=p, records=bytes(size)) for p in range(partitions)]
    topic = produce.ProduceRequestTopic(name=TOPIC.format(1), partition_data=records)
    return produce.ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[topic])


def produce_response(partitions: int) -> produce.ProduceResponse:
    parts = [
        produce.ProduceResponsePartition(index=p, base_offset=10**6 + p, log_start_offset=5)
        for p in range(partitions)
    ]
    topic = produce.ProduceResponseTopic(name=TOPIC.format(1), partition_responses=parts)
    return produce.ProduceResponse(responses=[topic])


def fetch_request(partitions: int) -> fetch.FetchRequest:
    parts = [
        fetch.FetchRequestPartition(partition=p, fetch_offset=10**6, partition_max_bytes=1 << 20)
        for p in range(partitions)
    ]
    topic = fetch.FetchRequestTopic(topic_id=bytes(range(16)), partitions=parts)
    return fetch.FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])


def fetch_response(partitions: int, size: int) -> fetch.FetchResponse:
    parts = [
        fetch.FetchResponsePartition(
            partition_index=p,
            high_watermark=10**6,
            last_stable_offset=10**6,
            log_start_offset=0,
            records=bytes(size),
            aborted_transactions=None,
        )
        for p in range(partitions)
    ]
    return fetch.FetchResponse(
        responses=[fetch.FetchResponseTopic(topic_id=bytes(range(16)), partitions=parts)]
    )


def versions_response() -> api_versions.ApiVersionsResponse:
    keys = [
        api_versions.ApiVersionsResponseVersion(api_key=k, min_version=0, max_version=9) for k in range(60)
    ]
    return api_versions.ApiVersionsResponse(api_keys=keys)


def cases() -> list[Case]:
    return [
        Case("Metadata v12 response, 100 topics x 1", metadata, "response", 12, metadata_response(100, 1)),
        Case("Metadata v12 response, 100 topics x 6", metadata, "response", 12, metadata_response(100, 6)),
        Case("Metadata v12 request, 100 topics", metadata, "request", 12, metadata_request(100)),
        Case("Produce v9 request, 10 x 16 KB", produce, "request", 9, produce_request(10, 16384)),
        Case("Produce v9 request, 1 x 100 B", produce, "request", 9, produce_request(1, 100)),
        Case("Produce v9 response, 10", produce, "response", 9, produce_response(10)),
        Case("Produce v9 response, 1", produce, "response", 9, produce_response(1)),
        Case("Fetch v13 request, 10", fetch, "request", 13, fetch_request(10)),
        Case("Fetch v13 response, 10 x 100 KB", fetch, "response", 13, fetch_response(10, 102400)),
        Case("ApiVersions v4 response, 60 keys", api_versions, "response", 4, versions_response()),
    ]


def cpu_us(call: Callable[[], object], rounds: int) -> float:
    """Microseconds of process CPU per call, the median over rounds of about ROUND_SECONDS."""
    started = time.process_time()
    call()
    once = max(time.process_time() - started, 1e-6)
    calls = max(3, min(CALLS_MAX, int(ROUND_SECONDS / once)))
    results = []
    for _ in range(rounds):
        started = time.process_time()
        for _ in range(calls):
            call()
        results.append((time.process_time() - started) / calls * 1e6)
    return statistics.median(results)


def ours(case: Case, rounds: int) -> tuple[int, float, float]:
    encode = getattr(case.module, f"encode_{case.kind}")
    decode = getattr(case.module, f"decode_{case.kind}")
    data = b"".join(encode(case.message, case.version))
    read = cpu_us(lambda: decode(data, case.version), rounds)
    write = cpu_us(lambda: encode(case.message, case.version), rounds)
    return len(data), read, write


def kio(case: Case, rounds: int) -> tuple[float, float]:
    from io import BytesIO

    from kio.index import load_payload_module
    from kio.serial import entity_reader, entity_writer
    from kio.static.constants import EntityType

    if case.kind == "request":
        module = load_payload_module(case.module.API_KEY, case.version, EntityType.request)
    else:
        module = load_payload_module(case.module.API_KEY, case.version, EntityType.response)
    entity = getattr(module, case.module.NAME + case.kind.capitalize())
    reader, writer = entity_reader(entity), entity_writer(entity)
    data = b"".join(getattr(case.module, f"encode_{case.kind}")(case.message, case.version))
    value, _ = reader(data, 0)
    return cpu_us(lambda: reader(data, 0), rounds), cpu_us(lambda: writer(BytesIO(), value), rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--oracles", action="store_true", help="also measure kio")
    options = parser.parse_args()
    print(f"{'CPU us':40}{'bytes':>9}{'read':>9}{'write':>9}")
    for case in cases():
        size, read, write = ours(case, options.rounds)
        line = f"{case.name:40}{size:>9}{read:>9.1f}{write:>9.1f}"
        if options.oracles:
            kio_read, kio_write = kio(case, options.rounds)
            line += f"   kio {kio_read:>9.1f}{kio_write:>9.1f}"
        print(line)


if __name__ == "__main__":
    main()
