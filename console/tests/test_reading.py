"""Pages, one record, tails and sent records at a Kafka (librdkafka's, in this process)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Producer
from kafscale.client.admin_client import ANSWER_TIMEOUT_S, Client, KafkaTrouble
from kafscale.client.json_lines import Record
from kafscale.console.answers import Problem
from kafscale.console.records import page as module
from kafscale.console.records.merge import Walk
from kafscale.console.records.page import Ask, Page, page_of_records, single_record
from kafscale.console.records.reading import Budget
from kafscale.console.records.sending import send
from kafscale.console.records.tail import RECORDS_PER_S, follow
from kafscale.testkit.mock_kafka import PARTITIONS, mock_broker

NEWEST = Ask(topic="orders", partition=None, walk=Walk.OLDER, limit=50, committed=True)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    with mock_broker(monkeypatch) as bootstrap:
        yield Client(bootstrap)


def written(client: Client, topic: str, count: int, *, first: int = 0, bytes_each: int = 0) -> None:
    """Record n has the key n, the time of n seconds after 1970, and is in partition n % PARTITIONS."""
    producer = Producer({"bootstrap.servers": client.bootstrap})
    for number in range(first, first + count):
        place = number % PARTITIONS
        producer.produce(topic, b"v" * bytes_each, str(number), place, timestamp=(number + 1) * 1_000)
        producer.poll(0)
    assert producer.flush(ANSWER_TIMEOUT_S) == 0


def keys(page: Page) -> list[int]:
    return [int(record.key or b"-1") for record in page.records]


def test_pages_go_from_the_newest_to_the_oldest_over_all_partitions(kafka: Client) -> None:
    written(kafka, "orders", 130)
    first = page_of_records(kafka, NEWEST)
    assert keys(first) == list(range(129, 79, -1))
    second = page_of_records(kafka, replace(NEWEST, cut=first.end))
    third = page_of_records(kafka, replace(NEWEST, cut=second.end))
    assert keys(second) + keys(third) == list(range(79, -1, -1))
    assert third.end == dict.fromkeys(range(PARTITIONS), 0)
    back = page_of_records(kafka, replace(NEWEST, cut=second.end, walk=Walk.NEWER))
    assert sorted(keys(back)) == sorted(keys(second))


def test_a_page_of_one_partition_begins_at_an_offset(kafka: Client) -> None:
    written(kafka, "orders", 40)
    page = page_of_records(kafka, replace(NEWEST, partition=1, walk=Walk.NEWER, offset=7))
    assert [(record.partition, record.offset) for record in page.records] == [(1, 7), (1, 8), (1, 9)]


def test_large_records_end_a_page_early_and_it_says_so(
    kafka: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R4. What was read is shown, and the next page goes on from there."""
    monkeypatch.setattr(module, "Budget", lambda: Budget(bytes_left=40_000))
    written(kafka, "orders", 40, bytes_each=5_000)
    asked = replace(NEWEST, partition=0, walk=Walk.NEWER)
    page = page_of_records(kafka, asked)
    assert (page.stopped, keys(page)) == ("bytes", [0, 4, 8, 12, 16, 20, 24, 28])
    rest = page_of_records(kafka, replace(asked, cut=page.end))
    assert keys(rest) == [32, 36]


def test_a_partition_or_topic_that_is_not_there_is_a_sentence(kafka: Client) -> None:
    written(kafka, "orders", 1)
    with pytest.raises(Problem, match="topic 'orders' has no partition 9; it has 4") as missing:
        page_of_records(kafka, replace(NEWEST, partition=9))
    assert missing.value.status == 404
    with pytest.raises(KafkaTrouble, match="does not exist"):
        page_of_records(kafka, replace(NEWEST, topic="none"))


def test_one_record_has_its_neighbours_and_a_missing_one_the_reason(kafka: Client) -> None:
    written(kafka, "orders", 12)
    middle = single_record(kafka, "orders", 2, 1, committed=True)
    assert middle.record is not None
    assert (middle.record.key, middle.previous, middle.next) == (b"6", 0, 2)
    last = single_record(kafka, "orders", 2, 2, committed=True)
    assert (last.previous, last.next) == (1, None)
    none = single_record(kafka, "orders", 2, 3, committed=True)
    assert (none.record, none.previous) == (None, 2)
    assert "the partition ends before offset 3" in (none.missing or "")


def test_a_tail_shows_or_counts_every_record_of_a_burst(kafka: Client) -> None:
    """R6."""
    written(kafka, "orders", 4)
    stop = threading.Event()
    begin = dict.fromkeys(range(PARTITIONS), 1)
    turns = follow(kafka, "orders", begin, committed=True, stop=stop)
    next(turns)
    written(kafka, "orders", 5_000, first=4)
    shown = counted = 0
    for turn in turns:
        assert len(turn.records) <= RECORDS_PER_S
        shown, counted = shown + len(turn.records), counted + turn.not_shown
        if shown + counted >= 5_000:
            stop.set()
    assert shown + counted == 5_000
    assert shown >= RECORDS_PER_S
    assert turn.at == dict.fromkeys(range(PARTITIONS), 1_251)


def test_a_sent_record_is_read_as_it_was_given(kafka: Client) -> None:
    written(kafka, "orders", 4)
    record = Record(partition=3, key=b"\xff", value=None, headers=(("a", b"1"), ("a", None)))
    assert send(kafka, "orders", record) == (3, 1)
    found = single_record(kafka, "orders", 3, 1, committed=True).record
    assert found is not None
    assert (found.key, found.value, found.headers) == (record.key, record.value, record.headers)


def test_a_partition_that_is_not_there_is_refused_before_anything_is_sent(kafka: Client) -> None:
    written(kafka, "orders", 4)
    with pytest.raises(Problem, match="has no partition 4"):
        send(kafka, "orders", Record(partition=4, value=b"x"))
    assert len(page_of_records(kafka, NEWEST).records) == 4
