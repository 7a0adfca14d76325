"""Positions, lists of partitions and times, as options give them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.operations.positions import (
    Base,
    Position,
    PositionWrong,
    chosen,
    limited,
    parse_partitions,
    parse_position,
    parse_time,
)

NOW_MS = 1_769_850_000_000
EIGHT_MS = 1_769_846_400_000


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("beginning", Position(Base.BEGINNING)),
        ("start", Position(Base.BEGINNING)),
        ("earliest", Position(Base.BEGINNING)),
        ("end", Position(Base.END)),
        ("latest", Position(Base.END)),
        ("42", Position(Base.ZERO, 42)),
        ("+10", Position(Base.BEGINNING, 10)),
        ("-10", Position(Base.END, -10)),
        ("2026-01-31T08:00", Position(Base.TIME, EIGHT_MS)),
        ("@2026-01-31T09:00+01:00", Position(Base.TIME, EIGHT_MS)),
        ("2026-01-31T08:00Z", Position(Base.TIME, EIGHT_MS)),
        ("@1769846400000", Position(Base.TIME, EIGHT_MS)),
        ("-1h", Position(Base.TIME, NOW_MS - 3_600_000)),
        ("@-90s", Position(Base.TIME, NOW_MS - 90_000)),
        ("-1.5d", Position(Base.TIME, NOW_MS - 129_600_000)),
        ("-100000d", Position(Base.TIME, 0)),
    ],
)
def test_a_position_is_read(text: str, position: Position) -> None:
    assert parse_position(text, NOW_MS) == position


@pytest.mark.parametrize(
    "text", ["", "@", "yesterday", "--1", "1.5", "-", "+", "+1h", "1h", "²", "beginning+1"]
)
def test_what_is_no_position_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(PositionWrong, match="beginning, end, N"):
        parse_position(text, NOW_MS)


POSITIONS = st.builds(Position, st.sampled_from(Base), st.integers(-(10**20), 10**20))
BOUNDS = st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)).map(sorted)


@given(POSITIONS, BOUNDS, st.none() | st.integers(0, 10**6))
def test_every_position_becomes_an_offset_of_the_log(
    position: Position, bounds: list[int], at_time: int | None
) -> None:
    start, end = bounds
    assert start <= limited(position, start, end, at_time) <= end


@pytest.mark.parametrize(
    ("text", "at_time", "offset"),
    [
        ("beginning", None, 100),
        ("end", None, 200),
        ("150", None, 150),
        ("7", None, 100),
        ("+7", None, 107),
        ("-7", None, 193),
        ("-700", None, 100),
        ("+700", None, 200),
        ("-1h", 123, 123),
        ("-1h", None, 200),
    ],
)
def test_where_a_position_is_in_a_log_from_100_to_200(text: str, at_time: int | None, offset: int) -> None:
    assert limited(parse_position(text, NOW_MS), 100, 200, at_time) == offset


def test_a_time_without_a_zone_is_utc_and_words_are_no_time() -> None:
    assert parse_time("2026-01-31", NOW_MS) == 1_769_817_600_000
    assert parse_time("1960-01-01", NOW_MS) == 0
    assert parse_time("soon", NOW_MS) is None


def test_a_list_of_partitions() -> None:
    assert parse_partitions(["0,2", "5-7", " 9"]) == {0, 2, 5, 6, 7, 9}
    for wrong in ("", "a", "-1", "1-", "3-1", "0,,1", "0-9999999999"):
        with pytest.raises(PositionWrong):
            parse_partitions([wrong])


def test_partitions_that_a_topic_does_not_have_are_named() -> None:
    assert chosen("t", [2, 0, 1], None) == [0, 1, 2]
    assert chosen("t", [2, 0, 1], frozenset({2, 0})) == [0, 2]
    with pytest.raises(PositionWrong, match="^topic 't' has no partition 3$"):
        chosen("t", [0, 1, 2], frozenset({0, 3, 4}))
