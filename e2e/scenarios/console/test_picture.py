"""The pictures of the README and of docs/console.md: `CONSOLE_PICTURES=docs pytest …/console/test_picture.py`.

It is skipped without the variable. Look at the pictures before you commit them.
"""

from __future__ import annotations

import json
import os
import time
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
BEHIND = {"billing": ("orders", 0.999), "mailing": ("orders", 0.01), "search": ("clicks", 0.9)}
"""Which topic a group reads, and what share of it has been read."""

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
    assert producer.flush(60) == 0
    for group, (topic, share) in BEHIND.items():
        consumer = Consumer({**servers, "group.id": group})
        places = [TopicPartition(topic, number) for number in range(TOPICS[topic])]
        ends = [consumer.get_watermark_offsets(place)[1] for place in places]
        for place, end in zip(places, ends, strict=True):
            place.offset = round(end * share)
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()


def test_the_overview(visitor: Visitor) -> None:
    visitor.go("/")
    for tile in ("Serving 6 of 6", "Requests cost $"):
        expect(visitor.page.get_by_role("link", name=tile)).to_be_visible()
    expect(visitor.page.get_by_text("Reading how far")).to_have_count(0)
    visitor.picture("console-overview")


def test_the_records(visitor: Visitor) -> None:
    visitor.go("/topics/orders")
    visitor.page.locator("tbody button.open").nth(1).click()
    visitor.picture("console")


def test_the_groups(visitor: Visitor) -> None:
    visitor.go("/groups")
    expect(visitor.page.get_by_role("link", name="mailing")).to_be_visible()
    expect(visitor.page.get_by_text("Reading how far")).to_have_count(0)
    visitor.picture("console-groups")
