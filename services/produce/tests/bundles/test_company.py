"""Bundles wait for requests that are likely to come, and for no others."""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.produce.bundles.company import Company
from kafscale.produce.bundles.gather import Gather, GatherLimits, TokenBucket
from kafscale.produce.log.model import NEVER, Want

LIMITS = GatherLimits()


@dataclass
class Producer:
    """It has one request in flight, for some of the partitions. It sends the next `think` ms after its answer."""

    partitions: Sequence[int]  # of which each request takes some
    think: tuple[int, int] = (0, 0)
    some: bool = False
    leaves_ms: int = NEVER
    waits: list[int] = field(default_factory=list)  # from arrival to seal, of each request
    unanswered: int = 0
    sent_ms: int = 0


@dataclass
class Sealed:
    at_ms: int
    producers: int
    waited_ms: int
    in_vain: bool


class Loops:
    """Closed loops over the real rule. A partition has one bundle in flight, as long as its buffer is small."""

    def __init__(self, producers: Sequence[Producer], flight: tuple[int, int], seed: int) -> None:
        self.random = random.Random(seed)
        self.gather: Gather[int] = Gather(LIMITS, bundles=TokenBucket(None, 1), heads=TokenBucket(None, 1))
        self.flight = flight
        self.now_ms = 0
        self.open: dict[int, list[Producer]] = {}
        self.since_ms: dict[int, int] = {}
        self.flying: set[int] = set()
        self.sealed: list[Sealed] = []
        self._events: list[tuple[int, int, object]] = []
        self._order = count()
        for each in producers:
            self._at(self.random.randint(0, 3), each)

    def _at(self, when_ms: int, what: object) -> None:
        heapq.heappush(self._events, (when_ms, next(self._order), what))

    def run(self, until_ms: int) -> None:
        while True:
            due_ms = self.gather.due_ms(self.now_ms)
            next_ms = min(due_ms, self._events[0][0] if self._events else NEVER)
            if next_ms > until_ms:
                return
            self.now_ms = max(self.now_ms, next_ms)
            while self._events and self._events[0][0] <= self.now_ms:
                what = heapq.heappop(self._events)[2]
                if isinstance(what, Producer):
                    self._sends(what)
                else:
                    assert isinstance(what, tuple)
                    self._lands(*what)
            self._pumps()

    def _sends(self, producer: Producer) -> None:
        if self.now_ms >= producer.leaves_ms:
            return
        targets = list(producer.partitions)
        if producer.some:
            targets = self.random.sample(targets, self.random.randint(1, len(targets)))
        producer.unanswered, producer.sent_ms = len(targets), self.now_ms
        for target in targets:
            self.since_ms.setdefault(target, self.now_ms)
            self.open.setdefault(target, []).append(producer)
            self._note(target)

    def _note(self, target: int) -> None:
        waiting = self.open.get(target)
        if not waiting:
            self.gather.want(target, None)
            return
        hold_ms = LIMITS.hold_max_ms if target in self.flying else 0
        self.gather.want(target, Want(100 * len(waiting), len(waiting), self.since_ms[target], hold_ms))

    def _pumps(self) -> None:
        while (sealing := self.gather.take(self.now_ms)) is not None:
            answers: list[Producer] = []
            for target in sealing.keys:
                answers += self.open.pop(target)
                del self.since_ms[target]
                self.flying.add(target)
                self._note(target)
            different = {id(each): each for each in answers}
            for each in different.values():
                each.waits.append(self.now_ms - each.sent_ms)
            self.sealed.append(Sealed(self.now_ms, len(different), sealing.waited.ms, sealing.waited.in_vain))
            lands_ms = self.now_ms + self.random.randint(*self.flight)
            self._at(lands_ms, (sealing.number, sealing.keys, answers))

    def _lands(self, number: int, keys: list[int], answers: list[Producer]) -> None:
        for key in keys:
            self.flying.discard(key)
            self._note(key)
        for key in keys:
            self.gather.decided(number, key, self.now_ms)
        for each in answers:
            each.unanswered -= 1
            if not each.unanswered:
                self._at(self.now_ms + self.random.randint(*each.think), each)


FLIGHTS = st.sampled_from(((1, 3), (3, 6), (20, 90)))


@given(st.integers(0, 10_000), FLIGHTS, st.sampled_from((0, 1, 7)))
def test_a_producer_that_is_alone_never_waits_whatever_partitions_it_writes_to(
    seed: int, flight: tuple[int, int], think_ms: int
) -> None:
    alone = Producer(range(12), (0, think_ms), some=True)
    loops = Loops([alone], flight, seed)
    loops.run(600)
    assert len(loops.sealed) > 4
    assert set(alone.waits) == {0}
    assert not any(each.waited_ms for each in loops.sealed)


