"""One of the largest is found without a look at each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafscale.produce.log.by_size import BySize

SIZES = st.integers(0, 1 << 20) | st.sampled_from([*range(40), 255, 256, 257])


@given(st.lists(st.tuples(st.integers(0, 7), SIZES), max_size=60))
def test_each_thing_that_has_a_size_is_named_once_and_none_before_one_much_larger(
    changes: list[tuple[int, int]],
) -> None:
    by_size, sizes = BySize[int](), dict.fromkeys(range(8), 0)
    for thing, size in changes:
        by_size.resized(thing, sizes[thing], size)
        sizes[thing] = size
        named = list(by_size.largest_first())
        assert sorted(named) == [each for each, held in sizes.items() if held]
        for place, each in enumerate(named):
            assert all(9 * sizes[each] > 8 * sizes[later] for later in named[place:])


def test_what_was_passed_over_is_named_after_the_others_of_its_class() -> None:
    by_size = BySize[str]()
    for thing, size in (("a", 96), ("b", 100), ("c", 103), ("smaller", 95)):
        by_size.resized(thing, 0, size)
    by_size.last_in_class("a", 96)
    assert list(by_size.largest_first()) == ["b", "c", "a", "smaller"]
    by_size.resized("b", 100, 97)
    assert list(by_size.largest_first()) == ["b", "c", "a", "smaller"], (
        "a change within its class moves nothing"
    )
