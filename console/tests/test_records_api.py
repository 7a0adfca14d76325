"""The query of a page of records, and what a record is copied as."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka import IsolationLevel
from kafscale.client import json_lines
from kafscale.client.admin_client import Client
from kafscale.client.topics import EARLIEST
from kafscale.console.answers import Problem
from kafscale.console.api.records import ask_of, command_of, json_record, row_of
from kafscale.console.api.showing import Showing
from kafscale.console.records import cursor
from kafscale.console.records import page as page_module
from kafscale.console.records.merge import Span, Walk
from kafscale.console.records.page import Page, page_of_records
from kafscale.console.records.reading import Record

RECORD = Record(
    partition=1,
    offset=7,
    timestamp_ms=-1,
    timestamp_kind=None,
    key=b"\xff",
    value=None,
    headers=(("a", None), ("b", b"x")),
    leader_epoch=None,
)


def test_a_plain_address_is_the_newest_page_of_all_partitions_without_uncommitted_records() -> None:
    ask = ask_of("orders", {})
    assert (ask.partition, ask.walk, ask.committed, ask.cut) == (None, Walk.OLDER, True, None)


def test_a_cursor_comes_with_its_own_direction() -> None:
    ask = ask_of("orders", {"from": "newest", "cursor": cursor.to_text({0: 5}), "walk": "newer"})
    assert (ask.walk, ask.cut) == (Walk.NEWER, {0: 5})


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"from": "middle"}, "from is one of newest, oldest, offset, time"),
        ({"from": "time", "at": "soon"}, "at is a time: "),
        ({"from": "offset", "at": "-1"}, "at is a whole number from 0"),
        ({"cursor": "!"}, "cursor: "),
        ({"cursor": "AAA", "walk": "up"}, "walk is one of older, newer"),
        ({"limit": "501"}, "limit is 500 at most"),
        ({"partition": "x"}, "partition is a whole number"),
        ({"isolation": "dirty"}, "isolation is one of committed, uncommitted"),
    ],
)
def test_a_wrong_query_is_a_sentence(query: dict[str, str], sentence: str) -> None:
    with pytest.raises(Problem, match=sentence) as refused:
        ask_of("orders", query)
    assert refused.value.status == 400


def test_the_ends_of_the_logs_have_no_further_page() -> None:
    logs = {0: Span(3, 9), 1: Span(0, 8)}
    page = Page(logs=logs, begin={0: 9, 1: 8}, end={0: 3, 1: 7}, records=[RECORD], stopped=None, deleted=0)
    showing = Showing()
    row = row_of(page, Walk.OLDER, showing)
    assert (cursor.from_text(row["older"]), row["at_end"]) == ({0: 3, 1: 7}, True)
    page.end = {0: 3, 1: 0}
    assert row_of(page, Walk.OLDER, showing)["older"] is None
    assert row["items"][0]["timestamp_ms"] is None
    assert row["items"][0]["headers"][0]["value"]["format"] == "null"


@pytest.mark.parametrize("committed", [True, False])
def test_an_empty_page_of_committed_records_counts_what_waits_for_open_transactions(
    monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    def offsets_at(
        _: Client, places: list[tuple[str, int]], time_ms: int, isolation: IsolationLevel | None = None
    ) -> dict[tuple[str, int], SimpleNamespace]:
        stable = isolation is IsolationLevel.READ_COMMITTED
        end = 5 if time_ms == EARLIEST or stable else 8
        return {place: SimpleNamespace(offset=end) for place in places}

    monkeypatch.setattr(page_module, "numbers_of", lambda *_: [0, 1])
    monkeypatch.setattr(page_module, "offsets_at", offsets_at)
    monkeypatch.setattr(page_module, "walked", lambda *_, **__: None)
    monkeypatch.setattr(page_module, "states_of", lambda *_: {})
    query = {} if committed else {"isolation": "uncommitted"}
    page = page_of_records(cast(Client, None), ask_of("orders", query))
    assert row_of(page, Walk.OLDER, Showing())["waiting"] == (2 * 3 if committed else 0)


def test_a_copy_as_json_is_a_line_that_produce_reads() -> None:
    line = json_lines.to_line(json_record("orders", RECORD))
    read = json_lines.from_line(line)
    assert (read.topic, read.partition, read.offset, read.timestamp_ms) == ("orders", 1, 7, None)
    assert (read.key, read.value, read.headers) == (RECORD.key, RECORD.value, RECORD.headers)


def test_a_command_is_quoted_for_a_shell() -> None:
    assert shlex.split(command_of("-x; rm", 3, 9))[-2:] == ["--", "-x; rm"]
