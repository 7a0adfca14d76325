"""When an instance seals a bundle, and which partitions go along: the laws hold in any order of events."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafscale.produce.bundles.company import Waited
from kafscale.produce.bundles.gather import (
    ALL_IN_FLIGHT_MAX,
    IN_FLIGHT_MAX,
    STUCK_MS,
    Gather,
    GatherLimits,
    TokenBucket,
)
from kafscale.produce.log.model import NEVER, Want

LIMITS = GatherLimits()
BURST = 4


def gather(
    *,
    linger_ms: int = 5,
    bundles: float | None = None,
    heads: float | None = None,
    burst: int = 2_000,
    markers: float | None = None,
) -> Gather[str]:
    limits = GatherLimits(linger_ms=linger_ms)
    return Gather(
        limits,
        bundles=TokenBucket(bundles, BURST),
        heads=TokenBucket(heads, burst),
        markers=None if markers is None else TokenBucket(markers, 1),
    )


def want(
    since_ms: int = 0, size: int = 100, requests: int = 1, *, hold_ms: int = 0, markers: bool = False
) -> Want:
    return Want(size, requests, since_ms, hold_ms, markers)


def sealed(gathered: Gather[str], now_ms: int) -> tuple[int, list[str]]:
    sealing = gathered.take(now_ms)
    assert sealing is not None, "a bundle is due"
    return sealing.number, sealing.keys


def patient(**limits: int) -> Gather[str]:
    """It missed a record at 1. Its bundles took 1 ms."""
    gathered = gather(**limits)
    gathered.want("x", want(0))
    first = sealed(gathered, 0)[0]
    gathered.want("y", want(1))
    second = sealed(gathered, 1)[0]
    gathered.decided(first, "x", 1)
    gathered.decided(second, "y", 2)
    return gathered


def test_what_arrives_in_one_turn_is_one_bundle() -> None:
    gathered = gather(linger_ms=0)
    for name in "abc":
        gathered.want(name, want(7))
    assert sealed(gathered, 7)[1] == ["a", "b", "c"]
    assert gathered.take(7) is None
    assert gathered.due_ms(7) == NEVER


@pytest.mark.parametrize("instances", [1, 3])
def test_instances_share_the_budgets_of_the_cluster(instances: int) -> None:
    shares = [gather(linger_ms=0, bundles=20, heads=60, burst=60) for _ in range(instances)]
    for each in shares:
        each.share(instances, 0)
    bundles = slices = 0
    for now_ms in range(0, 60_000, 10):
        for each in shares:
            for name in "abcd":
                each.want(name, want(now_ms))
            while (sealing := each.take(now_ms)) is not None:
                bundles, slices = bundles + 1, slices + len(sealing.keys)
                for name in sealing.keys:
                    each.decided(sealing.number, name, now_ms)
    bursts = instances * (BURST + 60)
    assert bundles <= 20 * 60 + bursts
    assert 60 * 60 * 0.9 <= slices <= 60 * 60 + bursts


def test_a_full_bundle_waits_for_nothing() -> None:
    gathered = gather(bundles=0.01)
    for number in range(BURST):
        gathered.want("x", want(0))
        gathered.decided(sealed(gathered, 5 + 5 * number)[0], "x", 5 + 5 * number)
    gathered.want("small", want(100, 100))
    assert gathered.take(100) is None
    gathered.want("large", want(100, LIMITS.bundle_bytes))
    assert sealed(gathered, 100)[1] == ["small", "large"]


def test_more_than_a_bundle_holds_becomes_several() -> None:
    gathered = gather(linger_ms=0)
    for number in range(10):
        gathered.want(f"{number}", want(0, 1 << 20))
    bundles = [sealed(gathered, 0)[1] for _ in range(3)]
    assert [len(keys) for keys in bundles] == [4, 4, 2]


def test_the_next_bundle_waits_until_all_are_back() -> None:
    gathered = patient()
    gathered.want("a", want(10, requests=2))
    gathered.want("b", want(10))
    number, _ = sealed(gathered, 10)
    gathered.decided(number, "a", 13)
    gathered.decided(number, "b", 13)
    gathered.want("a", want(14, requests=2))
    assert (gathered.take(14), gathered.due_ms(14)) == (None, 16)
    gathered.want("b", want(15))
    sealing = gathered.take(15)
    assert sealing is not None
    assert (sealing.keys, sealing.requests, sealing.waited) == (["a", "b"], 3, Waited(1, in_vain=False))


def test_the_wait_begins_when_the_flight_ends_that_the_first_record_waited_for() -> None:
    gathered = patient()
    gathered.want("a", want(10, requests=9))
    number, _ = sealed(gathered, 10)
    gathered.want("a", want(11, requests=8, hold_ms=LIMITS.hold_max_ms))
    assert gathered.take(11) is None
    gathered.want("a", want(11, requests=8))
    gathered.decided(number, "a", 20)
    assert (gathered.take(20), gathered.due_ms(20)) == (None, 22)
    gathered.want("a", want(11, requests=12))
    sealing = gathered.take(22)
    assert sealing is not None
    assert sealing.waited == Waited(2, in_vain=False)


def test_it_waits_for_those_that_do_not_come_back_until_its_patience_ends() -> None:
    gathered = patient()
    gathered.want("a", want(10, requests=2))
    number, _ = sealed(gathered, 10)
    gathered.decided(number, "a", 13)
    gathered.want("a", want(14))
    assert gathered.take(14) is None
    sealing = gathered.take(16)
    assert sealing is not None
    assert sealing.waited == Waited(2, in_vain=True)


def test_what_comes_while_a_bundle_is_in_flight_waits_for_its_end_and_not_for_long() -> None:
    gathered = patient()
    gathered.want("a", want(10))
    number, _ = sealed(gathered, 10)
    gathered.want("b", want(10))
    assert (gathered.take(10), gathered.due_ms(10)) == (None, 12)
    gathered.want("c", want(11))
    gathered.decided(number, "a", 11)
    assert sealed(gathered, 11 + 1)[1] == ["b", "c"]


def test_the_end_of_a_transaction_waits_for_no_other_request_and_none_waits_for_another_end() -> None:
    gathered = patient()
    gathered.want("a", want(10, requests=3))
    number, _ = sealed(gathered, 10)
    gathered.want("b", want(10, requests=2, markers=True))
    ended, keys = sealed(gathered, 10)
    assert keys == ["b"]
    gathered.decided(number, "a", 13)
    gathered.decided(ended, "b", 13)
    gathered.want("c", want(14))
    assert sealed(gathered, 14)[1] == ["c"], "no producer sends an end again"


def test_a_busy_partition_waits_for_its_flight_and_delays_no_other() -> None:
    gathered = gather(linger_ms=0)
    gathered.want("busy", want(0, hold_ms=LIMITS.hold_max_ms))
    gathered.want("idle", want(3))
    assert sealed(gathered, 3)[1] == ["idle"]
    assert gathered.due_ms(3) == LIMITS.hold_max_ms
    gathered.want("busy", want(0))
    assert sealed(gathered, 9)[1] == ["busy"]


@pytest.mark.parametrize(("size", "at_ms"), [(100, LIMITS.hold_max_ms), (LIMITS.held_bytes, 0)])
def test_a_busy_partition_goes_along_when_it_has_much_or_has_waited_long(size: int, at_ms: int) -> None:
    gathered = gather(linger_ms=0)
    gathered.want("busy", want(0, size, hold_ms=LIMITS.hold_max_ms))
    assert gathered.due_ms(0) == at_ms
    assert sealed(gathered, at_ms)[1] == ["busy"]


def test_the_linger_of_a_topic_is_waited_out_and_delays_no_other() -> None:
    gathered = gather(linger_ms=0)
    gathered.want("patient", want(0, hold_ms=90))
    gathered.want("idle", want(3))
    assert sealed(gathered, 3)[1] == ["idle"]
    assert (gathered.take(89), gathered.due_ms(89)) == (None, 90)
    assert sealed(gathered, 90)[1] == ["patient"]


def test_the_budget_of_bundles_is_kept_until_a_record_has_waited_too_long() -> None:
    gathered = gather(bundles=0.01)
    for number in range(BURST):
        gathered.want("x", want(0))
        gathered.decided(sealed(gathered, 5 * (number + 1))[0], "x", 5 * (number + 1))
    gathered.want("late", want(20))
    assert gathered.due_ms(20) == 20 + LIMITS.linger_max_ms
    assert gathered.take(19 + LIMITS.linger_max_ms) is None
    assert sealed(gathered, 20 + LIMITS.linger_max_ms)[1] == ["late"]


def test_the_budget_of_heads_has_no_exception_and_the_neediest_go_first() -> None:
    gathered = gather(linger_ms=0, heads=1, burst=2)
    for number, size in enumerate((100, 10_000, 1_000)):
        gathered.want(f"{number}", want(0, size))
    assert gathered.head_tokens_waiting(0) == 1
    number, keys = sealed(gathered, 0)
    assert keys == ["1", "2"]
    assert gathered.head_tokens_waiting(0) == 1
    assert gathered.take(0) is None
    due_ms = gathered.due_ms(0)
    assert 1_000 <= due_ms <= 1_001
    assert gathered.take(999) is None
    assert sealed(gathered, due_ms)[1] == ["0"]
    assert gathered.head_tokens_waiting(due_ms) == 0


def test_a_full_bundle_that_the_budget_of_heads_makes_small_waits_for_its_token() -> None:
    gathered = gather(linger_ms=0, bundles=1, heads=1_000, burst=1)
    for number in range(BURST):
        gathered.want("x", want(0))
        gathered.decided(sealed(gathered, number)[0], "x", number)
    gathered.want("a", want(10, LIMITS.bundle_bytes))
    gathered.want("b", want(10, LIMITS.bundle_bytes // 2))
    assert gathered.take(10) is None, "one head of two may be committed now"
    gathered.want("b", None)
    assert sealed(gathered, 10)[1] == ["a"]


def test_stuck_bundles_leave_their_places_but_all_are_bounded() -> None:
    gathered = gather()
    for number in range(IN_FLIGHT_MAX):
        gathered.want(f"{number}", want(0))
        sealed(gathered, 0)
    gathered.want("next", want(0))
    assert gathered.take(0) is None
    assert gathered.due_ms(0) == STUCK_MS
    for number in range(IN_FLIGHT_MAX, ALL_IN_FLIGHT_MAX):
        gathered.want(f"{number}", want(STUCK_MS))
        sealed(gathered, STUCK_MS)
    gathered.want("last", want(2 * STUCK_MS))
    assert gathered.due_ms(2 * STUCK_MS) == NEVER, "only an outcome makes room"
    gathered.decided(1, "0", 2 * STUCK_MS)
    assert gathered.take(2 * STUCK_MS) is None
    assert "last" in sealed(gathered, gathered.due_ms(2 * STUCK_MS))[1]


def test_a_partition_that_is_gone_is_not_sealed() -> None:
    gathered = gather(linger_ms=0)
    gathered.want("a", want(0))
    gathered.want("a", None)
    assert gathered.take(0) is None
    assert gathered.waiting == 0


class World:
    """Producers with one request each, and a store with etcd behind that take some time, or are stuck."""

    def __init__(self, seed: int, *, bundles: float | None, heads: float | None) -> None:
        self.random = random.Random(seed)
        self.gathered = gather(linger_ms=self.random.choice((0, 5)), bundles=bundles, heads=heads, burst=8)
        self.now_ms = 0
        self.buffers: dict[str, Want] = {}
        self.flying: dict[str, set[int]] = defaultdict(set)
        self.answers: list[tuple[int, int, str]] = []  # due, bundle, partition
        self.sealed: list[tuple[int, int, bool, int]] = []  # when, size, overdue, heads

    def arrives(self) -> None:
        key = f"{self.random.randrange(12)}"
        old = self.buffers.get(key)
        size = self.random.choice((10, 1_000, 300 << 10, 2 << 20))
        since_ms = old.since_ms if old else self.now_ms
        self.note(key, Want(size + (old.bytes if old else 0), 1 + (old.requests if old else 0), since_ms))

    def note(self, key: str, found: Want | None) -> None:
        if found is None:
            self.buffers.pop(key, None)
        else:
            self.buffers[key] = found = found._replace(hold_ms=self.hold_ms(key))
        self.gathered.want(key, found)

    def hold_ms(self, key: str) -> int:
        """One topic has a linger."""
        return LIMITS.hold_max_ms if self.flying[key] else 90 if key == "0" else 0

    def pumps(self) -> None:
        while (sealing := self.gathered.take(self.now_ms)) is not None:
            wants = [self.buffers[key] for key in sealing.keys]
            oldest_ms = min(want.since_ms for want in wants)
            for key, found in zip(sealing.keys, wants, strict=True):
                assert found.held_until_ms <= self.now_ms or found.bytes >= LIMITS.held_bytes
                self.flying[key].add(sealing.number)
                after_ms = self.random.choice((1, 20, 60, 3_000))
                self.answers.append((self.now_ms + after_ms, sealing.number, key))
                self.note(key, None)
            assert sealing.waited.ms <= LIMITS.hold_max_ms
            assert sealing.requests == sum(want.requests for want in wants)
            overdue = self.now_ms - oldest_ms >= LIMITS.linger_max_ms
            size = sum(want.bytes for want in wants)
            assert size - wants[-1].bytes < LIMITS.bundle_bytes, "a bundle ends when it is full"
            self.sealed.append((self.now_ms, size, overdue, len(wants)))
        assert self.gathered.in_flight <= ALL_IN_FLIGHT_MAX
        assert self.gathered.waiting == len(self.buffers)

    def passes(self, elapsed_ms: int) -> None:
        """Time goes from one event to the next; the shell wakes when the gatherer says so."""
        end_ms = self.now_ms + elapsed_ms
        while True:
            self.pumps()
            due_ms = self.gathered.due_ms(self.now_ms)
            assert due_ms > self.now_ms, "what is due was taken"
            next_ms = min([due_ms, end_ms, *(due for due, _, _ in self.answers)])
            self.now_ms = max(self.now_ms, next_ms)
            for answer in [each for each in self.answers if each[0] <= self.now_ms]:
                self.answers.remove(answer)
                _, number, key = answer
                self.flying[key].discard(number)
                self.gathered.decided(number, key, self.now_ms)
                self.note(key, self.buffers.get(key))
            if next_ms == end_ms:
                return


@example(1_115, 20.0, 50.0)  # four MiB are ready, and heads for two
@given(st.integers(0, 10_000), st.sampled_from((None, 20.0)), st.sampled_from((None, 50.0)))
def test_every_record_leaves_and_the_budgets_hold(
    seed: int, bundles: float | None, heads: float | None
) -> None:
    world = World(seed, bundles=bundles, heads=heads)
    for _ in range(60):
        world.arrives()
        world.passes(world.random.choice((0, 1, 10, 100)))
    world.passes(60_000)
    assert not world.buffers, "a record waits for ever"
    billed = 0
    for now_ms, size, overdue, _ in world.sealed:
        billed += size < LIMITS.bundle_bytes and not overdue
        assert bundles is None or billed <= BURST + bundles * now_ms / 1000 + 1e-6
    if heads is not None:
        spent = 0
        for now_ms, _, _, count in world.sealed:
            spent += count
            assert spent <= 8 + heads * now_ms / 1000 + 1e-6


def take(gathered: Gather[str], now_ms: int) -> list[str]:
    """The partitions of the next bundle, which is committed at once; none if no bundle is due."""
    sealing = gathered.take(now_ms)
    for key in sealing.keys if sealing is not None else ():
        assert sealing is not None
        gathered.decided(sealing.number, key, now_ms)
    return sealing.keys if sealing is not None else []


def spent(gathered: Gather[str]) -> None:
    """The budget of bundles is used up at 0."""
    for _ in range(BURST):
        gathered.want("x", want())
        assert take(gathered, 0) == ["x"]


def test_a_marker_need_not_wait_for_the_budget_of_bundles() -> None:
    gathered = gather(linger_ms=0, bundles=1, markers=1)
    spent(gathered)
    gathered.want("a", want())
    assert not take(gathered, 0)
    gathered.want("b", want(markers=True))
    assert take(gathered, 0) == ["a", "b"], "what is ready goes along"
    assert gathered.marker_bundles == 1


def test_markers_have_a_budget_too_and_take_the_other_one_while_it_lasts() -> None:
    gathered = gather(linger_ms=0, bundles=1, markers=2)
    spent(gathered)
    for now_ms, due in ((0, True), (0, False), (499, False), (501, True), (1_002, True), (1_002, True)):
        gathered.want("b", want(now_ms, markers=True))
        assert bool(take(gathered, now_ms)) is due, now_ms
        gathered.want("b", None)
    assert gathered.marker_bundles == 3, "one was paid with a token of the other budget"


def test_a_bundle_without_a_marker_takes_nothing_of_their_budget() -> None:
    gathered = gather(linger_ms=0, bundles=1, markers=1)
    spent(gathered)
    gathered.want("a", want())
    gathered.want("b", want(markers=True))
    gathered.want("b", None)
    assert not take(gathered, 0)


def test_where_commits_are_short_a_marker_goes_before_busy_writers() -> None:
    gathered = gather(linger_ms=0, heads=1, burst=1)
    gathered.want("busy", want(size=60 << 10))
    gathered.want("b", want(markers=True))
    gathered.want("large", want(size=70 << 10))
    assert take(gathered, 0) == ["large"]
    assert take(gathered, 1_001) == ["b"]
