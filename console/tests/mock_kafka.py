"""A Kafka in this process, which librdkafka brings along. It has no controller and no authorizer, so what AdminClient
asks a controller is answered from Metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from kafscale.client import topics
from kafscale.client.admin_client import ANSWER_TIMEOUT_S, Client

PARTITIONS = 4
"""Of a topic that the first record makes."""


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    server = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "replaced:1", "log_level": 0})
    (broker,) = server.list_topics(timeout=ANSWER_TIMEOUT_S).brokers.values()
    monkeypatch.setattr(Client, "_connect", lambda _: None)
    monkeypatch.setattr(topics, "_describing", _described)
    yield Client(f"{broker.host}:{broker.port}")
    server.purge()


def _described(client: Client, names: Iterable[str]) -> dict[str, Future[Any]]:
    there = client.admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics
    found: dict[str, Future[Any]] = {}
    for name in names:
        found[name] = Future()
        if name in there:
            parts = [SimpleNamespace(id=number) for number in there[name].partitions]
            found[name].set_result(SimpleNamespace(name=name, partitions=parts))
        else:
            found[name].set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    return found


def written(client: Client, topic: str, count: int, *, first: int = 0, bytes_each: int = 0) -> None:
    """Record n has the key n, the time of n seconds after 1970, and is in partition n % PARTITIONS."""
    producer = Producer({"bootstrap.servers": client.bootstrap})
    for number in range(first, first + count):
        place = number % PARTITIONS
        producer.produce(topic, b"v" * bytes_each, str(number), place, timestamp=(number + 1) * 1_000)
        producer.poll(0)
    assert producer.flush(ANSWER_TIMEOUT_S) == 0
