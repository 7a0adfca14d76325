"""The bound of PUTs in flight: it holds, it is fair, it adapts, and one PUT that hangs does not shrink it."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.produce.log.put_limit import (
    BEHIND_EVERY,
    BRISK_MS,
    SLOW_MEMORY_MS,
    Outcome,
    Place,
    PutBounds,
    PutLimit,
    Rank,
)
from kafscale.storage.objects.progress import SLOWEST_BYTES_PER_S

MIB = 1 << 20
BOUNDS = PutBounds(puts_first=4, puts_max=16, bytes_per_put=8 * MIB)


def filled(limit: PutLimit, count: int, size: int = 4 * MIB, now_ms: int = 0) -> list[Place]:
    return [limit.ask(size, now_ms) for _ in range(count)]


def grown(bounds: PutBounds = BOUNDS, rounds: int = 400) -> PutLimit:
    """A limit after many brisk PUTs."""
    limit = PutLimit(bounds)
    places = deque(filled(limit, 2 * bounds.puts_max))
    for now_ms in range(rounds):
        limit.finish(places.popleft(), Outcome.STORED, now_ms)
        places.append(limit.ask(4 * MIB, now_ms))
    while places:
        limit.finish(places.popleft(), Outcome.DROPPED, rounds)
    return limit


@dataclass
class Walk:
    """Any order of events; `step` checks the laws that hold at each moment."""

    limit: PutLimit = field(default_factory=lambda: PutLimit(BOUNDS))
    waiting: list[Place] = field(default_factory=list)
    running: list[Place] = field(default_factory=list)

    def ask(self, size: int) -> None:
        place = self.limit.ask(size, 0)
        (self.waiting if place.waits else self.running).append(place)

    def finish(self, at: int, outcome: Outcome, now_ms: int) -> None:
        place = self.running.pop(at % len(self.running))
        turn = self.limit.finish(place, outcome, now_ms)
        self._take(turn.begun)
        if turn.turned_away:
            assert list(turn.turned_away) == self.waiting, "all of them"
            assert outcome is Outcome.LOST
            self.waiting = []

    def leave(self, at: int) -> None:
        place = self.waiting.pop(at % len(self.waiting))
        self._take(self.limit.leave(place, 0).begun)

    def _take(self, begun: tuple[Place, ...]) -> None:
        for place in begun:
            assert place is self.waiting.pop(0), "in the order of asking"
            self.running.append(place)

    def check(self) -> None:
        limit, running = self.limit, self.running
        held = sum(place.size for place in running)
        assert (limit.puts, limit.bytes, limit.waiting) == (len(running), held, len(self.waiting))
        assert 1 <= limit.limit <= BOUNDS.puts_max
        assert all(place.waits for place in self.waiting)
        if self.waiting:
            bytes_max = limit.limit * BOUNDS.bytes_per_put
            is_full = limit.puts >= limit.limit or held + self.waiting[0].size > bytes_max
            assert running, "somebody waits for nothing"
            assert is_full, "nobody waits who could begin"


EVENTS = st.tuples(
    st.sampled_from(["ask", "ask", "finish", "finish", "leave"]),
    st.integers(0, 100),
    st.sampled_from([1_000, 4 * MIB, 70 * MIB]),
    st.sampled_from(list(Outcome)),
    st.integers(0, 2 * BRISK_MS),
)


@given(st.lists(EVENTS, max_size=200))
def test_the_bound_holds_and_places_are_given_in_order(
    events: list[tuple[str, int, int, Outcome, int]],
) -> None:
    walk = Walk()
    for what, at, size, outcome, now_ms in events:
        before, halved = walk.limit.puts, walk.limit.halved
        if what == "ask":
            walk.ask(size)
        elif what == "finish" and walk.running:
            walk.finish(at, outcome, now_ms)
        elif what == "leave" and walk.waiting:
            walk.leave(at)
        walk.check()
        assert walk.limit.puts <= max(walk.limit.limit, before, 1), "none begins above the limit"
        assert walk.limit.halved - halved <= (outcome in (Outcome.SLOW, Outcome.LOST))


def test_a_put_larger_than_the_bound_goes_alone() -> None:
    limit = PutLimit(BOUNDS)
    large = limit.ask(1 << 30, 0)
    small = limit.ask(1, 0)
    assert not large.waits
    assert small.waits
    assert limit.finish(large, Outcome.STORED, 1).begun == (small,)


def test_what_commits_wait_for_goes_first() -> None:
    limit = PutLimit(BOUNDS)
    running, waiting = filled(limit, 4), filled(limit, 3)
    urgent = limit.ask(1_000, 0, Rank.AHEAD)
    assert limit.finish(running[0], Outcome.STORED, 1).begun[0] is urgent
    assert all(place.waits for place in waiting)


def test_what_no_acknowledgement_waits_for_goes_last_but_has_one_place_of_some() -> None:
    limit = PutLimit(BOUNDS)
    running = deque(filled(limit, 4))
    settled = [limit.ask(1_000, 0, Rank.BEHIND) for _ in range(3)]
    flushed = filled(limit, 3 * BEHIND_EVERY, size=1_000)
    ranks = []
    while limit.waiting:
        for place in limit.finish(running.popleft(), Outcome.ANSWERED, 1).begun:
            running.append(place)
            ranks.append(place.rank)
    often = [Rank.NORMAL] * (BEHIND_EVERY - 1) + [Rank.BEHIND]
    assert ranks == [*often * 3, *[Rank.NORMAL] * 3]
    assert not any(place.waits for place in (*settled, *flushed))


def test_it_rises_by_one_for_a_limits_worth_of_stored_puts_and_to_its_maximum() -> None:
    limit = PutLimit(BOUNDS)
    places = deque(filled(limit, 20))
    for stored in range(1, 6):
        limit.finish(places.popleft(), Outcome.STORED, stored)
        assert limit.limit == (4 if stored < 5 else 5)
    assert grown().limit == BOUNDS.puts_max


def test_it_does_not_rise_while_nothing_waits_nor_for_slow_puts() -> None:
    idle = PutLimit(BOUNDS)
    for now_ms in range(100):
        idle.finish(idle.ask(4 * MIB, now_ms), Outcome.STORED, now_ms)
    assert idle.limit == BOUNDS.puts_first
    slow = PutLimit(BOUNDS)
    large, small = filled(slow, 3), deque(filled(slow, 20, size=1_000))
    for _ in range(100):
        slow.finish(small.popleft(), Outcome.STORED, BRISK_MS + 1)
        small.append(slow.ask(1_000, BRISK_MS + 1))
    assert slow.limit == BOUNDS.puts_first, "small PUTs are quick, and the large ones are not"
    for place in large:
        slow.finish(place, Outcome.STORED, BRISK_MS + 1)
    for now_ms in range(2 * BRISK_MS, 2 * BRISK_MS + 100):
        slow.finish(small.popleft(), Outcome.STORED, now_ms)
        small.append(slow.ask(1_000, now_ms))
    assert slow.limit == BOUNDS.puts_first, "they were slow a moment ago"
    while small:
        slow.finish(small.popleft(), Outcome.DROPPED, now_ms)
    later_ms = now_ms + SLOW_MEMORY_MS
    small.extend(filled(slow, 20, size=1_000, now_ms=later_ms))
    for now_ms in range(later_ms, later_ms + 100):
        slow.finish(small.popleft(), Outcome.STORED, now_ms)
        small.append(slow.ask(1_000, now_ms))
    assert slow.limit > BOUNDS.puts_first, "only small ones are left"


@pytest.mark.parametrize("outcome", [Outcome.SLOW, Outcome.LOST])
def test_a_timeout_halves_it_once_for_all_that_were_in_flight(outcome: Outcome) -> None:
    limit = grown()
    places = filled(limit, 16)
    assert limit.limit == 16
    for place in places:
        limit.finish(place, outcome, 60_000)
    assert (limit.limit, limit.halved) == (8, 1)
    (later,) = filled(limit, 1)
    limit.finish(later, outcome, 60_000)
    assert (limit.limit, limit.halved) == (4, 2)


def test_it_never_falls_below_one() -> None:
    limit = PutLimit(BOUNDS)
    for _ in range(10):
        limit.finish(limit.ask(1, 0), Outcome.LOST, 0)
    assert limit.limit == 1
    assert not limit.ask(4 * MIB, 0).waits


def test_a_refusal_and_a_put_that_was_dropped_change_nothing() -> None:
    limit = PutLimit(BOUNDS)
    for outcome in (Outcome.ANSWERED, Outcome.DROPPED) * 20:
        limit.finish(limit.ask(4 * MIB, 0), outcome, 0)
    assert (limit.limit, limit.halved) == (BOUNDS.puts_first, 0)


def test_a_put_that_hangs_while_the_link_carries_others_does_not_halve_it() -> None:
    limit = grown()
    (stuck,) = filled(limit, 1)
    for now_ms in range(17):
        limit.finish(limit.ask(4 * MIB, 0), Outcome.STORED, now_ms)
    limit.finish(stuck, Outcome.LOST, 10_000)
    assert (limit.limit, limit.halved) == (16, 0)


def test_what_was_in_flight_already_does_not_excuse_a_timeout() -> None:
    """Older PUTs end first on a fair link; only those that began later show that one hangs."""
    limit = grown(PutBounds(puts_first=32, puts_max=32, bytes_per_put=8 * MIB), rounds=0)
    older = filled(limit, 31)
    (place,) = filled(limit, 1)
    for each in older:
        limit.finish(each, Outcome.STORED, 9_000)
    limit.finish(place, Outcome.LOST, 10_000)
    assert limit.halved == 1


def test_while_the_store_answers_nothing_all_that_wait_are_turned_away() -> None:
    limit = PutLimit(BOUNDS)
    running, waiting = filled(limit, 4), filled(limit, 5)
    assert set(limit.finish(running[0], Outcome.LOST, 10_000).turned_away) == set(waiting)
    running[0] = limit.ask(4 * MIB, 10_000)
    waiting = filled(limit, 2)
    limit.finish(running[1], Outcome.STORED, 11_000)
    turn = limit.finish(running[2], Outcome.LOST, 11_000)
    assert turn.turned_away == (), "the store answered another since this one began"
    assert limit.answered_ms == 11_000


# --- a link that PUTs share ------------------------------------------------------------------------

SEGMENT, INDEX = 4 * MIB, 2_000
STEP_MS = 50


@dataclass
class Link:
    """Shared fairly; a PUT ends when its bytes went, or at its time limit. Time is in ms; no event loop.

    Each partition always has four segments on their way, with an index each. The next one follows when both are stored.
    """

    limit: PutLimit
    bytes_per_s: float
    stall_ms: int = 10_000
    stuck: frozenset[int] = frozenset()
    left: dict[Place, float] = field(default_factory=dict)
    slot: dict[Place, int] = field(default_factory=dict)  # of a partition: slot % partitions
    pairs: Counter[int] = field(default_factory=Counter)
    partitions: int = 0
    sent: float = 0.0
    stored: int = 0

    def run(self, partitions: int, seconds: int) -> None:
        self.partitions = partitions
        for slot in range(partitions * 4):
            self._seal(slot, 0)
        for now_ms in range(0, seconds * 1_000, STEP_MS):
            self._carry()
            for place in [p for p in self.left if not p.waits]:
                self._look(place, now_ms)

    def goodput(self, seconds: int) -> float:
        return self.stored / (self.bytes_per_s * seconds)

    def _seal(self, slot: int, now_ms: int) -> None:
        self.pairs[slot] = 2
        for size in (SEGMENT, INDEX):
            self._ask(slot, size, now_ms)

    def _ask(self, slot: int, size: int, now_ms: int) -> None:
        place = self.limit.ask(size, now_ms)
        self.left[place], self.slot[place] = size, slot

    def _carry(self) -> None:
        moving = [p for p in self.left if not p.waits and self.slot[p] % self.partitions not in self.stuck]
        share = self.bytes_per_s * STEP_MS / 1000 / max(1, len(moving))
        for place in moving:
            went = min(share, self.left[place])
            self.left[place] -= went
            self.sent += went

    def _look(self, place: Place, now_ms: int) -> None:
        limit_ms = self.stall_ms + place.size / SLOWEST_BYTES_PER_S * 1000
        if self.slot[place] % self.partitions in self.stuck:
            limit_ms = self.stall_ms
        if self.left[place] <= 0:
            self.stored += place.size
            self._end(place, Outcome.STORED, now_ms)
        elif now_ms - place.begun_ms > limit_ms:
            self._end(place, Outcome.LOST, now_ms)

    def _end(self, place: Place, outcome: Outcome, now_ms: int) -> None:
        turned = self.limit.finish(place, outcome, now_ms).turned_away
        for each in (place, *turned):
            del self.left[each]
            slot = self.slot.pop(each)
            if outcome is Outcome.LOST:
                self._ask(slot, each.size, now_ms)
                continue
            self.pairs[slot] -= 1
            if not self.pairs[slot]:
                self._seal(slot, now_ms)


@pytest.mark.parametrize("partitions", [1, 4, 16, 32, 64])
@pytest.mark.parametrize("bytes_per_s", [300_000, 2_000_000, 20_000_000])
def test_goodput_is_most_of_a_thin_link_with_any_number_of_partitions(
    partitions: int, bytes_per_s: int
) -> None:
    link = Link(PutLimit(PutBounds(puts_first=8, puts_max=48)), bytes_per_s)
    link.run(partitions, 900)
    assert link.goodput(900) >= 0.7
    assert link.sent <= 1.3 * link.stored


def test_a_link_that_becomes_thin_is_used_again_after_one_loss() -> None:
    link = Link(grown(PutBounds(puts_first=8, puts_max=48), rounds=3_000), 1_000_000)
    assert link.limit.limit == 48
    link.run(64, 900)
    assert link.goodput(900) >= 0.7


@pytest.mark.parametrize("partitions", [4, 16])
def test_one_stuck_partition_leaves_most_of_the_link_to_the_others(partitions: int) -> None:
    link = Link(grown(PutBounds(puts_first=8, puts_max=48)), 20_000_000, stuck=frozenset({0}))
    link.run(partitions, 300)
    assert link.goodput(300) >= 0.7
    assert link.limit.limit >= 8, "it may be halved while few bytes show who hangs"
