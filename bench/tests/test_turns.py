from __future__ import annotations

import pytest

from bench.__main__ import not_measured, turns
from bench.lines import PARTS
from bench.results import Line

NAMES = ("kafscale-dir", "kafka-flush", "kafka", "kafscale-s3", "kafscale-s3-far")


@pytest.mark.parametrize("rounds", [1, 2, 3, 7])
def test_each_system_has_each_part_once_in_each_round(rounds: int) -> None:
    found = list(turns(rounds, NAMES))
    assert len(found) == len(set(found)) == rounds * len(PARTS) * len(NAMES)
    assert [turn[:2] for turn in found] == sorted(turn[:2] for turn in found), "part by part"


def test_no_system_is_the_first_of_a_part_in_two_of_three_rounds() -> None:
    first = [[name for number, part, name in turns(3, NAMES) if part == one] for one in range(len(PARTS))]
    for names in first:
        assert len({names[0], names[len(NAMES)], names[2 * len(NAMES)]}) == 3


def test_systems_keep_their_neighbours() -> None:
    """Two systems that are compared stand beside one another in the command, so that they run a minute apart."""
    for number in range(3):
        ordered = [name for n, part, name in turns(3, NAMES) if (n, part) == (number, 0)]
        first = ordered.index(NAMES[0])
        assert (*ordered[first:], *ordered[:first]) == NAMES


def test_a_run_that_goes_on_measures_only_what_it_has_not() -> None:
    """It began with one line, and had its first round."""
    both = {Line.ONE_PARTITION, Line.ONE_REQUEST}
    found = {Line.ONE_PARTITION: [(1.0,)]}
    assert not_measured(both, found, 0) == {Line.ONE_REQUEST}
    assert not_measured(both, found, 1) == both
