"""The table of APIs: complete, in agreement with Kafka's own, and each served row has what it needs."""

import importlib
from pathlib import Path

import pytest
from door_harness import Cluster
from kafscale.frontdoor.assembly import REFUSALS
from kafscale.frontdoor.routes import BY_KEY, ROWS, Backend, Order, Status, Stream, advertised
from kafscale.wire.apis import ApiKey

# What Apache Kafka 4.3.0 offers its clients: key, oldest and newest version.
KAFKA = """
0 3-13|1 4-18|2 1-11|3 0-13|8 2-10|9 1-10|10 0-6|11 0-9|12 0-4|13 0-5|14 0-5|15 0-6|16 0-5|17 0-1|18 0-4|19 2-7
20 1-6|21 0-2|22 0-6|23 2-4|24 0-5|25 0-4|26 0-5|27 1-2|28 0-5|29 1-3|30 1-3|31 1-3|32 1-4|33 0-2|34 1-2|35 1-5
36 0-2|37 0-3|38 1-3|39 1-2|40 1-2|41 1-3|42 0-2|43 0-2|44 0-1|45 0-1|46 0-0|47 0-0|48 0-1|49 0-1|50 0-0|51 0-0
55 0-2|57 0-2|60 0-2|61 0-0|64 0-0|65 0-0|66 0-2|68 0-1|69 0-1|71 0-0|72 0-0|74 0-1|75 0-0|76 1-1|77 1-1|78 1-2
79 1-2|88 0-0|89 0-0|90 0-1|91 0-0|92 0-0
"""
EXCEPTIONS = {
    ApiKey.PRODUCE: "0 to 2, which Kafka 4 has dropped, are served for old clients",
    ApiKey.FETCH: "0 to 3, which Kafka 4 has dropped, are served for old clients",
    ApiKey.LIST_OFFSETS: "0, which Kafka 4 has dropped, is served for old clients",
    ApiKey.OFFSET_COMMIT: "0 and 1, which Kafka 4 has dropped, are served for old clients",
    ApiKey.OFFSET_FETCH: "0, which Kafka 4 has dropped, is served for old clients",
    ApiKey.CREATE_TOPICS: "0 and 1, which Kafka 4 has dropped, are served for old clients",
    ApiKey.DELETE_TOPICS: "0, which Kafka 4 has dropped, is served for old clients",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "0 and 1, which Kafka 4 has dropped, are served for old clients",
    ApiKey.DESCRIBE_CONFIGS: "0, which Kafka 4 has dropped, is served for old tools",
    ApiKey.DESCRIBE_LOG_DIRS: "0, which Kafka 4 has dropped, is served for old tools",
    ApiKey.INIT_PRODUCER_ID: "version 6 is unstable in Kafka",
}
SERVED = [row for row in ROWS if row.status is Status.SERVED]


def kafka_rows() -> dict[int, tuple[int, int]]:
    rows = {}
    for cell in KAFKA.replace("\n", "|").strip("|").split("|"):
        key, versions = cell.split()
        low, high = versions.split("-")
        rows[int(key)] = (int(low), int(high))
    return rows


def test_every_api_of_kafka_has_its_row_and_its_versions() -> None:
    kafka = kafka_rows()
    assert {int(row.key) for row in ROWS} == set(kafka)
    differing = {row.key for row in ROWS if (row.version_min, row.version_max) != kafka[row.key]}
    assert differing == set(EXCEPTIONS)
    assert (BY_KEY[0].version_min, BY_KEY[0].version_max) == (0, 13)
    assert (BY_KEY[1].version_min, BY_KEY[1].version_max) == (0, 18)
    assert (BY_KEY[2].version_min, BY_KEY[2].version_max) == (0, 11)
    assert (BY_KEY[8].version_min, BY_KEY[8].version_max) == (0, 10)
    assert (BY_KEY[9].version_min, BY_KEY[9].version_max) == (0, 10)
    assert (BY_KEY[22].version_min, BY_KEY[22].version_max) == (0, 5)


def test_keys_stand_once_and_in_order() -> None:
    keys = [int(row.key) for row in ROWS]
    assert keys == sorted(set(keys))


@pytest.mark.parametrize("row", SERVED, ids=lambda row: row.name)
async def test_a_served_row_has_a_codec_for_each_version_and_a_refusal(cluster: Cluster, row: object) -> None:
    assert row in SERVED
    schema = importlib.import_module(f"kafscale.wire.schema.{row.key.name.lower()}")  # type: ignore[attr-defined]
    low, high = schema.REQUEST_VERSIONS
    assert low <= row.version_min  # type: ignore[attr-defined]
    assert high >= row.version_max  # type: ignore[attr-defined]
    assert row.name == schema.NAME  # type: ignore[attr-defined]
    assert row.key == ApiKey.API_VERSIONS or row.key in REFUSALS  # type: ignore[attr-defined]
    assert row.key in cluster.door.gateway._handlers  # type: ignore[attr-defined]


def test_only_served_rows_are_advertised() -> None:
    for row in ROWS:
        assert (advertised(row) != (-1, -1)) == (row.status is Status.SERVED)


def test_rows_that_are_not_served_say_why() -> None:
    assert all(bool(row.why) == (row.status is not Status.SERVED) for row in ROWS)


def test_records_travel_apart_and_calls_about_one_group_keep_their_order() -> None:
    assert {row.key for row in ROWS if row.stream is Stream.BULK} == {ApiKey.PRODUCE, ApiKey.FETCH}
    assert {row.key for row in ROWS if row.order is Order.ORDERED} == {
        ApiKey.PRODUCE,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }
    assert BY_KEY[ApiKey.API_VERSIONS].backend is Backend.FRONTDOOR


def test_each_served_api_has_a_module_that_begins_with_its_contract() -> None:
    folder = Path(str(importlib.import_module("kafscale.frontdoor.handlers").__file__)).parent
    for row in SERVED:
        first = (folder / f"{row.key.name.lower()}.py").read_text().splitlines()[0]
        answered = f"v{row.version_min}-{row.version_max}"
        assert first.startswith(f'"""{row.name} ({int(row.key)}): {answered}'), first
