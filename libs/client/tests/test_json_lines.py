"""A record as a line of JSON: nothing is lost on the way out and in again, and a mistake never becomes a tombstone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.client.json_lines import LineWrong, Record, from_line, to_line

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
DATA = st.none() | st.binary(max_size=20) | TEXT.map(str.encode)
RECORDS = st.builds(
    Record,
    topic=TEXT,
    partition=st.integers(0, (1 << 31) - 1),
    offset=st.integers(0, (1 << 63) - 1),
    timestamp_ms=st.none() | st.integers(1, (1 << 63) - 1),
    key=DATA,
    value=DATA,
    headers=st.lists(st.tuples(TEXT, DATA), max_size=3).map(tuple),
)


@given(RECORDS)
def test_what_is_written_is_read_as_the_same_record(record: Record) -> None:
    line = to_line(record)
    assert b"\n" not in line
    assert from_line(line) == record


def test_a_line_shows_text_as_text_other_bytes_as_base64_and_a_tombstone_as_null() -> None:
    record = Record(
        topic="t",
        partition=1,
        offset=2,
        timestamp_ms=3,
        key=b"\xff\xfe\x00",
        value=None,
        headers=(("h", "ü".encode()), ("h", b"\x80"), ("n", None)),
    )
    assert json.loads(to_line(record)) == {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": 3,
        "key_base64": "//4A",
        "value": None,
        "headers": [
            {"key": "h", "value": "ü"},
            {"key": "h", "value_base64": "gA=="},
            {"key": "n", "value": None},
        ],
    }
    assert b"\xc3\xbc" in to_line(record), "a person reads it"


def test_of_a_line_that_a_person_writes_only_the_value_is_needed() -> None:
    assert from_line(b'{"value": ""}') == Record(value=b"")
    assert from_line(b'{"key": "k", "value": null}') == Record(key=b"k")
    assert from_line(b'{"value": "v", "headers": null, "partition": null, "timestamp": null}') == Record(
        value=b"v"
    )


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "no JSON object"),
        ("{}", "neither value nor value_base64"),
        ('{"key": "k", "valeu": "v"}', "unknown field valeu"),
        ('{"value": {"a": 1}}', "value is neither text nor null"),
        ('{"value": 1}', "value is neither text nor null"),
        ('{"value": "a", "value_base64": "YQ=="}', "both value and value_base64"),
        ('{"value_base64": "a!"}', "value_base64 is not base64"),
        ('{"value_base64": "YQ"}', "value_base64 is not base64"),
        ('{"value_base64": "é"}', "value_base64 is not base64"),
        ('{"value": "\\ud800"}', "value is no valid text"),
        ('{"value": "v", "partition": -1}', "partition is neither"),
        ('{"value": "v", "partition": true}', "partition is neither"),
        ('{"value": "v", "timestamp": 1.5}', "timestamp is neither"),
        ('{"value": "v", "timestamp": 0}', "timestamp is neither a whole number from 1"),
        ('{"value": "v", "topic": 1}', "topic is neither"),
        ('{"value": "v", "headers": {"a": "b"}}', "headers is no list of objects"),
        ('{"value": "v", "headers": [{"value": "b"}]}', "a header has no key"),
        ('{"value": "v", "headers": [{"key": "a", "val": "b"}]}', "unknown field val"),
    ],
)
def test_a_line_that_is_no_record_says_why(line: str, why: str) -> None:
    with pytest.raises(LineWrong, match=why):
        from_line(line.encode())
