"""Records of one topic at another: their bytes, their headers, and a report of each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafscale.client.admin_client import ANSWER_TIMEOUT_S, Client, KafkaTrouble
from kafscale.console.answers import Problem
from kafscale.console.api.redrive import GivenRedrive, ask_of
from kafscale.console.records import redrive as module
from kafscale.console.records.merge import Walk
from kafscale.console.records.page import Ask, page_of_records
from kafscale.console.records.reading import Record
from kafscale.console.records.redrive import Redrive, redrive, rows_of
from kafscale.testkit.mock_kafka import mock_broker

HEADERS: list[tuple[str, str | bytes | None]] = [("trace", b"\xff"), ("error", b"x"), ("trace", None)]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Record n of `dead` is at partition n % 2, with the key n; `orders` has one record."""
    with mock_broker(monkeypatch) as bootstrap:
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("orders", b"first", partition=3)
        for number in range(600):
            producer.produce("dead", b"\x00%d" % number, b"%d" % number, number % 2, headers=HEADERS)
        assert producer.flush(ANSWER_TIMEOUT_S) == 0
        yield Client(bootstrap)


def asked(*places: tuple[int, int], **more: object) -> Redrive:
    fields: dict[str, object] = {"headers": None, "committed": True, "to": "orders", **more}
    return Redrive(topic="dead", places=places, **fields)  # type: ignore[arg-type]


def orders(client: Client) -> dict[tuple[int, int], Record]:
    ask = Ask(topic="orders", partition=None, walk=Walk.NEWER, limit=500, committed=True)
    return {(record.partition, record.offset): record for record in page_of_records(client, ask).records}


def test_records_keep_their_bytes_and_each_has_its_new_place_or_its_reason(kafka: Client) -> None:
    """Over a gap that is longer than what is read along, and past the end."""
    outcomes = redrive(kafka, asked((0, 5), (1, 0), (1, 299), (0, 6), (1, 300)))
    assert list(outcomes) == [(0, 5), (0, 6), (1, 0), (1, 299), (1, 300)]
    written = orders(kafka)
    for (partition, offset), number in {(0, 5): 10, (0, 6): 12, (1, 0): 1, (1, 299): 599}.items():
        place = outcomes[partition, offset]
        assert isinstance(place, tuple)
        record = written[place]
        assert (record.key, record.value) == (b"%d" % number, b"\x00%d" % number)
        assert record.headers == tuple(HEADERS)
    last = rows_of(outcomes)[-1]
    assert (last["to_partition"], last["to_offset"]) == (None, None)
    assert "there is no such record" in str(last["sentence"])


@pytest.mark.parametrize(("kept", "left"), [((), ()), (("trace",), (("trace", b"\xff"), ("trace", None)))])
def test_only_the_chosen_headers_are_kept(kafka: Client, kept: tuple[str, ...], left: object) -> None:
    place = redrive(kafka, asked((0, 0), headers=kept))[0, 0]
    assert isinstance(place, tuple)
    assert orders(kafka)[place].headers == left


def test_what_was_not_read_is_not_sent_and_says_so(kafka: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READ_S", 0.0)
    assert "not read in the time" in str(redrive(kafka, asked((0, 0)))[0, 0])
    assert len(orders(kafka)) == 1


def test_a_topic_or_a_partition_that_does_not_exist_is_refused_before_anything_is_read(kafka: Client) -> None:
    with pytest.raises(KafkaTrouble, match="does not exist"):
        redrive(kafka, asked((0, 0), to="none"))
    with pytest.raises(Problem, match="topic 'dead' has no partition 9"):
        redrive(kafka, asked((9, 0)))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (GivenRedrive(to="dead", records=[(0, 0)]), "another topic"),
        (GivenRedrive(to="orders", records=[]), "1 to 500 records"),
        (GivenRedrive(to="orders", records=[(0, 0)] * 501), "1 to 500 records"),
        (GivenRedrive(to="orders", records=[(-1, 0)]), "whole numbers from 0"),
        (GivenRedrive(to="orders", records=[(0, 1 << 63)]), "whole numbers from 0"),
        (GivenRedrive(to="orders", records=[(0, 0)], headers=["a"] * 257), "256 names"),
    ],
)
def test_a_wrong_request_is_a_sentence(given: GivenRedrive, sentence: str) -> None:
    with pytest.raises(Problem, match=sentence):
        ask_of("dead", given)
