"""What a person writes becomes exactly these bytes, or is refused with a sentence."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from hypothesis import given
from hypothesis import strategies as st
from kafscale.client.admin_client import Client, KafkaTrouble
from kafscale.client.json_lines import Record, to_line
from kafscale.console.answers import Problem, problem_of
from kafscale.console.api.produce import (
    HEADERS_MAX,
    LINES_MAX,
    Given,
    GivenHeader,
    GivenRecord,
    by_its_schema,
    lines_of,
    record_of,
)
from kafscale.console.decode.plain import Format, view_of
from kafscale.console.records import sending
from kafscale.console.records.sending import send, send_all
from kafscale.console.routes import Call, decoded
from kafscale.testkit.mock_kafka import mock_broker

DONE_S = 60


def given_record(form: str, text: str) -> GivenRecord:
    body = decoded(b'{"key": null, "value": {"format": "%b", "text": ""}}' % form.encode(), GivenRecord)
    assert isinstance(body, GivenRecord)
    assert body.value is not None
    body.value.text = text
    return body


@given(st.binary(max_size=20), st.sampled_from([Format.TEXT, Format.NUMBER, Format.HEX, Format.BASE64]))
def test_a_view_of_bytes_that_is_sent_again_is_the_same_bytes(data: bytes, form: Format) -> None:
    view = view_of(data, form)
    if view["format"] == "number" and len(data) != 8:
        return  # of a shorter serializer; the page sends it again as base64
    assert record_of(given_record(view["format"], view["text"])).value == data


def test_json_is_sent_as_it_was_written() -> None:
    text = ' {"n": 9007199254740993.10,\n "n": 1e400} '
    assert record_of(given_record("json", text)).value == text.encode()


@pytest.mark.parametrize(
    ("form", "text", "sentence"),
    [
        ("json", "{", "the value is not json"),
        ("json", "[NaN]", "NaN is no number"),
        ("json", "[" * 100_000, "the value is not json: too many levels"),
        ("text", "\ud800", "the value is not text"),
        ("number", "9223372036854775808", "does not fit into 64 bits"),
        ("number", "1.5", "the value is not number"),
        ("hex", "0g", "the value is not hex"),
        ("base64", "A", "the value is not base64"),
    ],
)
def test_what_is_not_of_its_format_is_refused(form: str, text: str, sentence: str) -> None:
    with pytest.raises(Problem, match=sentence) as refused:
        record_of(given_record(form, text))
    assert refused.value.status == 400


def test_the_bounds_of_a_record() -> None:
    with pytest.raises(Problem, match="partition is a whole number"):
        record_of(GivenRecord(key=None, value=None, partition=-1))
    many = [GivenHeader(name="a", value=None)] * (HEADERS_MAX + 1)
    with pytest.raises(Problem, match="256 headers at most"):
        record_of(GivenRecord(key=None, value=None, headers=many))
    assert record_of(GivenRecord(key=None, value=None, headers=many[:2])).headers == (("a", None),) * 2


async def test_only_a_key_or_a_value_is_written_by_a_schema_and_only_with_a_registry() -> None:
    by_schema = Given(format="schema", text="{}", subject="orders-value")
    call = cast(Call, SimpleNamespace(site=SimpleNamespace(schemas=None)))
    with pytest.raises(Problem, match="start it with --schema-registry"):
        await by_its_schema(call, "the value", by_schema)
    header = GivenHeader(name="a", value=by_schema)
    with pytest.raises(Problem, match="the header a is not schema: only a key or a value"):
        record_of(GivenRecord(key=None, value=None, headers=[header]))


def test_a_mistyped_field_is_refused() -> None:
    """Without this a `valeu` would write a tombstone."""
    with pytest.raises(Problem, match="valeu"):
        decoded(b'{"key": null, "value": null, "valeu": null}', GivenRecord)
    with pytest.raises(Problem, match="value"):
        decoded(b'{"key": null}', GivenRecord)


def test_lines_are_the_records_that_consume_prints() -> None:
    record = Record(partition=2, key=b"\xff", value=None, headers=(("h", b"x"),), timestamp_ms=7)
    text = f"\n{to_line(record).decode()}\r\n\n" + '{"value": "a"}'
    assert lines_of(text) == [(2, record), (4, Record(value=b"a"))]


def test_one_wrong_line_is_named_and_nothing_is_sent() -> None:
    good = '{"value": "a"}'
    with pytest.raises(
        Problem, match="nothing is sent: line 2: the record has the unknown field valeu"
    ) as refused:
        lines_of(f'{good}\n{{"valeu": "a"}}\n{good}')
    assert refused.value.status == 400
    with pytest.raises(Problem, match="line 10: .*; and 20 more lines"):
        lines_of("\n".join(["x"] * 30))
    headers = [{"key": "a", "value": None}] * (HEADERS_MAX + 1)
    with pytest.raises(Problem, match="more than 256 headers"):
        lines_of(json.dumps({"value": "a", "headers": headers}))


def test_the_bounds_of_lines() -> None:
    good = '{"value": "a"}\n'
    assert len(lines_of(good * LINES_MAX)) == LINES_MAX
    with pytest.raises(Problem, match="1,000 records are sent at once"):
        lines_of(good * (LINES_MAX + 1))
    with pytest.raises(Problem, match="no record"):
        lines_of("\n \n")


def test_each_record_has_its_place_or_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with mock_broker(monkeypatch) as bootstrap:
        client = Client(bootstrap)
        writer = Producer({"bootstrap.servers": bootstrap})
        writer.produce("orders", b"first", partition=3)
        assert writer.flush(DONE_S) == 0
        given = [
            Record(value=b"a", partition=1),
            Record(value=b"\0" * (17 << 20)),
            Record(value=b"b", partition=1),
        ]
        first, refused, last = send_all(client, "orders", given)
        assert (first, last) == ((1, 0), (1, 1))
        assert isinstance(refused, KafkaTrouble)
        assert "too large" in str(refused).lower()
        with pytest.raises(Problem, match="has no partition 9"):
            send_all(client, "orders", [*given, Record(value=b"c", partition=9)])
        assert send(client, "orders", given[0]) == (1, 2)
        with pytest.raises(KafkaTrouble):
            send(client, "orders", given[1])


def test_a_record_without_an_answer_may_have_been_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "DELIVERY_TIMEOUT_S", 0.1)
    with mock_broker(monkeypatch, answers_after_ms=200) as bootstrap:
        client = Client(bootstrap)
        monkeypatch.setattr(sending, "numbers_of", lambda *_: [0])
        (found,) = send_all(client, "orders", [Record(value=b"a")])
        assert "may have been written or not" in str(found)


class RefusedProducer:
    """Its login is refused while a record is under way, or `early`, before the first."""

    early = False

    def __init__(self, settings: dict[str, Any]) -> None:
        self._refuse = settings["error_cb"]
        self.sent = 0

    def list_topics(self, *_: object) -> None:
        if self.early:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def poll(self, _: float) -> None:
        self._refuse(KafkaError(KafkaError._AUTHENTICATION))

    def produce(self, *_: object, **__: object) -> None:
        assert not self.early
        self.sent += 1

    def flush(self, wait_s: float) -> int:
        self.poll(wait_s)
        return self.sent


@pytest.mark.parametrize(("early", "status"), [(False, 503), (True, 401)])
def test_a_login_that_is_refused_while_a_record_is_under_way_leaves_its_outcome_unknown(
    monkeypatch: pytest.MonkeyPatch, early: bool, status: int
) -> None:
    with mock_broker(monkeypatch) as bootstrap:
        client = Client(bootstrap)
        monkeypatch.setattr(sending, "numbers_of", lambda *_: [0])
        monkeypatch.setattr(sending, "Producer", RefusedProducer)
        monkeypatch.setattr(RefusedProducer, "early", early)
        with pytest.raises(KafkaTrouble) as trouble:
            send(client, "orders", Record(value=b"a"))
    problem = problem_of(trouble.value)
    assert problem.status == status
    assert ("may have been written or not" in problem.sentence) != early
