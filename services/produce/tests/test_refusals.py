"""The order of a lane across a redirect."""

from __future__ import annotations

from kafscale.produce.refusals import REFUSAL_KEPT_MS, REFUSALS_MAX, Refusals
from kafscale.storage.keys import TopicId

TOPIC = TopicId(bytes(16))
LANE = (1, TOPIC, 0)


def test_after_a_refusal_the_lane_is_refused_until_its_epoch_rises() -> None:
    refusals = Refusals()
    refusals.add(LANE, 3, 0)
    assert [refusals.refuses(LANE, epoch) for epoch in (2, 3)] == [True, True]
    assert not refusals.refuses(LANE, 4)
    assert not refusals.refuses(LANE, 4)


def test_other_lanes_are_not_touched() -> None:
    refusals = Refusals()
    refusals.add(LANE, 3, 0)
    assert not refusals.refuses((2, TOPIC, 0), 0)
    assert not refusals.refuses((1, TOPIC, 1), 0)


def test_a_late_refusal_of_an_older_epoch_does_not_open_the_lane() -> None:
    refusals = Refusals()
    refusals.add(LANE, 5, 0)
    refusals.add(LANE, 4, 1)
    assert refusals.refuses(LANE, 5)


def test_refusals_are_forgotten_after_a_while_and_never_pile_up() -> None:
    refusals = Refusals()
    refusals.add(LANE, 1, 0)
    refusals.add((2, TOPIC, 0), 1, REFUSAL_KEPT_MS)
    assert len(refusals) == 1
    for connection in range(REFUSALS_MAX + 100):
        refusals.add((connection, TOPIC, 7), 1, REFUSAL_KEPT_MS)
    assert len(refusals) == REFUSALS_MAX
