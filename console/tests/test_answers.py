"""Lists: search, order, pages; and the statuses of Kafka's errors."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st
from kafscale.client.admin_client import KafkaTrouble, failure, trouble_of
from kafscale.console.answers import PAGE_ROWS, Problem, Row, page_of, problem_of
from kafscale.wire.errors import ErrorCode

COLUMNS = ("name", "size")


@given(st.lists(st.tuples(st.text(max_size=3), st.none() | st.integers()), max_size=130), st.booleans())
def test_the_pages_together_are_the_list_in_order(given: list[tuple[str, int | None]], down: bool) -> None:
    rows: list[Row] = [{"name": name, "size": size} for name, size in given]
    query = {"sort": "-size" if down else "size"}
    first = page_of(rows, query, columns=COLUMNS, search="name")
    whole = [
        row
        for page in range(1, first["pages"] + 1)
        for row in page_of(rows, query | {"page": str(page)}, columns=COLUMNS, search="name")["items"]
    ]
    known = [row["size"] for row in whole if row["size"] is not None]
    assert known == sorted(known, reverse=down)
    assert [row["size"] for row in whole[len(known) :]] == [None] * (len(rows) - len(known))
    assert sorted(map(str, whole)) == sorted(map(str, rows))
    assert first["total"] == len(rows)


def test_search_finds_hidden_rows_and_the_rest_is_counted() -> None:
    rows: list[Row] = [{"name": name} for name in ("orders", "_schemas", "Orders-2")]

    def names(query: dict[str, str]) -> tuple[list[str], int]:
        found = page_of(
            rows, query, columns=("name",), search="name", hidden=lambda row: row["name"][0] == "_"
        )
        return [row["name"] for row in found["items"]], found["hidden"]

    assert names({}) == (["Orders-2", "orders"], 1)
    assert names({"hidden": "1"}) == (["Orders-2", "_schemas", "orders"], 0)
    assert names({"q": "ORDER"}) == (["Orders-2", "orders"], 0)
    assert names({"q": "schema"}) == (["_schemas"], 0)


def test_a_page_after_the_last_is_the_last() -> None:
    rows: list[Row] = [{"name": str(number)} for number in range(PAGE_ROWS + 1)]
    assert page_of(rows, {"page": "9"}, columns=("name",), search="name")["page"] == 2


@pytest.mark.parametrize(
    "query",
    [{"sort": "secret"}, {"page": "0"}, {"page": "x"}, {"page": "٣"}, {"rows": "501"}, {"page": "9" * 99}],
)
def test_a_wrong_query_is_said(query: dict[str, str]) -> None:
    with pytest.raises(Problem) as raised:
        page_of([], query, columns=COLUMNS, search="name")
    assert raised.value.status is HTTPStatus.BAD_REQUEST


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 403),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 404),
        (ErrorCode.GROUP_ID_NOT_FOUND, 404),
        (ErrorCode.NON_EMPTY_GROUP, 409),
        (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 429),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, 503),
        (ErrorCode.INVALID_CONFIG, 400),
    ],
)
def test_a_refusal_of_the_front_door_has_its_status(code: ErrorCode, status: int) -> None:
    assert problem_of(failure("it", code)).status == status


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (KafkaError._INVALID_ARG, 400),
        (KafkaError._UNSUPPORTED_FEATURE, 400),
        (KafkaError._UNKNOWN_TOPIC, 404),
        (KafkaError._UNKNOWN_PARTITION, 404),
        (KafkaError._AUTHENTICATION, 401),
        (KafkaError._TIMED_OUT, 503),
        (KafkaError._TRANSPORT, 503),
        (KafkaError._SSL, 503),
    ],
)
def test_a_refusal_of_the_client_library_has_its_status_and_no_answer_is_503(code: int, status: int) -> None:
    problem = problem_of(trouble_of("it", KafkaError(code)))
    assert problem.status == status
    assert problem.sentence.endswith("try again in a moment") == (status == 503)


def test_no_answer_is_503() -> None:
    assert problem_of(KafkaTrouble("away")).status is HTTPStatus.SERVICE_UNAVAILABLE