@given(
    st.integers(0, 10_000), st.integers(2, 40), st.sampled_from((1, 12)), st.sampled_from(((1, 3), (3, 6)))
)
def test_a_crowd_that_comes_back_within_the_linger_shares_one_bundle(
    seed: int, crowd: int, partitions: int, flight: tuple[int, int]
) -> None:
    """It may begin as two crowds that take turns."""
    producers = [Producer([number % partitions], (0, 3)) for number in range(crowd)]
    loops = Loops(producers, flight, seed)
    loops.run(300)
    late = [each.producers for each in loops.sealed if each.at_ms >= 150]
    assert sum(late) / len(late) >= 0.9 * crowd
    assert max(each.waited_ms for each in loops.sealed) <= LIMITS.linger_ms


@given(st.integers(0, 10_000), st.integers(2, 40))
def test_producers_that_left_are_waited_for_once(seed: int, crowd: int) -> None:
    stays = Producer([0], (0, 2))
    leave = [Producer([number % 3], (0, 3), leaves_ms=100) for number in range(crowd)]
    loops = Loops([stays, *leave], (1, 4), seed)
    loops.run(110)
    before = len(stays.waits)
    loops.run(400)
    after = stays.waits[before:]
    assert len(after) > 30
    assert sum(each > 0 for each in after) <= 2, "one bundle may be in flight at 110"


@given(st.integers(0, 10_000), st.integers(1, 20), FLIGHTS)
def test_no_wait_is_longer_than_the_linger_or_half_a_flight(
    seed: int, crowd: int, flight: tuple[int, int]
) -> None:
    producers = [Producer(range(number % 3, 6), (0, 30), some=True) for number in range(crowd)]
    loops = Loops(producers, flight, seed)
    loops.run(600)
    assert max(each.waited_ms for each in loops.sealed) <= max(LIMITS.linger_ms, flight[1] // 2)


def test_what_comes_while_a_bundle_is_in_flight_is_carried_by_the_next_one() -> None:
    """Else each record of an open loop has a bundle of its own, because its partition has nothing in flight."""
    gather: Gather[int] = Gather(LIMITS, bundles=TokenBucket(None, 1), heads=TokenBucket(None, 1))
    landing: list[tuple[int, int, list[int]]] = []
    bundles = 0
    for now_ms in range(1_000):
        gather.want(now_ms, Want(100, 1, now_ms))  # a partition for each record, one in each ms
        for lands_ms, number, keys in landing:
            for key in keys if lands_ms == now_ms else ():
                gather.decided(number, key, now_ms)
        while (sealing := gather.take(now_ms)) is not None:
            bundles += 1
            landing.append((now_ms + 3, sealing.number, sealing.keys))
    assert bundles <= 1_000 / 4


# --- patience --------------------------------------------------------------------------------


def company(linger_ms: int = 5, most_ms: int = 250) -> Company:
    return Company(linger_ms, most_ms)


def waits(of: Company, first: int, then: int, now_ms: int) -> tuple[int, bool]:
    """A bundle with `first` requests waits while others are in flight, and `then` it has more."""
    of.gathers(first, now_ms)
    until_ms = of.until_ms(then, now_ms, in_flight=True)
    waited = of.sealed(then, until_ms)
    of.gathers(0, until_ms)
    return waited.ms, waited.in_vain


def test_patience_grows_with_each_wait_that_brings_requests_and_each_wait_in_vain_halves_it() -> None:
    found = company()
    assert waits(found, 1, 9, 0) == (0, False), "nothing was missed yet"
    found.missed()
    assert [waits(found, 8, then, 10)[0] for then in (9, 10, 16)] == [2, 4, 5]
    assert [waits(found, 8, 8, 20) for _ in range(4)] == [(5, True), (2, True), (1, True), (0, False)]


def test_a_wait_that_adds_less_than_an_eighth_is_in_vain() -> None:
    found = company()
    found.missed()
    assert waits(found, 17, 19, 0) == (2, True)


@pytest.mark.parametrize(
    ("took", "limit_ms"),
    [((3, 3), 5), ((60, 60), 30), ((60, 3), 5), ((3, 60), 5), ((60, 80), 30), ((9_000, 9_000), 250)],
)
def test_where_bundles_are_slow_the_limit_is_half_of_the_faster_of_two(
    took: tuple[int, int], limit_ms: int
) -> None:
    found = company()
    for each in took:
        found.landed(1, 1, each, 0)
    assert found.limit_ms == limit_ms
    assert found.patience_ms <= limit_ms


def test_without_a_linger_fast_bundles_wait_for_nothing() -> None:
    found = company(linger_ms=0)
    found.landed(10, 10, 1, 0)
    assert waits(found, 10, 20, 0) == (0, False)


def test_what_is_expected_is_forgotten_when_it_did_not_come_for_the_limit() -> None:
    found = company()
    found.landed(10, 1, 3, 0)
    assert found.until_ms(1, 5, in_flight=False) == 7
    assert found.until_ms(11, 5, in_flight=False) == 5, "all are back"
    assert found.until_ms(1, 6, in_flight=False) == 6
