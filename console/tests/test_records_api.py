"""The query of a page of records, and what a record is copied as."""

from __future__ import annotations

import shlex

import pytest
from kafscale.client import json_lines
from kafscale.console.answers import Problem
from kafscale.console.api.records import ask_of, command_of, json_record, row_of
from kafscale.console.api.showing import Showing
from kafscale.console.records import cursor
from kafscale.console.records.merge import Span, Walk
from kafscale.console.records.page import Page
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


def test_a_copy_as_json_is_a_line_that_produce_reads() -> None:
    line = json_lines.to_line(json_record("orders", RECORD))
    read = json_lines.from_line(line)
    assert (read.topic, read.partition, read.offset, read.timestamp_ms) == ("orders", 1, 7, None)
    assert (read.key, read.value, read.headers) == (RECORD.key, RECORD.value, RECORD.headers)


def test_a_command_is_quoted_for_a_shell() -> None:
    assert shlex.split(command_of("-x; rm", 3, 9))[-2:] == ["--", "-x; rm"]
