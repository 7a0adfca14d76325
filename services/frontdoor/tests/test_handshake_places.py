"""The laws of places for handshakes: a bound, an order, and nobody who stops holds up the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafscale.frontdoor.listeners.handshake_turns import HandshakePlaces

HOLD_MS = 100


def places(count: int) -> HandshakePlaces[int]:
    return HandshakePlaces(count, HOLD_MS)


def test_beyond_the_places_the_first_to_come_is_the_first_to_begin() -> None:
    two = places(2)
    assert [two.ask(n, 0) for n in range(4)] == [True, True, False, False]
    assert two.due(1) == []
    two.leave(1)
    assert not two.ask(4, 2), "those that waited come first"
    assert two.due(2) == [2]
    two.leave(0)
    assert two.due(3) == [3]


def test_a_handshake_that_waits_for_its_client_gives_its_place() -> None:
    one = places(1)
    assert one.ask(0, 0)
    assert not one.ask(1, HOLD_MS - 1)
    assert one.due(HOLD_MS - 1) == []
    assert one.due(HOLD_MS) == [1]
    one.leave(0)
    assert not one.ask(2, HOLD_MS), "its end makes no second place"


def test_who_leaves_while_it_waits_never_begins() -> None:
    one = places(1)
    for n in range(3):
        one.ask(n, 0)
    one.leave(1)
    one.leave(0)
    assert one.due(0) == [2]
    assert one.waiting == 0


@given(st.lists(st.tuples(st.sampled_from(["ask", "leave", "due"]), st.integers(0, 9), st.integers(0, 60))))
def test_the_bound_holds_for_young_handshakes_and_everybody_begins(
    steps: list[tuple[str, int, int]],
) -> None:
    three = places(3)
    now_ms = 0
    began: dict[int, int] = {}
    asked: dict[int, None] = {}
    for what, number, later_ms in steps:
        now_ms += later_ms
        if what == "ask" and number not in asked:
            asked[number] = None
            if three.ask(number, now_ms):
                began[number] = now_ms
        elif what == "leave":
            three.leave(number)
            began.pop(number, None)
            asked.pop(number, None)
        elif what == "due":
            due = three.due(now_ms)
            assert due == [n for n in asked if n not in began][: len(due)]
            began |= dict.fromkeys(due, now_ms)
        assert sum(now_ms - since < HOLD_MS for since in began.values()) <= 3
    rounds = 0
    while three.waiting:
        now_ms += HOLD_MS
        began |= dict.fromkeys(three.due(now_ms), now_ms)
        rounds += 1
        assert rounds < 10
    assert began.keys() == asked.keys()
