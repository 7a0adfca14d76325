"""Writes one record with Confluent's serializers of each kind, key and value: `on_schemas.py BOOTSTRAP URL FOLDER`.

The topics are `seen-avro`, `seen-protobuf` and `seen-json`. FOLDER has the Python modules of `proto/`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

TIMEOUT_S = 60.0
EXACT = 9_007_199_254_740_993  # 2^53 + 1
NUMBER = json.dumps({"type": "record", "name": "Number", "fields": [{"name": "id", "type": "long"}]})
OBJECT = json.dumps({"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}})


def main(bootstrap: str, url: str, folder: str) -> None:
    sys.path.insert(0, folder)
    from order_pb2 import Order
    from people.person_pb2 import Person

    client = SchemaRegistryClient({"url": url, "timeout": TIMEOUT_S})
    current = {"use.deprecated.format": False}
    order = Order(id=EXACT, buyer={"name": "Ada"}, lines=[{"sku": "a"}])
    order.at.FromMilliseconds(1)
    written: dict[str, tuple[tuple[Any, Any], tuple[Any, Any]]] = {
        "avro": (
            (AvroSerializer(client, NUMBER), {"id": 1}),
            (AvroSerializer(client, NUMBER), {"id": EXACT}),
        ),
        "protobuf": (
            (ProtobufSerializer(Person, client, current), Person(name="Ada")),
            (ProtobufSerializer(Order, client, current), order),
        ),
        "json": (
            (JSONSerializer(OBJECT, client), {"id": 1}),
            (JSONSerializer(OBJECT, client), {"id": EXACT}),
        ),
    }
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    errors: list[str] = []
    for kind, ((key_of, key), (value_of, value)) in written.items():
        topic = f"seen-{kind}"
        producer.produce(
            topic,
            value_of(value, SerializationContext(topic, MessageField.VALUE)),
            key_of(key, SerializationContext(topic, MessageField.KEY)),
            on_delivery=lambda error, _: errors.append(str(error)) if error else None,
        )
    assert (producer.flush(TIMEOUT_S), errors) == (0, [])


if __name__ == "__main__":
    main(*sys.argv[1:])
