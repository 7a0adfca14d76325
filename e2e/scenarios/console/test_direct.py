"""What the console reads from etcd and the store: SQL, search, storage, damage, cost and health, in a browser."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import Browser, expect

from e2e.harness.cluster import Cluster
from e2e.harness.console_page import Visitor, console_of
from e2e.harness.secured import done

pytestmark = pytest.mark.timeout(600)
ENDLESS = "select count(*) from range(1000000) a, range(1000000) b where a.range % 7 = b.range % 5"
COUNTRIES = ("NL", "=HYPERLINK(1)", "DE")
RECORDS = 1_500


@pytest.fixture(scope="module", autouse=True)
def records(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    done(admin.create_topics([NewTopic("orders", 1)]))
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        value = json.dumps({"country": COUNTRIES[number % 3], "n": number})
        producer.produce("orders", value, key=f"<b>{number}</b>")
    assert producer.flush(60) == 0


def test_a_person_asks_counts_by_a_field_and_takes_the_result_along(visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.page
    visitor.go("/sql")
    page.get_by_role("button", name="A field of JSON").click()
    page.get_by_label("Query").press("Control+Enter")
    expect(page.get_by_role("status")).to_contain_text("3 rows in")
    counts = sorted([country, "500"] for country in COUNTRIES)
    assert sorted(visitor.cells()) == counts
    assert "#select%20try" in page.url
    visitor.inspect("sql")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    download.value.save_as(tmp_path / "query.csv")
    with (tmp_path / "query.csv").open(newline="") as file:
        found = list(csv.reader(file))
    assert found[0] == ["country", "records"]
    assert ["'=HYPERLINK(1)", "500"] in found
    with page.expect_download() as download:
        page.get_by_role("button", name="Download JSON").click()
    download.value.save_as(tmp_path / "query.json")
    assert {"country": "NL", "records": 500} in json.loads((tmp_path / "query.json").read_text())
    with page.expect_download() as download:
        page.get_by_role("button", name="Download Parquet").click()
    download.value.save_as(tmp_path / "query.parquet")
    assert {"country": "NL", "records": 500} in pq.read_table(tmp_path / "query.parquet").to_pylist()


def test_a_mistake_is_a_sentence_and_a_query_can_be_cancelled(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/sql")
    query = page.get_by_label("Query")
    query.fill("select * from orders")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("Ask for records where topic = 'orders'.")
    query.fill(ENDLESS)
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("status")).to_contain_text("Read 0 of at most")
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status")).to_have_text("Cancelled.")
    query.fill('select key_text from records where "offset" = 7')
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("status")).to_contain_text("1 row in")
    assert visitor.cells() == [["<b>7</b>"]]


def test_a_record_is_found_by_a_field_of_its_json_and_more_hits_are_a_button_away(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/topics/orders/search")
    page.get_by_label("Text", exact=True).fill("<B>1234</b>")
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("status")).to_contain_text("1 hit; read 1,500 of 1,500 records: all of them.")
    visitor.inspect("search")
    visitor.go("/topics/orders/search?where=" + "(value->>'$.n')::int%25 2=0")
    expect(page.get_by_role("status")).to_contain_text("500 hits")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("status")).to_contain_text("750 hits; read")
    expect(page.get_by_role("status")).to_contain_text("all of them.")
    numbers = [int(json.loads(row[4])["n"]) for row in visitor.cells()]
    assert numbers == list(range(1_498, -1, -2))
    page.locator("tbody tr").first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("1498")


def test_without_direct_reads_a_consumer_searches_by_text_and_goes_on(
    browser: Browser, cluster: Cluster
) -> None:
    with console_of(["--bootstrap-server", cluster.bootstrap, "--no-direct"]) as url:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        visitor = Visitor(context.new_page(), url)
        page = visitor.page
        visitor.go("/topics/orders")
        page.get_by_role("link", name="Search").click()
        expect(page.get_by_text("this console does not read the object store")).to_be_visible()
        expect(page.get_by_role("option", name="SQL condition")).to_have_count(0)
        page.get_by_label("Text", exact=True).fill("<B>1234</b>")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("status")).to_contain_text("1 hit; read 1,500 of 1,500 records: all of them.")
        visitor.inspect("search-by-a-consumer")
        page.get_by_label("Text", exact=True).fill('"country": "nl"')
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("status")).to_contain_text(
            "500 hits; read 1,500 of 1,500 records: all of them."
        )
        page.get_by_label("Text", exact=True).fill("country")
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("status")).to_contain_text("ended at 500 hits")
        page.get_by_role("button", name="Continue").click()
        expect(page.get_by_role("status")).to_contain_text("1,000 hits; read")
        expect(page.get_by_role("status")).to_contain_text("ended at 500 hits")
        visitor.go("/topics/orders/search?text=%3Eb&since=-15m")
        expect(page.get_by_role("status")).to_contain_text(
            "0 hits; read 1,500 of 1,500 records: all of them."
        )
        visitor.expected.add("400")
        visitor.go("/topics/orders/search?where=true")
        expect(page.get_by_role("alert")).to_contain_text("so it searches by a text only")
        context.close()
        visitor.check()


def test_storage_shows_what_is_stored_and_a_check_finds_it_whole(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/storage")
    expect(page.get_by_role("heading", name="Segments by size")).to_be_visible()
    assert visitor.cells()[0][0] == "orders"
    jobs = page.get_by_role("table", name="Jobs in the background")
    expect(jobs.locator("tbody tr").filter(has_text="retention")).to_contain_text("in ")
    visitor.inspect("storage")
    page.get_by_label("Topics").select_option("orders")
    page.get_by_role("button", name="Check orders").click()
    expect(page.get_by_text("Clean: etcd and the store agree.")).to_be_visible()
    expect(page.get_by_text(re.compile(r"with 1,500 records"))).to_be_visible()


def test_cost_and_health_say_what_a_topic_costs_and_who_serves(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/cost?seconds=5")
    expect(page.locator("tbody tr").filter(has_text="orders")).to_contain_text("$")
    visitor.inspect("cost")
    visitor.go("/health")
    expect(page.get_by_text("are served")).to_be_visible()
    services = {row[0].split()[0] for row in visitor.cells()}
    assert services >= {"frontdoor", "produce", "fetch", "coordinator", "admin", "upkeep"}
    assert all(row[1] == "ready" and row[3][0].isdigit() for row in visitor.cells())
    visitor.inspect("health")
