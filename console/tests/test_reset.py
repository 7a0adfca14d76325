"""Law G1 and the bounds of a reset: the rows of a preview are what is sent, within the log, and say what is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.console.reset import (
    Aim,
    AimWrong,
    Bounds,
    Place,
    commands,
    moved,
    parse_csv,
    planned,
    time_of,
    wishes,
)

OFFSETS = st.integers(0, 20)
PLACES = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2))
LOGS = st.tuples(OFFSETS, OFFSETS).map(lambda pair: Bounds(min(pair), max(pair)))
ORDERS = ("orders", 0)


@given(
    st.dictionaries(PLACES, OFFSETS),
    st.dictionaries(PLACES, LOGS),
    st.dictionaries(PLACES, st.integers(-9, 30)),
)
def test_a_row_says_which_records_are_read_again_and_which_are_skipped(
    before: dict[Place, int], logs: dict[Place, Bounds], wanted: dict[Place, int]
) -> None:
    rows = planned(before, logs, wanted)
    assert [(row.topic, row.partition) for row in rows] == sorted(wanted.keys() & logs.keys())
    assert moved(rows, before) == []
    for row in rows:
        place = row.topic, row.partition
        log = logs[place]
        stored = set(range(log.start, log.end))
        assert log.start <= row.after <= log.end
        assert (row.wanted is None) == (row.after == wanted[place])
        if row.before is None:
            assert (row.again, row.skips) == (0, 0)
            continue
        unread = {offset for offset in stored if offset >= row.before}
        then = {offset for offset in stored if offset >= row.after}
        assert (row.again, row.skips) == (len(then - unread), len(unread - then))


@given(st.dictionaries(PLACES, OFFSETS, min_size=1), PLACES, st.none() | OFFSETS)
def test_a_group_that_committed_anything_meanwhile_has_moved(
    before: dict[Place, int], place: Place, now: int | None
) -> None:
    rows = planned(before, dict.fromkeys([*before, place], Bounds(0, 20)), dict.fromkeys([*before, place], 5))
    later = (
        {**before, place: now} if now is not None else {key: at for key, at in before.items() if key != place}
    )
    assert moved(rows, later) == ([place] if later.get(place) != before.get(place) else [])


def test_a_shift_needs_an_offset_and_stays_in_the_chosen_partitions() -> None:
    before = {ORDERS: 10, ("other", 0): 3}
    assert wishes(Aim(to="shift", by=-4), before, [ORDERS, ("orders", 1)]) == {ORDERS: 6}
    with pytest.raises(AimWrong, match="number of records"):
        wishes(Aim(to="shift"), before, [ORDERS])


def test_a_duration_ends_now_and_begins_in_1970_at_the_earliest() -> None:
    assert time_of(Aim(to="duration", ago_ms=400), 1_000) == 600
    assert time_of(Aim(to="duration", ago_ms=4_000), 1_000) == 0
    assert time_of(Aim(to="time", at_ms=7), 1_000) == 7
    for aim in (Aim(to="duration", at_ms=7), Aim(to="time", ago_ms=7)):
        with pytest.raises(AimWrong, match="give"):
            time_of(aim, 1_000)


def test_exact_offsets_are_lines_as_kafka_exports_them() -> None:
    assert parse_csv('orders,0,7\n\n"or.ders" , 11, 0\n') == {ORDERS: 7, ("or.ders", 11): 0}


@pytest.mark.parametrize(
    "text", ["", "\n", "orders,0", "orders,0,-1", "orders,0,٣", "orders,0,1,2", "orders,x,1"]
)
def test_a_line_that_is_none_is_a_sentence(text: str) -> None:
    with pytest.raises(AimWrong, match="topic,partition,offset"):
        parse_csv(text)


def test_the_commands_name_the_same_offsets_and_quote_names() -> None:
    logs = {ORDERS: Bounds(0, 9), ("orders", 1): Bounds(0, 9), ("t", 0): Bounds(2, 9)}
    rows = planned({}, logs, dict.fromkeys(logs, 0))
    counts = {"orders": 2, "t": 3}
    assert commands("it's", Aim(to="earliest"), rows, counts) == [
        """kafscale groups reset-offsets 'it'"'"'s' -t orders --to earliest""",
        """kafscale groups reset-offsets 'it'"'"'s' -t t -p 0 --to 2""",
    ]
    assert commands("g", Aim(to="time", at_ms=1_500), rows[:2], counts) == [
        "kafscale groups reset-offsets g -t orders --to 1970-01-01T00:00:01.500+00:00"
    ]
    assert commands("g", Aim(to="shift", by=1), rows[:1], counts) == [
        "kafscale groups reset-offsets g -t orders -p 0 --to 0"
    ]
