"""Reads topics on a real consumer, as a user's program does, so it shows what a client sees.

Without a group it assigns the partitions itself and commits nothing. With a group it is an ordinary member, and it
commits an offset only after the caller has taken the record: records may be printed twice, and none is left out.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import TopicDescription
from kafscale.client.admin_client import CLIENT_ID, Client, NoTopic, Refusal, trouble_of
from kafscale.client.json_lines import Record
from kafscale.client.topics import TopicPart, existing_topics, find_topics, of_topic, topic_names
from kafscale.operations.positions import Position, chosen, located

POLL_S: Final = 0.2
TOPIC_POLL_S: Final = 1.0
BATCH_RECORDS_MAX: Final = 500

Notify = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumePlan:
    """`topics` are names, or regular expressions if `by_pattern`. `partitions` None: all."""

    topics: tuple[str, ...]
    by_pattern: bool
    group: str | None
    partitions: frozenset[int] | None
    start: Position
    reset: str
    """Of a group: where it starts in partitions without a committed offset; earliest or latest."""
    until: Position | None
    stop_at_end: bool
    count_max: int | None
    isolation: str = "read_committed"

    @property
    def has_end(self) -> bool:
        return self.stop_at_end or self.until is not None


def consume(client: Client, plan: ConsumePlan, notify: Notify, hint: Notify) -> Iterator[list[Record]]:
    """Records in groups as they arrive, until the plan ends it. `notify` and `hint` get sentences for the user.

    Raises KafkaTrouble and PositionWrong.
    """
    topics = _awaited_topics(client, plan, notify)
    refused = Refusal(client.bootstrap)
    consumer = Consumer(
        {
            **client.settings(refused),
            "group.id": plan.group or CLIENT_ID,
            "enable.auto.commit": plan.group is not None,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": plan.reset,
            "isolation.level": plan.isolation,
        }
    )
    try:
        reading = _begin(client, consumer, plan, topics)
        yield from _batches(consumer, plan, reading, refused, hint)
    finally:
        consumer.close()


def _awaited_topics(client: Client, plan: ConsumePlan, notify: Notify) -> list[TopicDescription]:
    """If the plan has no end, topics that do not exist yet are awaited."""
    waits = False
    while True:
        try:
            return _topics(client, plan)
        except NoTopic as missing:
            if plan.has_end:
                raise
            if not waits:
                notify(f"{missing}. Waiting for it; Ctrl-C ends")
                waits = True
            time.sleep(TOPIC_POLL_S)


def _topics(client: Client, plan: ConsumePlan) -> list[TopicDescription]:
    if not plan.by_pattern:
        return find_topics(client, plan.topics)
    patterns = [re.compile(each) for each in plan.topics]
    names = [name for name in topic_names(client) if any(each.search(name) for each in patterns)]
    found = [topic for topic in existing_topics(client, names) if not topic.is_internal]
    if not found:
        raise NoTopic(f"no topic matches {' or '.join(plan.topics)}; `kafscale topics list` shows all")
    return found


@dataclass(slots=True)
class _Reading:
    """Partitions that are not read to their end yet. `given` is true once they are assigned."""

    ends: Mapping[TopicPart, int] = field(default_factory=dict)
    """Offsets at which the reading ends, for a plan with `until`."""
    given: bool = False
    left: set[TopicPart] = field(default_factory=set)

    def take(self, _consumer: Consumer, more: Iterable[TopicPartition]) -> None:
        self.given = True
        self.left |= {(part.topic, part.partition) for part in more}

    def lose(self, _consumer: Consumer, gone: Iterable[TopicPartition]) -> None:
        self.left -= {(part.topic, part.partition) for part in gone}

    @property
    def is_done(self) -> bool:
        return self.given and not self.left


def _begin(
    client: Client, consumer: Consumer, plan: ConsumePlan, topics: Iterable[TopicDescription]
) -> _Reading:
    if plan.group is not None:
        reading = _Reading()
        consumer.subscribe(
            [topic.name for topic in topics],
            on_assign=reading.take,
            on_revoke=reading.lose,
            on_lost=reading.lose,
        )
        return reading
    places = [
        (topic.name, number)
        for topic in topics
        for number in chosen(topic.name, (part.id for part in topic.partitions), plan.partitions)
    ]
    starts = {place: log.at for place, log in located(client, places, plan.start).items()}
    reading = _Reading()
    if plan.until is not None:
        reading.ends = {place: log.at for place, log in located(client, places, plan.until).items()}
        starts = {place: at for place, at in starts.items() if at < reading.ends[place]}
    assignment = [TopicPartition(topic, number, at) for (topic, number), at in starts.items()]
    consumer.assign(assignment)
    reading.take(consumer, assignment)
    return reading


def _batches(
    consumer: Consumer, plan: ConsumePlan, reading: _Reading, refused: Refusal, hint: Notify
) -> Iterator[list[Record]]:
    left = plan.count_max if plan.count_max is not None else sys.maxsize
    hinted = plan.has_end
    while left > 0 and not (plan.has_end and reading.is_done):
        batch = _batch(consumer, reading, min(left, BATCH_RECORDS_MAX))
        if not batch:
            refused.check()
            if reading.given and not hinted:
                hint("waiting for records; Ctrl-C ends")
                hinted = True
            continue
        left -= len(batch)
        yield [record_of(message) for message in batch]
        if plan.group is not None:
            for message in batch:
                consumer.store_offsets(message=message)


def _batch(consumer: Consumer, reading: _Reading, count_max: int) -> list[Message[Any, Any]]:
    """What is there already, or the first record that comes within POLL_S."""
    batch: list[Message[Any, Any]] = []
    message = consumer.poll(POLL_S)
    while message is not None:
        if _is_wanted(consumer, reading, message):
            batch.append(message)
        if len(batch) >= count_max:
            break
        message = consumer.poll(0)
    return batch


def _is_wanted(consumer: Consumer, reading: _Reading, message: Message[Any, Any]) -> bool:
    """Raises KafkaTrouble for an error after which no record comes."""
    place = (message.topic() or "", message.partition() or 0)
    error = message.error()
    if error is not None:
        if error.code() == KafkaError._PARTITION_EOF:
            reading.left.discard(place)
        elif not error.retriable():
            raise trouble_of(of_topic(place[0]) if place[0] else "the server", error)
        return False
    end, offset = reading.ends.get(place, sys.maxsize), message.offset() or 0
    if offset + 1 >= end and place in reading.left:
        reading.left.discard(place)
        consumer.pause([TopicPartition(*place)])  # so that the rest is not fetched
    return offset < end


def record_of(message: Message[Any, Any]) -> Record:
    time_ms = message.timestamp()[1]
    headers: Any = message.headers() or ()  # a list of pairs
    return Record(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=time_ms if time_ms >= 0 else None,
        key=message.key(),
        value=message.value(),
        headers=tuple((name, _raw(value)) for name, value in headers),
    )


def _raw(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
