"""Avro with Confluent's serializers and a schema registry. Each command prints one JSON value.

register URL COUNT FILE              registers subjects 0, 1, 2 ...; appends `subject id` to FILE for each answer
schemas URL                          {subject: [[version, id, the schema that this id has], ...]}
limit URL LEVEL                      sets the compatibility level of all subjects
produce BOOTSTRAP URL TOPIC VERSION FIRST COUNT    writes orders; null, or the registry's status if it refuses
consume BOOTSTRAP URL TOPIC COUNT    reads orders as version 2, from the first, in the order of their numbers
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

TIMEOUT_S = 60.0
NUMBER = {"name": "number", "type": "int"}
CURRENCY = {"name": "currency", "type": "string", "default": "EUR"}
REGION = {"name": "region", "type": "string"}  # without a default, older orders cannot be read
VERSIONS = {1: [NUMBER], 2: [NUMBER, CURRENCY], 3: [NUMBER, CURRENCY, REGION]}
VALUES = {1: {}, 2: {"currency": "CHF"}, 3: {"currency": "CHF", "region": "north"}}


def record(name: str, fields: list[dict[str, str]]) -> str:
    return json.dumps({"type": "record", "name": name, "fields": fields})


def registry(url: str) -> SchemaRegistryClient:
    retries = {"max.retries": 20, "retries.wait.ms": 100, "retries.max.wait.ms": 1_000}
    return SchemaRegistryClient({"url": url, "timeout": TIMEOUT_S, **retries})


def register(url: str, count: str, path: str) -> None:
    client = registry(url)
    with Path(path).open("a", buffering=1) as acknowledged:
        for number in range(int(count)):
            schema = Schema(record(f"Subject{number}", [NUMBER]), "AVRO")
            answer = client.register_schema(f"subject-{number}", schema)
            acknowledged.write(f"subject-{number} {answer}\n")


def schemas(url: str) -> dict[str, list[tuple[int, int, Any]]]:
    client = registry(url)
    found = {}
    for subject in client.get_subjects():
        versions = [client.get_version(subject, version) for version in client.get_versions(subject)]
        found[subject] = [
            (each.version, each.schema_id, json.loads(client.get_schema(each.schema_id).schema_str))
            for each in versions
        ]
    return found


def limit(url: str, level: str) -> Any:
    return registry(url).set_compatibility(level=level)


def produce(bootstrap: str, url: str, topic: str, version: str, first: str, count: str) -> int | None:
    serialize = AvroSerializer(registry(url), record("Order", VERSIONS[int(version)]))
    context = SerializationContext(topic, MessageField.VALUE)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    errors: list[str] = []
    for number in range(int(first), int(first) + int(count)):
        try:
            value = serialize({"number": number, **VALUES[int(version)]}, context)
        except SchemaRegistryError as error:
            return error.http_status_code
        producer.produce(
            topic, value, on_delivery=lambda error, _: errors.append(str(error)) if error else None
        )
    assert (producer.flush(TIMEOUT_S), errors) == (0, [])
    return None


def consume(bootstrap: str, url: str, topic: str, count: str) -> list[dict[str, Any]]:
    deserialize = AvroDeserializer(registry(url), record("Order", VERSIONS[2]))
    context = SerializationContext(topic, MessageField.VALUE)
    settings = {"group.id": f"orders-{uuid.uuid4()}", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe([topic])
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + TIMEOUT_S
    try:
        while len(found) < int(count):
            message = consumer.poll(deadline - time.monotonic())
            assert message is not None, f"{len(found)} of {count} orders within {TIMEOUT_S} s"
            assert message.error() is None, message.error()
            found.append(deserialize(message.value(), context))
    finally:
        consumer.close()
    return sorted(found, key=lambda order: order["number"])


COMMANDS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (register, schemas, limit, produce, consume)
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(COMMANDS[sys.argv[1]](*sys.argv[2:])))
