"""The console's overview and topics, in a browser, over a real cluster."""

from __future__ import annotations

import re
import shlex
import subprocess

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import expect

from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.console_page import Visitor
from e2e.harness.secured import done

MANY = [f"many-{number:03}" for number in range(60)]
RECORDS = 1_234

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def topics(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    orders = NewTopic("orders", 3, config={"retention.ms": "604800000", "cleanup.policy": "delete"})
    done(admin.create_topics([orders, NewTopic("_schemas", 1), *(NewTopic(name, 2) for name in MANY)]))
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        producer.produce("orders", str(number), partition=number % 3)
    assert producer.flush(60) == 0


def test_an_empty_cluster_explains_the_next_step_which_works(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/")
    steps = page.get_by_role("region", name="First steps")
    send = steps.locator("code").first.inner_text()
    visitor.inspect("empty")
    subprocess.run(["sh", "-c", send.replace("kafscale", shlex.join(KAFSCALE), 1)], check=True, timeout=60)
    steps.get_by_role("link").click()
    expect(page.locator("tbody tr").first).to_contain_text("hello")


@pytest.mark.usefixtures("topics")
def test_a_newcomer_finds_a_topic_its_partitions_and_its_configs(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/")
    expect(page.get_by_role("link", name="Topics 63")).to_be_visible()
    for tile in ("Serving 6 of 6", "Stored", "Requests cost $"):
        expect(page.get_by_role("link", name=tile)).to_be_visible()
    visitor.inspect("overview")
    page.get_by_role("link", name="Topics 63").click()
    assert [row[0] for row in visitor.cells()][:3] == ["greetings", *MANY[:2]]
    visitor.inspect("topics")
    page.keyboard.press("/")
    page.keyboard.type("ORD")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert visitor.cells() == [["orders", "3", f"{RECORDS:,}"]]
    page.get_by_role("link", name="orders").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("orders")
    page.get_by_role("link", name="Partitions").click()
    each = f"{RECORDS // 3:,}"
    assert [row[:4] for row in visitor.cells()][1:] == [
        ["1", "0", each, each],
        ["2", "0", each, each],
    ]
    visitor.inspect("partitions")
    page.get_by_role("link", name="Configs").click()
    expect(
        page.locator("tbody tr").filter(has_text=re.compile("^retention.ms")).locator("td").nth(1)
    ).to_have_text("604800000 (7 d)")
    visitor.inspect("configs")


@pytest.mark.usefixtures("topics")
def test_the_address_has_the_state_of_the_list(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/topics")
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("page 2 of 2")).to_be_visible()
    page.get_by_role("button", name="Partitions").click()
    expect(page.locator("tbody tr").first).to_contain_text("orders")
    assert page.url.endswith("/topics?sort=-partitions")
    visitor.go("/topics?sort=-topic&hidden=1&page=2")
    assert visitor.cells()[-1][0] == "_schemas"
    page.go_back()
    expect(page.locator("tbody tr").first).to_contain_text("orders")


@pytest.mark.usefixtures("topics")
def test_keys_lead_through_the_page_and_a_name_that_does_not_exist_is_a_sentence(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/topics/orders/configs")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_role("heading", name="Topics", exact=True)).to_be_visible()
    visitor.expected |= {"404", "400"}
    visitor.go("/topics/no-such-topic")
    expect(page.get_by_role("alert")).to_contain_text("topic 'no-such-topic' does not exist")
    visitor.go("/topics/no%2Fsuch%20%3Cb%3Etopic")
    expect(page.get_by_role("heading", level=1)).to_have_text("no/such <b>topic")
    expect(page.get_by_role("alert")).to_contain_text("topic 'no/such <b>topic'")
