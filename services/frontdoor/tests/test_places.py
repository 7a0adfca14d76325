"""The laws of places: bounds in all and of one address, and newcomers who have asked nothing make room."""

from hypothesis import given
from hypothesis import strategies as st
from kafscale.frontdoor.places import Places


def test_a_newcomer_takes_the_place_of_the_oldest_that_has_asked_nothing() -> None:
    places: Places[int] = Places(3, 3)
    assert [places.enter(n, "a") for n in range(3)] == [(True, None)] * 3
    places.settled(0)
    assert places.enter(3, "b") == (True, 1)
    assert len(places) == 3


def test_where_everybody_has_asked_something_the_newcomer_is_turned_away() -> None:
    places: Places[int] = Places(2, 2)
    for n in range(2):
        places.enter(n, "a")
        places.settled(n)
    assert places.enter(2, "b") == (False, None)
    places.leave(0)
    assert places.enter(2, "b") == (True, None)


def test_an_address_that_is_full_makes_room_among_its_own() -> None:
    places: Places[int] = Places(10, 2)
    places.enter(0, "b")
    places.enter(1, "a")
    places.enter(2, "a")
    assert places.enter(3, "a") == (True, 1)
    places.settled(2)
    places.settled(3)
    assert places.enter(4, "a") == (False, None)
    assert places.enter(5, "b") == (True, None)


@given(
    st.lists(
        st.tuples(st.sampled_from(["enter", "settled", "leave"]), st.integers(0, 12), st.sampled_from("abc"))
    )
)
def test_whatever_comes_no_bound_is_passed_and_nobody_who_asked_is_displaced(
    steps: list[tuple[str, int, str]],
) -> None:
    places: Places[int] = Places(5, 2)
    inside: dict[int, str] = {}
    asked: set[int] = set()
    for what, number, address in steps:
        if what == "enter" and number not in inside:
            entered, displaced = places.enter(number, address)
            if displaced is not None:
                assert displaced not in asked
                del inside[displaced]
            if entered:
                inside[number] = address
        elif what == "settled" and number in inside:
            places.settled(number)
            asked.add(number)
        elif what == "leave":
            places.leave(number)
            inside.pop(number, None)
            asked.discard(number)
        assert len(places) == len(inside) <= 5
        assert all(list(inside.values()).count(one) <= 2 for one in "abc")
