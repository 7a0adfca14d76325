"""librdkafka's transactional producer, which does what its standard input says; see e2e/clients/README.md.

The arguments are settings of the producer: NAME=VALUE.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

ANSWER_S = 60.0


def tell(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Scripted:
    def __init__(self, config: dict[str, str]) -> None:
        self._config = config
        self._producer = Producer(dict(config))
        self._sent: list[int | KafkaException] = []

    def obey(self, words: Sequence[str]) -> str:
        producer = self._producer
        match words:
            case ["init"]:
                producer.init_transactions(ANSWER_S)
            case ["begin"]:
                producer.begin_transaction()
            case ["send", topic, partition, value]:
                producer.produce(topic, value.encode(), partition=int(partition), on_delivery=self._delivered)
            case ["sent"]:
                return self._offsets()
            case ["offsets", group, topic, partition, offset]:
                reader = Consumer({"bootstrap.servers": self._config["bootstrap.servers"], "group.id": group})
                where = TopicPartition(topic, int(partition), int(offset))
                producer.send_offsets_to_transaction([where], reader.consumer_group_metadata(), ANSWER_S)
                reader.close()
            case ["commit"]:
                producer.commit_transaction(ANSWER_S)
            case ["abort"]:
                producer.abort_transaction(ANSWER_S)
            case _:
                raise ValueError(words)
        return ""

    def _delivered(self, error: object, message: Message) -> None:
        self._sent.append(KafkaException(error) if error else int(message.offset() or 0))

    def _offsets(self) -> str:
        left = self._producer.flush(ANSWER_S)
        if left:
            raise TimeoutError(f"{left} records are not acknowledged")
        sent, self._sent = self._sent, []
        for each in sent:
            if isinstance(each, KafkaException):
                raise each
        return " ".join(map(str, sent))


def main() -> None:
    scripted = Scripted(dict(each.split("=", 1) for each in sys.argv[1:]))
    for line in sys.stdin:
        try:
            tell("ok", scripted.obey(line.split()))
        except KafkaException as failed:
            error = failed.args[0]
            tell("error", error.name(), error.str())


if __name__ == "__main__":
    main()
