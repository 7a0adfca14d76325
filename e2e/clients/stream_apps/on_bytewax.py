"""bytewax: reads BOOTSTRAP, FROM and TO of the environment; `python -m bytewax.run on_bytewax` starts it.

Copies each record with `done:` before its value, at least once. It commits no offsets: it keeps them in its recovery
store, and so it uses no group.
"""

from __future__ import annotations

import os

from bytewax import operators as op
from bytewax.connectors.kafka import KafkaSinkMessage, KafkaSourceMessage
from bytewax.connectors.kafka import operators as kafka
from bytewax.dataflow import Dataflow
from confluent_kafka import OFFSET_BEGINNING


def done(message: KafkaSourceMessage) -> KafkaSinkMessage:
    return KafkaSinkMessage(message.key, b"done:" + message.value)


brokers = [os.environ["BOOTSTRAP"]]
flow = Dataflow("copy")
read = kafka.input(
    "read", flow, brokers=brokers, topics=[os.environ["FROM"]], starting_offset=OFFSET_BEGINNING
)
kafka.output("write", op.map("map", read.oks, done), brokers=brokers, topic=os.environ["TO"])
