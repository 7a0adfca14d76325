"""The pictures of the README and of docs/console.md: `CONSOLE_PICTURES=docs pytest …/console/test_picture.py`.

It is skipped without the variable. Look at the pictures before you commit them.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import expect

from e2e.harness.cluster import Cluster
from e2e.harness.console_page import PICTURES, Visitor
from e2e.harness.secured import done

HOUR_MS = 3_600_000
DAY = {"retention.ms": str(24 * HOUR_MS)}
TOPICS = {"orders": 6, "payments": 3, "shipments": 3, "clicks": 12, "inventory": 2}
RECORDS = 3_000
SINCE_MS = 23 * HOUR_MS
YESTERDAY_MS = SINCE_MS + HOUR_MS // 4
"""Retention deletes such a record in three quarters of an hour."""
BEHIND = {
    "billing": ("orders", 1.0),
    "bookkeeping": ("payments", 0.8),
    "mailing": ("orders", 0.4),
    "search": ("clicks", 0.9),
    "tracking": ("shipments", 0.2),
}
"""Which topic a group reads, and what share of it has been read."""
GONE = 0.25
"""The share of each partition of shipments that is deleted."""
PAUSE_S = 1.0

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(PICTURES not in os.environ, reason=f"{PICTURES} names no folder"),
]


@pytest.fixture(scope="module", autouse=True)
def shop(cluster: Cluster) -> None:
    """A day of a shop."""
    servers: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.bootstrap}
    admin = AdminClient(servers)
    done(admin.create_topics([NewTopic(name, each, config=DAY) for name, each in TOPICS.items()]))
    producer, chance, now_ms = Producer(servers), Random(7), round(time.time() * 1000)
    for number in range(RECORDS):
        at_ms = now_ms - SINCE_MS + number * SINCE_MS // RECORDS
        customer = f"c-{chance.randrange(400):03}"
        for topic, more in (
            ("orders", {"order": f"A-{10_000 + number}", "total": chance.randrange(500, 20_000) / 100}),
            ("clicks", {"page": chance.choice(["/", "/cart", "/checkout", "/shoes/41"])}),
        ):
            value = json.dumps({**more, "customer": customer, "country": chance.choice(["DE", "FR", "PL"])})
            producer.produce(topic, value, customer, timestamp=at_ms)
            producer.poll(0)
    for number in range(RECORDS // 10):
        for topic, at_ms in (("payments", now_ms - YESTERDAY_MS), ("shipments", now_ms - SINCE_MS)):
            producer.produce(topic, json.dumps({"order": f"A-{10_000 + number}"}), timestamp=at_ms + number)
    assert producer.flush(60) == 0
    for group, (topic, share) in BEHIND.items():
        consumer = Consumer({**servers, "group.id": group})
        places = [TopicPartition(topic, number) for number in range(TOPICS[topic])]
        ends = [consumer.get_watermark_offsets(place)[1] for place in places]
        for place, end in zip(places, ends, strict=True):
            place.offset = round(end * share)
        consumer.commit(offsets=places, asynchronous=False)
        if topic == "shipments":
            gone = zip(places, ends, strict=True)
            done(
                admin.delete_records(
                    [TopicPartition(topic, place.partition, round(end * GONE)) for place, end in gone]
                )
            )
        consumer.close()


@contextmanager
def visitors(cluster: Cluster) -> Iterator[None]:
    """Somebody clicks all the time, so that requests cost something."""
    producer, closed = Producer({"bootstrap.servers": cluster.bootstrap}), threading.Event()

    def click() -> None:
        while not closed.wait(PAUSE_S):
            producer.produce("clicks", json.dumps({"page": "/", "customer": "c-001", "country": "DE"}))
            producer.poll(0)
        assert producer.flush(60) == 0

    clicking = threading.Thread(target=click)
    clicking.start()
    try:
        yield
    finally:
        closed.set()
        clicking.join()


def test_the_overview(visitor: Visitor, cluster: Cluster) -> None:
    with visitors(cluster):
        visitor.go("/")
        for tile in (re.compile("Serving 6 of 6"), re.compile(r"Requests cost \$[\d.]*[1-9]")):
            expect(visitor.page.get_by_role("link", name=tile)).to_be_visible()
        expect(visitor.page.get_by_text(re.compile("the first in .*, 1 has lost records"))).to_be_visible()
        visitor.picture("console-overview", height=500)


def test_the_records(visitor: Visitor) -> None:
    visitor.go("/topics/orders")
    visitor.page.locator("tbody button.open").nth(1).click()
    visitor.picture("console", height=780)


def test_the_groups(visitor: Visitor) -> None:
    visitor.go("/groups")
    expect(visitor.page.get_by_role("link", name="mailing")).to_be_visible()
    expect(visitor.page.get_by_text("Reading how far")).to_have_count(0)
    names = [cells[1] for cells in visitor.cells()]
    assert names[:2] == ["tracking", "bookkeeping"]
    visitor.picture("console-groups", height=440)
