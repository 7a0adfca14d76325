"""A Kafka in this process, which librdkafka brings along. Topics come into being with the first record.

It has no controller, so what AdminClient asks a controller is answered here from Metadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from kafscale.client import topics
from kafscale.client.admin_client import ANSWER_TIMEOUT_S, Client

PARTITIONS = 4
"""Of each topic."""


@contextmanager
def mock_broker(monkeypatch: pytest.MonkeyPatch, *, answers_after_ms: int = 0) -> Iterator[str]:
    """host:port, for a `Client`."""
    mock = {"test.mock.num.brokers": 1, "test.mock.broker.rtt": answers_after_ms}
    server = Producer({**mock, "bootstrap.servers": "replaced:1", "log_level": 0})
    (broker,) = server.list_topics(timeout=ANSWER_TIMEOUT_S).brokers.values()
    monkeypatch.setattr(Client, "_connect", lambda _: [(broker.host, broker.port)])
    monkeypatch.setattr(topics, "_describing", _described)
    yield f"{broker.host}:{broker.port}"
    server.purge()


def _described(client: Client, names: Iterable[str]) -> dict[str, Future[Any]]:
    there = client.admin.list_topics(timeout=ANSWER_TIMEOUT_S).topics
    found: dict[str, Future[Any]] = {}
    for name in names:
        found[name] = Future()
        if name in there:
            parts = [SimpleNamespace(id=number) for number in there[name].partitions]
            internal = name.startswith("__")
            found[name].set_result(SimpleNamespace(name=name, partitions=parts, is_internal=internal))
        else:
            found[name].set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
    return found
