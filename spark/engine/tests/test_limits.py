"""How a limit is shared out, and what waits."""

from __future__ import annotations

import random

from kafscale_spark.streaming import backlog, capped, dump, load, shared

ONE, TWO, THREE = ("a", 0), ("a", 1), ("b-c", 0)


def test_offsets_are_written_in_one_order_and_read_back() -> None:
    offsets = {THREE: 7, TWO: 1, ONE: 0}
    assert list(dump(offsets)) == ["a:0", "a:1", "b-c:0"]
    assert load(dump(offsets)) == offsets


def test_a_limit_is_met_to_the_offset_and_nobody_waits_for_ever() -> None:
    chance = random.Random(5)
    for _ in range(50):
        first = {place: chance.randrange(50) for place in (ONE, TWO, THREE)}
        end = {place: first[place] + chance.choice([0, 1, 7, 300]) for place in first}
        most = chance.randrange(1, 60)
        while first != end:
            now = shared(first, end, most)
            assert all(first[place] <= now[place] <= end[place] for place in end)
            assert sum(now.values()) - sum(first.values()) == min(most, sum(backlog(first, end).values()))
            first = now


def test_shares_follow_the_backlog() -> None:
    assert shared({ONE: 0, TWO: 100}, {ONE: 300, TWO: 200}, 100) == {ONE: 75, TWO: 125}


def test_what_came_after_the_target_is_left_for_another_time() -> None:
    assert capped({ONE: 9, TWO: 3, THREE: 4}, {ONE: 5, TWO: 4}) == {ONE: 5, TWO: 3}


def test_a_partition_that_ends_before_what_was_read_of_it_is_another_one() -> None:
    assert backlog({ONE: 50}, {ONE: 10, TWO: 3}) == {ONE: 10, TWO: 3}
    assert shared({ONE: 50}, {ONE: 10}, 4) == {ONE: 4}
