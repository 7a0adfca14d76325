"""What people do with the console in a browser, over a real cluster: groups by risk, resets, deletions; users, ACLs and
quotas; changes of topics; transactions.

Law G1: what the preview of a reset shows is what is sent and read back; if the group moved meanwhile, nothing is sent.
"""

from __future__ import annotations

import re
import time

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
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


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """An authorizer, whose super user is everyone, and samples of lag every second."""
    return {
        "KAFSCALE_AUTHORIZER": "acl",
        "KAFSCALE_SUPER_USERS": "User:ANONYMOUS",
        "KAFSCALE_LAG_EVERY_MS": "1000",
    }


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
    (row,) = visitor.cells()
    assert [*row[:4], *row[5:]] == ["orders/0", "60", "45", "reads 15 again", "0 to 100", ""]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \+\d\d:\d\d", row[4]), row
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
    expect(page.get_by_role("heading", name="2 partitions reset")).to_be_visible()
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
    page.get_by_role("button", name="Delete 1 offset").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert committed(cluster, "late") == {}
    visitor.go("/groups/%3Cb%3Ebold%3C%2Fb%3E%20%26%20co")
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    page.get_by_role("button", name="Delete group…").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete group").click()
    expect(page.get_by_role("heading", name="Groups")).to_be_visible()
    expect(page.get_by_role("link", name=HOSTILE)).to_have_count(0)


def test_an_acl_of_a_recipe_explains_why_somebody_may_read(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/access/acls")
    page.get_by_role("button", name="New ACLs…").click()
    page.get_by_label("Principal", exact=True).fill("User:alice")
    page.get_by_role("textbox", name="Topics").fill("ord")
    page.get_by_role("textbox", name="Groups").fill("billing")
    page.get_by_label("all names that begin so").check()
    page.get_by_role("button", name="Show the ACLs").click()
    expect(page.get_by_text("allow User:alice read on each topic that begins with ord")).to_be_visible()
    visitor.inspect("new-acls")
    page.get_by_role("button", name="Add 3 ACLs").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    visitor.inspect("acls")
    page.get_by_role("link", name="Why may…?").click()
    page.get_by_label("May", exact=True).fill("User:alice")
    page.get_by_label("Name", exact=True).fill("orders")
    page.get_by_role("button", name="Why?").click()
    expect(page.get_by_text("Yes.")).to_be_visible()
    assert [row[0] for row in visitor.cells()] == ["allows", "for another operation"]
    visitor.inspect("why")
    page.get_by_label("May", exact=True).fill("User:bob")
    page.get_by_role("button", name="Why?").click()
    expect(page.get_by_text("No.", exact=True)).to_be_visible()
    visitor.go("/access/acls")
    page.get_by_role(
        "button", name="Remove: allow User:alice read on each group that begins with billing"
    ).click()
    page.get_by_role("button", name="Remove ACL").click()
    expect(page.locator("tbody tr")).to_have_count(2)


def test_users_and_quotas_are_made_changed_and_removed(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/access")
    for _ in range(2):
        page.get_by_role("button", name="New user…").click()
        page.get_by_label("User", exact=True).fill("alice")
        page.get_by_role("dialog").get_by_label("Password").fill("correct horse")
        page.get_by_role("button", name="Add user").click()
        expect(page.get_by_role("cell", name="SCRAM-SHA-256, SCRAM-SHA-512")).to_be_visible()
        visitor.expected.add("409")
    expect(page.get_by_role("alert")).to_contain_text("exists already")
    page.get_by_role("button", name="Cancel").click()
    visitor.inspect("users")
    page.get_by_role("button", name="Password of alice").click()
    page.get_by_role("dialog").get_by_label("Password").fill("battery staple")
    page.get_by_role("button", name="Change password").click()
    page.get_by_role("button", name="Remove alice").click()
    page.get_by_role("button", name="Remove user").click()
    expect(page.get_by_text("There is no user yet")).to_be_visible()
    page.get_by_role("link", name="Quotas").click()
    page.get_by_role("button", name="Set a quota…").click()
    page.get_by_label("Name; empty").fill("alice")
    page.get_by_label("Value").fill("1048576")
    page.get_by_role("button", name="Set quota").click()
    assert visitor.cells()[0][:3] == ["user alice", "producer_byte_rate", "1.0 MiB/s"]
    page.get_by_role("button", name="Remove producer_byte_rate").click()
    page.get_by_role("button", name="Remove quota").click()
    expect(page.get_by_text("nobody is throttled")).to_be_visible()


def test_a_topic_is_made_and_altered(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/topics")
    page.get_by_role("button", name="New topic…").click()
    page.get_by_label("Name", exact=True).fill("fresh")
    page.get_by_label("Partitions; empty").fill("2")
    page.get_by_label("Keep records for days").fill("3")
    page.get_by_role("button", name="Create topic").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("fresh")
    visitor.go("/topics/fresh/configs")
    row = page.locator("tbody tr").filter(has_text=re.compile("^retention.ms"))
    expect(row).to_contain_text("259200000 (3 d)")
    page.get_by_role("button", name="Change retention.ms").click()
    page.get_by_label("back to the default").check()
    page.get_by_role("button", name="Save").click()
    expect(row).to_contain_text("604800000")
    visitor.go("/topics/fresh/change")
    page.get_by_label("New number").fill("3")
    page.get_by_role("button", name="Add partitions…").click()
    page.get_by_role("dialog").get_by_role("button", name="Add partitions").click()
    expect(page.get_by_text("It has 3.")).to_be_visible()


def test_what_is_deleted_is_shown_before_with_the_groups_that_have_not_read_it(
    visitor: Visitor, cluster: Cluster
) -> None:
    page = visitor.page
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    done(admin.create_topics([NewTopic("old", 1)]))
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(10):
        producer.produce("old", str(number), partition=0)
    assert producer.flush(60) == 0
    commit(cluster, "slow", ("old", 0, 4))
    visitor.go("/topics/old/change")
    page.get_by_label("Before").fill("6")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_text("slow 2")).to_be_visible()
    assert visitor.cells() == [["0", "0", "6", "6"]]
    visitor.inspect("change-topic")
    page.get_by_role("button", name="Delete 6 records").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete records").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    visitor.go("/topics/old/partitions")
    assert visitor.cells()[0][1:4] == ["6", "10", "4"]
    visitor.go("/topics/old/change")
    page.get_by_role("button", name="Delete old…").click()
    expect(page.get_by_role("button", name="Delete topic")).to_be_disabled()
    page.get_by_label("Type the topic's name").fill("old")
    page.get_by_role("button", name="Delete topic").click()
    expect(page.get_by_role("heading", name="Topics")).to_be_visible()
    expect(page.get_by_role("link", name="old")).to_have_count(0)


def test_a_transaction_that_is_under_way_is_ended(visitor: Visitor, cluster: Cluster) -> None:
    page = visitor.page
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "payments"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", b"x", partition=1)
    producer.flush(60)
    visitor.go("/transactions")
    row = visitor.cells()[0]
    assert (row[0], row[1], row[4]) == ("payments", "Ongoing", "orders-1")
    visitor.inspect("transactions")
    page.get_by_role("button", name="End payments").click()
    page.get_by_role("button", name="Abort transaction").click()
    expect(page.get_by_text("No transaction is under way.")).to_be_visible()
    page.get_by_role("button", name="Look for them").click()
    expect(page.get_by_text("No transaction hangs in 3 topics")).to_be_visible()
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)
