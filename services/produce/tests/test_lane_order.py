"""The order of a lane across a redirect."""

from __future__ import annotations

from kafscale.produce.requests import LANE_KEPT_MS, LANES_MAX, LaneOrder
from kafscale.storage.keys import TopicId

TOPIC = TopicId(bytes(16))
LANE = (1, TOPIC, 0)


def test_after_a_refusal_the_lane_is_refused_until_its_epoch_rises() -> None:
    order = LaneOrder()
    order.redirected(LANE, 3, 0)
    assert [order.refuses(LANE, epoch) for epoch in (2, 3)] == [True, True]
    assert not order.refuses(LANE, 4)
    assert not order.refuses(LANE, 4)


def test_other_lanes_are_not_touched() -> None:
    order = LaneOrder()
    order.redirected(LANE, 3, 0)
    assert not order.refuses((2, TOPIC, 0), 0)
    assert not order.refuses((1, TOPIC, 1), 0)


def test_a_late_refusal_of_an_older_epoch_does_not_open_the_lane() -> None:
    order = LaneOrder()
    order.redirected(LANE, 5, 0)
    order.redirected(LANE, 4, 1)
    assert order.refuses(LANE, 5)


def test_refusals_are_forgotten_after_a_while_and_never_pile_up() -> None:
    order = LaneOrder()
    order.redirected(LANE, 1, 0)
    order.redirected((2, TOPIC, 0), 1, LANE_KEPT_MS)
    assert len(order) == 1
    for connection in range(LANES_MAX + 100):
        order.redirected((connection, TOPIC, 7), 1, LANE_KEPT_MS)
    assert len(order) == LANES_MAX
