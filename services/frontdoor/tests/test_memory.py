"""The laws of the shared memory: small requests pass large ones, the oldest large one goes on, every bound holds."""

from hypothesis import given
from hypothesis import strategies as st
from kafscale.frontdoor.memory import (
    LARGE_OVERRUN,
    SMALL_BYTES,
    SMALL_SHARE,
    TIDE_MS,
    Holder,
    RequestMemory,
    Tide,
)

MIB = 1 << 20


class Connections:
    """Holders that say what they were asked to do."""

    def __init__(self, bytes_max: int = 16 * MIB, *, address_share: float = 1.0) -> None:
        self.memory = RequestMemory(bytes_max, address_share=address_share)
        self.woken: list[Holder] = []
        self.now_ms = 0

    def one(self, held_bytes: int = 0, *, address: str = "a", under_way: bool = True) -> Holder:
        holder = Holder(
            address=address, wake=lambda: self.woken.append(holder), end=lambda: None, touched_ms=0
        )
        self.hold(holder, held_bytes, under_way=under_way)
        return holder

    def hold(self, holder: Holder, held_bytes: int, *, under_way: bool = True) -> None:
        self.now_ms += 1
        holder.touched_ms = self.now_ms
        self.memory.hold(holder, held_bytes, under_way=under_way)


def test_large_frames_never_keep_small_requests_from_being_read() -> None:
    connections = Connections()
    large = [connections.one(3 * MIB) for _ in range(4)]
    assert [connections.memory.admits(one) for one in large] == [True, False, False, False]
    assert connections.memory.admits(connections.one(100))
    assert connections.memory.admits(connections.one())


def test_the_oldest_large_frame_goes_on_past_the_bound_and_then_the_next_one_does() -> None:
    connections = Connections()
    first, second, third = (connections.one(4 * MIB) for _ in range(3))
    connections.hold(first, 14 * MIB)
    assert connections.memory.admits(first)
    assert not connections.memory.admits(second)
    assert not connections.memory.admits(third)
    connections.woken.clear()
    connections.hold(first, 14 * MIB, under_way=False)
    assert connections.woken == [second], (
        "the first is whole: the next one's turn, while it waits for its answer"
    )
    assert connections.memory.admits(second)
    assert not connections.memory.admits(third)
    connections.memory.leave(second)
    assert connections.memory.admits(third)


def test_who_sends_one_frame_after_the_other_goes_to_the_end_of_the_queue_with_each() -> None:
    connections = Connections()
    busy, waiting = connections.one(12 * MIB), connections.one(SMALL_BYTES)
    assert not connections.memory.admits(waiting)
    connections.woken.clear()
    connections.memory.next_frame(busy)
    assert connections.woken == [waiting]
    assert connections.memory.admits(waiting)
    assert not connections.memory.admits(busy)
    connections.memory.next_frame(connections.one(100))
    assert connections.memory.admits(waiting)


def test_who_waits_is_woken_when_a_quarter_is_free_and_not_before() -> None:
    connections = Connections(address_share=1.0)
    connections.one(SMALL_BYTES)
    full = connections.one(12 * MIB, under_way=False)
    waiting = connections.one(SMALL_BYTES)
    assert not connections.memory.admits(waiting)
    connections.woken.clear()
    connections.hold(full, 10 * MIB, under_way=False)
    assert connections.woken == []
    assert not connections.memory.admits(waiting)
    connections.hold(full, 8 * MIB, under_way=False)
    assert connections.woken == [waiting]
    assert connections.memory.admits(waiting)


def test_one_address_leaves_room_for_the_large_requests_of_others() -> None:
    connections = Connections(address_share=0.5)
    first, second = connections.one(3 * MIB), connections.one(3 * MIB)
    other = connections.one(1 * MIB, address="b")
    assert connections.memory.admits(first), "the oldest of all"
    assert not connections.memory.admits(second)
    assert connections.memory.admits(other)
    assert connections.memory.is_pressed(second)
    assert not connections.memory.is_pressed(other)
    connections.memory.leave(first)
    assert connections.memory.admits(second)


def test_unfinished_small_frames_make_room_for_newer_ones_the_longest_untouched_first() -> None:
    connections = Connections()
    held = [connections.one(60 << 10) for _ in range(60)]
    assert connections.memory.victims() == []
    connections.hold(held[0], 61 << 10)
    held += [connections.one(60 << 10) for _ in range(20)]
    victims = connections.memory.victims()
    assert held[0] not in victims, "it has just had more"
    assert victims == held[1 : 1 + len(victims)]
    for one in victims:
        connections.memory.leave(one)
    assert connections.memory.used_bytes <= 4 * MIB
    assert connections.memory.victims() == []


def test_small_requests_in_flight_end_nobody_they_are_only_waited_for() -> None:
    connections = Connections()
    for _ in range(100):
        connections.one(60 << 10, under_way=False)
    waiting = connections.one(1_000)
    assert connections.memory.victims() == []
    assert not connections.memory.admits(waiting)


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 4 * MIB), st.booleans(), st.sampled_from("ab")),
        max_size=60,
    )
)
def test_whatever_they_do_bytes_are_counted_once_and_bounds_hold(
    steps: list[tuple[int, int, bool, str]],
) -> None:
    """As the front door does it: victims leave at once, and only who is admitted gets more."""
    connections = Connections(address_share=0.5)
    memory = connections.memory
    bytes_max = 16 * MIB
    holders = {number: connections.one(address="ab"[number % 2]) for number in range(10)}
    for number, size, under_way, _ in steps:
        holder = holders[number]
        if size > holder.held_bytes and not memory.admits(holder):
            continue
        connections.hold(holder, size, under_way=under_way and size > 0)
        for victim in memory.victims():
            memory.leave(victim)
        assert memory.used_bytes == sum(one.held_bytes for one in holders.values())
        large = [one for one in holders.values() if one.is_large]
        waiting = [one for one in large if one.under_way]
        if waiting:
            assert any(memory.admits(one) for one in waiting), "somebody always goes on"
        oldest = max((one.held_bytes for one in waiting), default=0)
        in_flight = sum(one.held_bytes for one in holders.values() if not one.under_way)
        assert memory.used_bytes - in_flight <= bytes_max * (SMALL_SHARE + LARGE_OVERRUN) + oldest
    for holder in holders.values():
        memory.leave(holder)
    assert memory.used_bytes == 0


def test_memory_goes_back_when_a_flood_is_over_and_not_between_its_waves() -> None:
    tide = Tide(0)
    waves = [200 * MIB, 0, 200 * MIB, 0]
    told = [tide.has_fallen(used, n * TIDE_MS // 2) for n, used in enumerate([*waves, *waves], start=1)]
    assert not any(told)
    later = [tide.has_fallen(0, n * TIDE_MS) for n in range(6, 12)]
    assert later.count(True) == 1
