"""Creates and configures the tutorial's topics like any Kafka client.

python docs/tutorial/topics.py create orders 6 retention.ms=2592000000
python docs/tutorial/topics.py set orders retention.ms=604800000
"""

from __future__ import annotations

import os
import sys

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from confluent_kafka.cimpl import NewTopic

BOOTSTRAP = os.environ.get("KAFSCALE_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
ANSWER_S = 30.0


def create(admin: AdminClient, topic: str, partitions: int, configs: dict[str, str]) -> None:
    admin.create_topics([NewTopic(topic, partitions, config=configs)])[topic].result(ANSWER_S)


def change(admin: AdminClient, topic: str, configs: dict[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(ANSWER_S)


def main(words: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    configs = dict(word.split("=", 1) for word in words if "=" in word)
    match [word for word in words if "=" not in word]:
        case ["create", topic, partitions]:
            create(admin, topic, int(partitions), configs)
        case ["set", topic]:
            change(admin, topic, configs)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
