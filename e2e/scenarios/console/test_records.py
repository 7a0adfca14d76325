"""The records of a topic, in a browser: one order over all partitions, permalinks, formats, copies."""

from __future__ import annotations

import io
import json
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from playwright.sync_api import Browser, expect

from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.console_page import Visitor, console_of
from e2e.harness.secured import done

ONE = ("bytes", "money", "held", "live", "sent", "lines", "avro", "dead", "retried")
RECORDS = 120
FIRST_MS = 1_790_000_000_000
HOSTILE = "<img src=x onerror=alert(1)>"
EXACT = 9_007_199_254_740_993

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def topics(cluster: Cluster) -> None:
    """Record n of `orders` is n seconds after FIRST_MS, in partition n % 3 but for every 10th, which is in 0."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    done(admin.create_topics([NewTopic("orders", 3), *(NewTopic(name, 1) for name in ONE)]))
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        order = {"order": number, "customer": f"customer-{number % 7}", "exact": EXACT, "note": HOSTILE}
        producer.produce(
            "orders",
            json.dumps(order),
            f"order-{number}",
            0 if number % 10 == 0 else number % 3,
            timestamp=FIRST_MS + number * 1_000,
            headers=[("source", b"web"), ("trace", bytes(range(8)))],
        )
    for value, key in (
        (b"\x00\x01\xff", (42).to_bytes(8, "big")),
        (None, b"gone"),
        (b"", None),
        (b"x" * 70_000, b"long"),
    ):
        producer.produce("bytes", value, key)
    assert producer.flush(60) == 0
    for transaction, ends in (("paid", True), ("refused", False)):
        bank = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": transaction})
        bank.init_transactions(60)
        bank.begin_transaction()
        bank.produce("money", transaction)
        assert bank.flush(60) == 0  # an abort would drop what is not sent
        (bank.commit_transaction if ends else bank.abort_transaction)(60)


def orders(visitor: Visitor) -> list[int]:
    """The numbers in the shown keys."""
    return [int(row[3].removeprefix("order-")) for row in visitor.cells()]


def test_a_topic_opens_with_its_newest_records_in_one_order_over_all_partitions(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/topics/orders")
    assert orders(visitor) == list(range(119, 69, -1))
    assert visitor.cells()[0][0] == "2026-09-21 16:15:19.000 +02:00"
    visitor.inspect("records")
    page.get_by_role("button", name="Older").click()
    expect(page.locator("tbody tr").first).to_contain_text("order-69")
    assert orders(visitor) == list(range(69, 19, -1))
    page.get_by_role("button", name="Older").click()
    expect(page.locator("tbody tr")).to_have_count(20)
    assert orders(visitor) == list(range(19, -1, -1))
    expect(page.get_by_role("button", name="Older")).to_be_disabled()
    page.get_by_role("button", name="Newer").click()
    expect(page.locator("tbody tr").first).to_contain_text("order-69")
    link = page.url
    visitor.go("/topics/orders")
    page.goto(link)
    assert orders(visitor) == list(range(69, 19, -1))


def test_from_an_offset_a_time_and_the_oldest_of_one_partition(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go(f"/topics/orders?from=time&at={FIRST_MS + 100_000}")
    assert orders(visitor) == list(range(100, 120))
    page.get_by_label("From").select_option("oldest")
    expect(page.locator("tbody tr").first).to_contain_text("order-0")
    page.get_by_label("Partition").select_option("1")
    expect(page.locator("tbody tr").first).to_contain_text("order-1")
    in_one = [number for number in range(RECORDS) if number % 3 == 1 and number % 10]
    assert orders(visitor) == in_one
    page.get_by_label("From").select_option("offset")
    page.get_by_label("Offset", exact=True).fill("30")
    page.get_by_role("button", name="Go").click()
    expect(page.locator("tbody tr").first).to_contain_text(f"order-{in_one[30]}")
    assert orders(visitor) == in_one[30:]
    page.get_by_label("From").select_option("hour")
    expect(page.get_by_text("No record has this time or a later one.")).to_be_visible()
    visitor.expected.add("400")
    visitor.go("/topics/orders?from=time&at=yesterday")
    expect(page.get_by_role("alert")).to_contain_text("at is a time: 2026-01-31T08:00")


def test_a_record_opens_below_its_row_and_can_be_copied(visitor: Visitor, cluster: Cluster) -> None:
    page = visitor.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    visitor.go("/topics/orders")
    page.locator("button.open").first.click()
    expect(page.get_by_label("Value", exact=True)).to_contain_text(f'"exact": {EXACT}')
    expect(page.get_by_label("Value", exact=True)).to_contain_text(HOSTILE)
    expect(page.locator("dl.headers")).to_contain_text("00 01 02 03 04 05 06 07")
    visitor.inspect("record-open")

    def copied(button: str, said: str) -> str:
        page.get_by_role("button", name=button).click()
        expect(page.get_by_role("status")).to_have_text(said)
        text: str = page.evaluate("navigator.clipboard.readText()")
        return text

    record = json.loads(copied("Copy as JSON", "JSON copied"))
    assert (record["key"], json.loads(record["value"])["order"]) == ("order-119", 119)
    command = copied("Copy as command", "Command copied")
    assert command == f"kafscale consume -p 2 -o {record['offset']} -c 1 -- orders"
    printed = subprocess.run(
        [*KAFSCALE, *command.split()[1:-2], "--bootstrap-server", cluster.bootstrap, "--", "orders"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert printed == record["value"] + "\n"


def test_a_permalink_shows_one_record_with_all_formats_and_its_neighbours(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/topics/bytes/0/0")
    expect(page.get_by_label("Key as hex", exact=True)).to_have_text("00 00 00 00 00 00 00 2a")
    expect(page.get_by_text("as a number it is 42")).to_be_visible()
    page.get_by_role("group", name="Format of Key").get_by_role("button", name="number").click()
    expect(page.get_by_label("Key as number")).to_have_text("42")
    expect(page.get_by_label("Value in hex with offsets")).to_contain_text("00000000  00 01 ff")
    visitor.inspect("record")
    page.get_by_role("link", name="1 ›").click()
    expect(page.get_by_text("null: a tombstone")).to_be_visible()
    page.get_by_role("link", name="2 ›").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Offset 2 of partition 0")
    page.get_by_role("link", name="‹ 1").click()
    expect(page.get_by_text("null: a tombstone")).to_be_visible()
    visitor.go("/topics/bytes/0/77")
    expect(page.get_by_role("alert")).to_contain_text(
        "it is not written yet: the partition ends before offset 4"
    )
    visitor.go("/topics/bytes?key_as=number")
    assert [row[3] for row in visitor.cells()][-1] == "42"


def test_records_of_an_aborted_transaction_are_shown_only_on_demand_and_marked(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/topics/money")
    assert [row[4] for row in visitor.cells()] == ["paid"]
    page.get_by_label("uncommitted").check()
    expect(page.locator("tbody tr")).to_have_count(2)
    assert [row[4].split() for row in visitor.cells()] == [["aborted", "refused"], ["paid"]]
    page.locator("tbody a").first.click()
    expect(page.get_by_text("aborted")).to_be_visible()
    visitor.go("/topics/money/0/2")
    expect(page.get_by_role("alert")).to_contain_text("it belongs to a transaction that was aborted")
    visitor.go("/topics/money/search?text=e&isolation=uncommitted")
    expect(page.get_by_role("status")).to_contain_text("all of them.")
    assert [row[4].split() for row in visitor.cells()] == [["aborted", "refused"]]
    page.get_by_label("uncommitted").uncheck()
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("status")).to_contain_text("0 hits")


def test_records_of_an_open_transaction_are_marked_until_it_ends(visitor: Visitor, cluster: Cluster) -> None:
    bank = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "held"})
    bank.init_transactions(60)
    bank.begin_transaction()
    bank.produce("held", "pending")
    assert bank.flush(60) == 0
    page = visitor.page
    for screen in ("?", "/search?text=pending&"):
        visitor.go(f"/topics/held{screen}isolation=uncommitted")
        assert [row[4].split() for row in visitor.cells()] == [["open", "pending"]]
    visitor.go("/topics/held")
    expect(page.get_by_text("At most 1 record is in an open transaction")).to_be_visible()
    expect(page.get_by_text("There is no record yet.")).to_have_count(0)
    page.get_by_role("button", name="Show uncommitted records").click()
    expect(page.locator("tbody tr")).to_contain_text("pending")
    bank.commit_transaction(60)
    visitor.go("/topics/held?isolation=uncommitted")
    assert [row[4] for row in visitor.cells()] == ["pending"]


def test_a_record_shows_its_batch_and_the_object_of_it(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/topics/money")
    page.locator("button.open").first.click()
    page.get_by_role("button", name="Show its batch").click()
    batch = page.locator("dl.facts")
    expect(batch).to_contain_text("epoch 0, first sequence number 0, in a transaction")
    expect(batch).to_contain_text("bundle")
    visitor.inspect("batch")


def test_a_tail_shows_or_counts_what_comes_and_rests_while_nobody_looks(
    visitor: Visitor, cluster: Cluster
) -> None:
    page = visitor.page
    visitor.go("/topics/live")
    expect(page.get_by_text("There is no record yet.")).to_be_visible()
    page.get_by_role("button", name="Tail").click()
    expect(page.get_by_text("● live")).to_be_visible()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(3):
        producer.produce("live", f"first-{number}", timestamp=FIRST_MS + number)
    assert producer.flush(60) == 0
    expect(page.locator("tbody tr")).to_have_count(3)
    assert [row[4] for row in visitor.cells()] == ["first-2", "first-1", "first-0"]
    visitor.inspect("tail")
    hidden = (
        "Object.defineProperty(document, 'hidden', {get: () => %s, configurable: true}); "
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.evaluate(hidden % "true")
    expect(page.get_by_text("○ rests")).to_be_visible()
    for number in range(5_000):
        producer.produce("live", f"burst-{number}")
    assert producer.flush(60) == 0
    page.evaluate(hidden % "false")
    expect(page.get_by_text("5,003 came")).to_be_visible()
    expect(page.get_by_text("not shown (a second shows 200 or 1 MiB)")).to_be_visible()


def test_a_record_is_produced_and_produced_again_with_all_its_bytes(
    visitor: Visitor, cluster: Cluster
) -> None:
    page = visitor.page
    visitor.go("/topics/sent")
    page.get_by_role("button", name="Produce…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Key as").select_option("number")
    dialog.get_by_label("Key", exact=True).fill("42")
    dialog.get_by_label("Value as").select_option("json")
    dialog.get_by_label("Value", exact=True).fill('{"a": 1')
    dialog.get_by_role("button", name="Add a header").click()
    dialog.get_by_label("Name").fill("source")
    dialog.get_by_label("Value of header 1", exact=True).fill("console")
    visitor.inspect("produce")
    visitor.expected.add("400")
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_role("alert")).to_contain_text("the value is not json")
    dialog.get_by_label("Value", exact=True).fill(f'{{"exact": {EXACT}}}')
    dialog.get_by_role("button", name="Send").click()
    dialog.get_by_role("link", name="partition 0, offset 0").click()
    expect(page.get_by_label("Value as json")).to_contain_text(f'"exact": {EXACT}')
    page.get_by_role("button", name="Produce again…").click()
    expect(dialog.get_by_label("Key", exact=True)).to_have_value("AAAAAAAAACo=")
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_role("link", name="partition 0, offset 1")).to_be_visible()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "sent"})
    consumer.assign([TopicPartition("sent", 0, 0)])
    first, second = consumer.consume(2, 60)
    consumer.close()
    assert first.key() == (42).to_bytes(8, "big")
    assert (first.key(), first.value(), first.headers()) == (second.key(), second.value(), second.headers())


def test_lines_of_json_become_records_and_one_wrong_line_sends_nothing(visitor: Visitor) -> None:
    page = visitor.page
    visitor.go("/topics/lines")
    page.get_by_role("button", name="Produce lines…").click()
    dialog = page.get_by_role("dialog")
    good = '{"key": "a", "value": "1", "headers": [{"key": "h", "value": "x"}]}'
    visitor.expected.add("400")
    dialog.get_by_label("Lines", exact=True).fill(f'{good}\n{{"valeu": "2"}}')
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_role("alert")).to_contain_text(
        "nothing is sent: line 2: the record has the unknown field"
    )
    content = f'{good}\n\n{{"value": "2", "partition": 0}}\n'.encode()
    dialog.get_by_label("File").set_input_files(
        {"name": "records.jsonl", "mimeType": "application/x-ndjson", "buffer": content}
    )
    dialog.get_by_role("button", name="Send").click()
    expect(dialog.get_by_role("status")).to_contain_text("Written: 2 of 2 records")
    assert dialog.locator("tbody tr").all_inner_texts()[1].split("\t") == ["3", "partition 0, offset 1"]
    visitor.inspect("produce-lines")
    dialog.get_by_role("link", name="partition 0, offset 0").click()
    expect(page.get_by_label("Value as text")).to_contain_text("1")


def test_records_are_produced_to_another_topic_with_chosen_headers(
    visitor: Visitor, cluster: Cluster
) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(2):
        headers: list[tuple[str, str | bytes | None]] = [("trace", b"t"), ("error", b"timeout")]
        producer.produce("dead", f"failed-{number}", f"k{number}", headers=headers)
    assert producer.flush(60) == 0
    page = visitor.page
    visitor.expected.add("403")
    for screen in ("/topics/dead", "/topics/dead/search?text=failed-1"):
        visitor.go(screen)
        page.get_by_role("button", name="Produce to another topic…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Topic").fill("no-such-topic")
        dialog.get_by_label("Headers").select_option("some")
        dialog.get_by_label("Names of headers").fill("trace")
        dialog.get_by_role("button", name="Send").click()
        expect(dialog.get_by_role("alert")).to_contain_text("may not write to topic 'no-such-topic'")
        dialog.get_by_label("Topic").fill("retried")
        dialog.get_by_role("button", name="Send").click()
        expect(dialog.get_by_role("status")).to_contain_text("Written: ")
        visitor.inspect("redrive")
        dialog.get_by_role("button", name="Close").click()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none"})
    consumer.assign([TopicPartition("retried", 0, 0)])
    found = [(each.value(), each.key(), each.headers()) for each in consumer.consume(3, 60)]
    consumer.close()
    first, second = ((b"failed-%d" % number, b"k%d" % number, [("trace", b"t")]) for number in range(2))
    assert found == [first, second, second]


@contextmanager
def registry_of(schema_id: int, schema: Mapping[str, Any]) -> Iterator[str]:
    """A registry with one schema, of the subject avro-value."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            latest = {"subject": "avro-value", "version": 1, "id": schema_id}
            there: dict[str, dict[str, Any]] = {
                f"/schemas/ids/{schema_id}": {},
                "/subjects/avro-value/versions/latest": latest,
            }
            found = there.get(self.path)
            self.send_response(HTTPStatus.NOT_FOUND if found is None else HTTPStatus.OK)
            self.end_headers()
            self.wfile.write(
                json.dumps({} if found is None else found | {"schema": json.dumps(schema)}).encode()
            )

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_avro_is_decoded_and_written_by_a_registry(browser: Browser, cluster: Cluster) -> None:
    field = {"name": "exact", "type": "long"}
    schema = {"type": "record", "name": "Order", "namespace": "shop", "fields": [field]}
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), {"exact": EXACT})
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for schema_id in (7, 8):
        producer.produce("avro", b"\0" + schema_id.to_bytes(4, "big") + body.getvalue(), str(schema_id))
    assert producer.flush(60) == 0
    with registry_of(7, schema) as registry:
        options = ["--data-dir", str(cluster.data_dir), "--schema-registry", registry]
        with console_of(options) as url:
            context = browser.new_context()
            visitor = Visitor(context.new_page(), url)
            visitor.go("/topics/avro?from=oldest")
            assert visitor.cells()[0][4] == f'{{ "exact": {EXACT} }}'
            page = visitor.page
            page.locator("button.open").first.click()
            expect(page.get_by_text("schema 7: shop.Order")).to_be_visible()
            visitor.inspect("avro")
            visitor.go("/topics/avro/0/1")
            expect(
                page.get_by_text("not decoded by schema 8: the registry does not have /schemas/ids/8")
            ).to_be_visible()
            visitor.go("/topics/avro")
            visitor.expected.add("400")
            page.get_by_role("button", name="Produce…", exact=True).click()
            dialog = page.get_by_role("dialog")
            dialog.get_by_label("Value as").select_option("schema")
            expect(dialog.get_by_label("Subject")).to_have_value("avro-value")
            dialog.get_by_label("Value", exact=True).fill('{"exakt": 1}')
            dialog.get_by_role("button", name="Send").click()
            expect(dialog.get_by_role("alert")).to_contain_text(
                "has the field exakt, which shop.Order does not have"
            )
            visitor.inspect("produce-by-schema")
            dialog.get_by_label("Value", exact=True).fill(f'{{"exact": {EXACT}}}')
            dialog.get_by_role("button", name="Send").click()
            dialog.get_by_role("link", name="partition 0, offset 2").click()
            expect(page.get_by_text(f'"exact": {EXACT}').first).to_be_visible()
            context.close()
            visitor.check()
