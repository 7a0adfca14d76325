"""The laws of limits: bounds in all and of one address, and newcomers who have asked nothing make room."""

from hypothesis import given
from hypothesis import strategies as st
from kafscale.frontdoor.listeners.connection_limits import ConnectionLimits


def test_a_newcomer_takes_the_place_of_the_oldest_that_has_asked_nothing() -> None:
    limits: ConnectionLimits[int] = ConnectionLimits(3, 3)
    assert [limits.enter(n, "a") for n in range(3)] == [(True, None)] * 3
    limits.settled(0)
    assert limits.enter(3, "b") == (True, 1)
    assert len(limits) == 3


def test_where_everybody_has_asked_something_the_newcomer_is_turned_away() -> None:
    limits: ConnectionLimits[int] = ConnectionLimits(2, 2)
    for n in range(2):
        limits.enter(n, "a")
        limits.settled(n)
    assert limits.enter(2, "b") == (False, None)
    limits.leave(0)
    assert limits.enter(2, "b") == (True, None)


def test_an_address_that_is_full_makes_room_among_its_own() -> None:
    limits: ConnectionLimits[int] = ConnectionLimits(10, 2)
    limits.enter(0, "b")
    limits.enter(1, "a")
    limits.enter(2, "a")
    assert limits.enter(3, "a") == (True, 1)
    limits.settled(2)
    limits.settled(3)
    assert limits.enter(4, "a") == (False, None)
    assert limits.enter(5, "b") == (True, None)


@given(
    st.lists(
        st.tuples(st.sampled_from(["enter", "settled", "leave"]), st.integers(0, 12), st.sampled_from("abc"))
    )
)
def test_whatever_comes_no_bound_is_passed_and_nobody_who_asked_is_displaced(
    steps: list[tuple[str, int, str]],
) -> None:
    limits: ConnectionLimits[int] = ConnectionLimits(5, 2)
    inside: dict[int, str] = {}
    asked: set[int] = set()
    for what, number, address in steps:
        if what == "enter" and number not in inside:
            entered, displaced = limits.enter(number, address)
            if displaced is not None:
                assert displaced not in asked
                del inside[displaced]
            if entered:
                inside[number] = address
        elif what == "settled" and number in inside:
            limits.settled(number)
            asked.add(number)
        elif what == "leave":
            limits.leave(number)
            inside.pop(number, None)
            asked.discard(number)
        assert len(limits) == len(inside) <= 5
        assert all(list(inside.values()).count(one) <= 2 for one in "abc")


def test_an_address_may_have_a_bound_that_differs() -> None:
    limits: ConnectionLimits[int] = ConnectionLimits(10, 1, {"a": 2, "b": 0})
    assert [limits.enter(n, "a") for n in (0, 1)] == [(True, None)] * 2
    assert limits.enter(2, "b") == (False, None)
    assert limits.enter(3, "c") == (True, None)
    assert limits.enter(4, "c") == (True, 3)
