"""The console's groups in a browser, over a real cluster: the list by risk, one group, its reset, its deletion.

Law G1: what the preview of a reset shows is what is sent and read back; if the group moved meanwhile, nothing is sent.
"""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import expect

from e2e.harness.cluster import Cluster
from e2e.harness.console_page import Visitor
from e2e.harness.secured import done

EACH, READ, GONE = 100, 60, 70
AGE_MS = 3 * 3_600_000
HOSTILE = "<b>bold</b> & co"

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def groups(cluster: Cluster) -> None:
    """billing has committed in one of two partitions; late's records were deleted before it read them."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    done(admin.create_topics([NewTopic("orders", 2), NewTopic("events", 1)]))
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    first_ms = int(time.time() * 1000) - AGE_MS
    for number in range(EACH):
        for topic, partition in (("orders", 0), ("orders", 1), ("events", 0)):
            producer.produce(topic, b"x" * 50, partition=partition, timestamp=first_ms + number)
    assert producer.flush(60) == 0
    commit(cluster, "billing", ("orders", 0, READ))
    commit(cluster, HOSTILE, ("orders", 0, EACH), ("orders", 1, EACH))
    commit(cluster, "late", ("events", 0, READ))
    done(admin.delete_records([TopicPartition("events", 0, GONE)]))


def commit(cluster: Cluster, group: str, *offsets: tuple[str, int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(*each) for each in offsets], asynchronous=False)
    consumer.close()


def committed(cluster: Cluster, group: str) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(part.topic, part.partition): part.offset for part in found.result().topic_partitions or ()}


def test_the_groups_that_lost_records_come_first_and_a_group_says_what_nobody_knows(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/groups")
    expect(page.get_by_text("lost 10")).to_be_visible()
    rows = visitor.cells()
    assert [row[1] for row in rows][0] == "late"
    assert {row[1]: row[2] for row in rows} == {"late": "30", "billing": "140", HOSTILE: "0"}
    behind = next(row for row in rows if row[1] == "billing")
    assert behind[3].startswith("3 h")
    assert "orders" in behind[8]
    visitor.inspect("groups")
    page.get_by_role("button", name="lost 1").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    assert page.url.endswith("/groups?show=lost")
    page.get_by_role("button", name="lost 1").click()
    page.get_by_role("link", name="billing").click()
    expect(page.get_by_text("has committed no offset in 1 of 2 partitions (orders/1)")).to_be_visible()
    expect(page.get_by_text("100 records are stored there")).to_be_visible()
    visitor.inspect("group")


def test_a_reset_does_what_its_preview_showed(visitor: Visitor, cluster: Cluster) -> None:
    page = visitor.page
    visitor.go("/groups/billing/reset")
    page.get_by_label("some records back or forwards").check()
    page.get_by_label("Records; below zero is back").fill("-15")
    page.get_by_role("button", name="Preview").click()
    assert visitor.cells() == [["orders/0", "60", "45", "reads 15 again", "0 to 100", ""]]
    page.get_by_text("The same as a command").click()
    expect(page.locator("pre")).to_have_text("kafscale groups reset-offsets billing -t orders -p 0 --to 45")
    commit(cluster, "billing", ("orders", 0, READ + 1))
    visitor.expected.add("409")
    page.get_by_role("button", name="Reset 1 partition").click()
    expect(page.get_by_role("alert")).to_contain_text("the group moved since the preview")
    assert committed(cluster, "billing") == {("orders", 0): READ + 1}
    page.get_by_label("exact offsets").check()
    page.get_by_label("topic,partition,offset").fill("orders,0,7\norders,1,5000\n")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("5,000 is outside of the log")).to_be_visible()
    assert [row[:4] for row in visitor.cells()] == [
        ["orders/0", "61", "7", "reads 54 again"],
        ["orders/1", "–", "100", "gets its first offset"],
    ]
    visitor.inspect("reset")
    page.get_by_role("button", name="Reset 2 partitions").click()
    expect(page.get_by_role("heading", name="2 partitions were reset")).to_be_visible()
    assert [row[1:] for row in visitor.cells()] == [["7", "7", "equal"], ["100", "100", "equal"]]
    assert committed(cluster, "billing") == {("orders", 0): 7, ("orders", 1): 100}


def test_offsets_and_groups_are_deleted_and_a_group_with_members_is_not(
    visitor: Visitor, cluster: Cluster
) -> None:
    page = visitor.page
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "late"})
    consumer.subscribe(["events"])
    while not consumer.assignment():
        consumer.poll(0.2)
    try:
        visitor.go("/groups/late")
        expect(page.get_by_role("button", name="Delete group…")).to_be_disabled()
        visitor.go("/groups/late/reset")
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_text("The group has members")).to_be_visible()
        expect(page.get_by_role("button", name="Reset 1 partition")).to_be_disabled()
    finally:
        consumer.close()
    visitor.go("/groups/late")
    page.get_by_role("button", name="Delete offsets…").click()
    visitor.inspect("delete-offsets")
    page.get_by_role("button", name="Delete 1 offsets").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert committed(cluster, "late") == {}
    visitor.go("/groups/%3Cb%3Ebold%3C%2Fb%3E%20%26%20co")
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    page.get_by_role("button", name="Delete group…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete group").click()
    expect(page.get_by_role("heading", name="Groups")).to_be_visible()
    expect(page.get_by_role("link", name=HOSTILE)).to_have_count(0)
