"""Resets of offsets beside Apache Kafka's kafka-consumer-groups, on the same cluster.

Laws: the preview of each kind of reset has the offsets that Kafka's tool has in a dry run. A group that becomes active
after its preview is not reset (G1).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafscale.console.routes import API

from e2e.harness.apache import kafka_version
from e2e.harness.cluster import Cluster
from e2e.harness.console_rights import Person
from e2e.harness.kafka_tools import Tools, require_java, tools
from e2e.harness.secured import done

HOUR_MS: Final = 3_600_000
RECORDS: Final = 20
"""One each hour, in each of two partitions; the third has none."""
DELETED: Final = 3
AT: Final = {0: 11, 1: 2}
"""What the group has committed."""
NOW_MS: Final = int(time.time() * 1000)
TIMEOUT_S: Final = 60.0
Offsets = dict[tuple[str, int], int]

pytestmark = pytest.mark.timeout(600)


def at(hours: float) -> int:
    """The time of the record before the one of this hour, and half an hour more: no run is so slow that it matters."""
    return NOW_MS - round((RECORDS - hours + 0.5) * HOUR_MS)


@pytest.fixture(scope="module", autouse=True)
def records(cluster: Cluster) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    done(admin.create_topics([NewTopic("orders", 3), NewTopic("bills", 1)]))
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(RECORDS):
        for topic, partition in (("orders", 0), ("orders", 1), ("bills", 0)):
            timestamp = NOW_MS - (RECORDS - number) * HOUR_MS
            producer.produce(topic, b"x", partition=partition, timestamp=timestamp)
    assert producer.flush(60) == 0
    done(admin.delete_records([TopicPartition("orders", 0, DELETED)]))
    commit(admin, "billing", *(("orders", number, offset) for number, offset in AT.items()), ("bills", 0, 7))
    commit(admin, "other", ("orders", 0, 5), ("orders", 1, 19))
    return admin


@pytest.fixture(scope="module")
def kafka(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    require_java()
    with tools(kafka_version(), cluster.bootstrap, tmp_path_factory.mktemp("tools")) as found:
        yield found


def commit(admin: AdminClient, group: str, *offsets: tuple[str, int, int]) -> None:
    parts = [TopicPartition(*each) for each in offsets]
    done(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, parts)]))


def committed(admin: AdminClient, group: str) -> Offsets:
    (found,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {(part.topic, part.partition): part.offset for part in found.result().topic_partitions or ()}


def previewed(url: str, group: str, aim: dict[str, Any], **chosen: Any) -> tuple[int, dict[str, Any]]:
    """Status and answer."""
    body = {"topics": ["orders"], "aim": aim, **chosen}
    answer = Person(url).change("POST", f"{API}/groups/{group}/reset/preview", body)
    return answer.status, json.loads(answer.body)


def dry_run(kafka: Tools, group: str, how: str) -> Offsets:
    answer = kafka.run(f"kafka-consumer-groups --reset-offsets --group {group} --dry-run --export {how}")
    assert answer.exit == 0, answer.text
    rows = [line.replace('"', "").split(",") for line in answer.out.splitlines() if "," in line]
    return {(topic, int(number)): int(offset) for topic, number, offset in rows}


def named(how: str) -> str:
    """Without times: the processes of a run must give a test the same name."""
    return re.sub(r"\d{10,}", "", how).strip("-").replace(" ", "-")


@pytest.mark.parametrize(
    ("aim", "how"),
    [
        ({"to": "earliest"}, "--topic orders --to-earliest"),
        ({"to": "latest"}, "--topic orders --to-latest"),
        ({"to": "time", "at_ms": at(8)}, f"--topic orders --to-datetime {{time:{at(8)}}}"),
        ({"to": "time", "at_ms": at(1)}, f"--topic orders --to-datetime {{time:{at(1)}}}"),
        (
            {"to": "time", "at_ms": NOW_MS + HOUR_MS},
            f"--topic orders --to-datetime {{time:{NOW_MS + HOUR_MS}}}",
        ),
        ({"to": "duration", "ago_ms": 9 * HOUR_MS + HOUR_MS // 2}, "--topic orders --by-duration PT9H30M"),
        ({"to": "duration", "ago_ms": 90 * 24 * HOUR_MS}, "--topic orders --by-duration P90D"),
        ({"to": "shift", "by": -4}, "--topic orders:0,1 --shift-by -4"),
        ({"to": "shift", "by": 1_000}, "--topic orders:0,1 --shift-by 1000"),
        ({"to": "shift", "by": -1_000}, "--topic orders:0,1 --shift-by -1000"),
        ({"to": "csv", "csv": "orders,0,9\norders,1,17\n"}, "--from-file exact.csv"),
        ({"to": "csv", "csv": "orders,0,1\norders,1,5000\n"}, "--from-file outside.csv"),
        ({"to": "csv", "csv": "orders,1,6"}, "--topic orders:1 --to-offset 6"),
        ({"to": "csv", "csv": "orders,1,99"}, "--topic orders:1 --to-offset 99"),
    ],
    ids=lambda value: named(value) if isinstance(value, str) else value["to"],
)
def test_a_preview_has_the_offsets_of_kafkas_dry_run(
    url: str, kafka: Tools, aim: dict[str, Any], how: str
) -> None:
    if aim["to"] == "csv":
        (kafka.folder / "exact.csv").write_text(aim["csv"])
        (kafka.folder / "outside.csv").write_text(aim["csv"])
    if "{" in how:
        kind, time_ms = how.split("{")[0], aim["at_ms"]
        how = (
            kind
            + datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
            + (f"{time_ms % 1000:03d}Z")
        )
    status, preview = previewed(url, "billing", aim)
    assert status == 200, preview
    found = {(row["topic"], row["partition"]): row["after"] for row in preview["rows"]}
    assert found == dry_run(kafka, "billing", how)
    assert found


def test_exact_offsets_of_kafkas_export_are_read(url: str, kafka: Tools, records: AdminClient) -> None:
    """Kafka's export of what is committed, as the CSV of another group."""
    out = kafka.run(
        "kafka-consumer-groups --reset-offsets --group billing --all-topics --to-current --dry-run --export"
    ).out
    aim = {"to": "csv", "csv": "\n".join(line for line in out.splitlines() if "," in line)}
    status, preview = previewed(url, "fresh", aim, topics=["orders", "bills"])
    assert status == 200, preview
    after = {(row["topic"], row["partition"]): row["after"] for row in preview["rows"]}
    assert after == committed(records, "billing")


def test_a_group_that_becomes_active_after_its_preview_is_not_reset(
    url: str, cluster: Cluster, records: AdminClient
) -> None:
    status, preview = previewed(url, "other", {"to": "earliest"})
    assert (status, preview["members"]) == (200, False)
    before = committed(records, "other")
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "other", "enable.auto.commit": False}
    )
    try:
        consumer.subscribe(["orders"])
        until_s = time.monotonic() + TIMEOUT_S
        while not consumer.assignment():
            consumer.poll(0.2)
            assert time.monotonic() < until_s
        answer = Person(url).change("POST", f"{API}/groups/other/reset", {"rows": preview["rows"]})
        assert answer.status == 409, answer.body
        assert "has members now; stop its consumers first" in json.loads(answer.body)["sentence"]
        assert committed(records, "other") == before
        assert previewed(url, "other", {"to": "earliest"})[1]["members"]
    finally:
        consumer.close()
    answer = Person(url).change("POST", f"{API}/groups/other/reset", {"rows": preview["rows"]})
    assert answer.status == 200, answer.body
    assert all(row["sent"] == row["read"] for row in json.loads(answer.body)["rows"])
