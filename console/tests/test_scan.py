"""A search by a consumer finds what a plain list finds, goes on where it stopped, and has its bounds (R5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer
from hypothesis import given
from hypothesis import strategies as st
from kafscale.client.admin_client import ANSWER_TIMEOUT_S, Client
from kafscale.console.answers import Problem, Row
from kafscale.console.records import cursor, scan
from kafscale.console.records.merge import Merge, Span, Walk
from kafscale.console.records.reading import Record
from kafscale.console.records.scan import SCANS_MAX, Scans, Sought, bounds, chosen, scanned
from kafscale.testkit.mock_kafka import PARTITIONS, mock_broker

EVERY_PARTITION = Sought(
    topic="orders", text="x", partition=None, since_ms=None, until_ms=None, cut={}, committed=True
)


def record(partition: int, offset: int, timestamp_ms: int, value: bytes | None) -> Record:
    return Record(
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        timestamp_kind="create",
        key=None,
        value=value,
        headers=(),
        leader_epoch=None,
    )


def test_a_text_is_found_in_keys_and_values_whatever_the_case() -> None:
    sought = replace(EVERY_PARTITION, text="größe", since_ms=5, until_ms=9)
    found = record(0, 0, 5, "Eine GRÖSSE, die GRÖßE heißt".encode())
    assert sought.fits(found)
    assert sought.fits(replace(found, value=None, key="größe".encode()))
    assert not sought.fits(replace(found, value=b"\xff\xfe"))
    assert not sought.fits(replace(found, value=None))
    assert not sought.fits(replace(found, timestamp_ms=4))
    assert not sought.fits(replace(found, timestamp_ms=9))


LOGS = st.lists(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=12), min_size=1, max_size=3)


@given(LOGS, st.integers(1, 5), st.integers(1, 7))
def test_steps_of_any_length_find_each_hit_once_and_end_with_all_of_them(
    logs: list[list[tuple[int, bool]]], hits_max: int, step_records: int
) -> None:
    """Also if one step has more hits than a search may find, and another goes on at its cut."""
    records = {
        number: [record(number, offset, ms, b"x" if hit else b"-") for offset, (ms, hit) in enumerate(log)]
        for number, log in enumerate(logs)
    }
    spans = {number: Span(0, len(log)) for number, log in records.items()}
    at = {number: len(log) for number, log in records.items()}
    found: list[tuple[int, int]] = []
    while any(at.values()):
        merge: Merge[Record] = Merge(Walk.OLDER, spans, at, step_records)
        while windows := merge.wanted():
            for number, window in windows.items():
                merge.give(number, window, records[number][window.start : window.end])
        done = chosen(EVERY_PARTITION, merge.shown, at, merge.cut(), hits_max)
        assert len(done.found) <= hits_max
        assert done.full == (done.at != merge.cut())
        assert done.at != at
        found += [(each.partition, each.offset) for each in done.found]
        at = done.at
    hits = [(each.partition, each.offset) for log in records.values() for each in log if each.value == b"x"]
    assert sorted(found) == sorted(hits)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    with mock_broker(monkeypatch) as bootstrap:
        yield Client(bootstrap)


def written(client: Client, count: int) -> None:
    """Record n has the value n, the time of n seconds after 1970, and is in partition n % PARTITIONS."""
    producer = Producer({"bootstrap.servers": client.bootstrap})
    for number in range(count):
        producer.produce("orders", f"<{number}>", None, number % PARTITIONS, timestamp=(number + 1) * 1_000)
    assert producer.flush(ANSWER_TIMEOUT_S) == 0


async def lines(client: Client, sought: Sought, now_s: Callable[[], float] = lambda: 0.0) -> list[Row]:
    async def run(work: Callable[..., Any], *more: Any) -> Any:
        return work(client, *more)

    return [line async for line in scanned(run, sought, bounds(client, sought), now_s)]


def values(said: Sequence[Row]) -> list[str]:
    return [hit["value"]["text"] for line in said for hit in line.get("hits", [])]


async def test_a_search_reads_all_or_says_where_it_goes_on(
    kafka: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(kafka, 90)
    said = await lines(kafka, replace(EVERY_PARTITION, text="7>"))
    assert values(said) == [f"<{number}>" for number in range(87, 0, -10)]
    assert (said[-1]["end"], said[-1]["read"], said[-1]["records"]) == ("end", 90, 90)
    monkeypatch.setattr(scan, "HITS_MAX", 4)
    first = await lines(kafka, replace(EVERY_PARTITION, text="7>"))
    assert (first[-1]["end"], values(first)) == ("hits", ["<87>", "<77>", "<67>", "<57>"])
    rest = replace(EVERY_PARTITION, text="7>", cut=cursor.from_text(first[-1]["cursor"]))
    monkeypatch.setattr(scan, "HITS_MAX", 9)
    assert values(await lines(kafka, rest)) == ["<47>", "<37>", "<27>", "<17>", "<7>"]
    first_late_enough = {
        ("orders", number): SimpleNamespace(offset=14 + (number != 3)) for number in range(4)
    }
    monkeypatch.setattr(scan, "offsets_at", lambda *_: first_late_enough)  # the mock knows no times
    recent = await lines(kafka, replace(EVERY_PARTITION, text="7>", since_ms=60_000))
    assert values(recent) == ["<87>", "<77>", "<67>"]
    assert recent[-1]["records"] == 31


@pytest.mark.parametrize("bound", ["time", "bytes"])
async def test_a_search_ends_at_its_bounds(
    kafka: Client, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    written(kafka, 40)
    monkeypatch.setattr(scan, "STEP_RECORDS", 10)
    monkeypatch.setattr(scan, "READ_BYTES_MAX", 30 if bound == "bytes" else 1 << 20)
    clock = iter([0.0, 1.0, 99.0, 99.0]) if bound == "time" else iter([0.0] * 9)
    said = await lines(kafka, replace(EVERY_PARTITION, text="<"), lambda: next(clock))
    assert said[-1]["end"] == bound
    assert (said[-1]["found"], said[-1]["read"]) == (10, 10)
    monkeypatch.setattr(scan, "READ_BYTES_MAX", 1 << 20)
    rest = await lines(kafka, replace(EVERY_PARTITION, text="<3>", cut=cursor.from_text(said[-1]["cursor"])))
    assert values(rest) == ["<3>"]


def test_a_session_has_one_search_and_the_console_a_few() -> None:
    scans = Scans()
    with scans.room("a"):
        with pytest.raises(Problem, match="your other search"), scans.room("a"):
            raise AssertionError("it has room")
        with scans.room("b"), pytest.raises(Problem, match="others search") as busy, scans.room("c"):
            raise AssertionError("it has room")
    assert (busy.value.status, SCANS_MAX) == (429, 2)
    with scans.room("a"):
        assert True
