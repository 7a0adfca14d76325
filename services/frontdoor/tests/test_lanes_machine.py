"""Lanes against a model of instances that refuse, change owners and lose streams: the order never breaks."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from kafscale.frontdoor.lanes import LaneKey, LaneLimits, Lanes, Part, Resend
from kafscale.storage.keys import TopicId

KEYS: list[LaneKey] = [(TopicId(bytes(16)), 0), (TopicId(bytes(16)), 1)]
LIMITS = LaneLimits(hold_ms_max=300, retry_ms=50, held_max=50)


def part(number: int, key: LaneKey = KEYS[0], arrived_ms: int = 0) -> Part:
    return Part(key, number, arrived_ms)


def lanes() -> Lanes[Part, str]:
    return Lanes(LIMITS)


def test_a_free_lane_sends_at_once_and_is_forgotten_when_settled() -> None:
    machine, one = lanes(), part(1)
    assert machine.submit(one, "a", 0) == 0
    machine.settled(one)
    assert len(machine) == 0
    assert machine.next_ms() is None


def test_a_refused_part_waits_for_everything_outstanding_and_goes_first() -> None:
    machine, one, two, three = lanes(), part(1), part(2), part(3)
    machine.submit(one, "a", 0)
    machine.submit(two, "a", 0)
    machine.refused(two, 0)
    assert machine.submit(three, "a", 0) is None
    assert list(machine.due(lambda _: "b", 100)) == [], "part 1 is still out"
    machine.refused(one, 0)
    assert list(machine.due(lambda _: "b", 49)) == [], "the retry time has not come"
    assert list(machine.due(lambda _: "b", 50)) == [Resend(target="b", epoch=1, parts=(one, two, three))]
    assert machine.held_count == 0


def test_a_change_of_owner_ends_the_wait_for_the_retry_time() -> None:
    machine, one = lanes(), part(1)
    machine.submit(one, "a", 0)
    machine.refused(one, 0)
    machine.changed(10)
    assert list(machine.due(lambda _: "b", 10)) == [Resend(target="b", epoch=1, parts=(one,))]


def test_a_new_lane_starts_above_every_refusal_an_instance_may_remember() -> None:
    machine, one = lanes(), part(1)
    machine.submit(one, "a", 0)
    machine.refused(one, 0)
    assert machine.expired(300) == [one]
    assert len(machine) == 0
    assert machine.submit(part(2), "a", 300) == 1


def test_while_parts_are_out_another_owner_has_to_wait() -> None:
    machine, one, two = lanes(), part(1), part(2)
    machine.submit(one, "a", 0)
    assert machine.submit(two, "b", 0) is None
    machine.settled(one)
    assert list(machine.due(lambda _: "b", 0)) == [Resend(target="b", epoch=0, parts=(two,))]


def test_without_an_owner_a_part_is_held_to_the_end_of_its_time() -> None:
    machine, one = lanes(), part(1, arrived_ms=40)
    assert machine.submit(one, None, 40) is None
    assert list(machine.due(lambda _: None, 40)) == []
    assert machine.next_ms() == 90
    assert machine.expired(339) == []
    assert machine.expired(340) == [one]
    assert machine.next_ms() is None


def test_what_is_held_is_bounded() -> None:
    machine = lanes()
    for number in range(LIMITS.held_max):
        assert not machine.full
        machine.submit(part(number), None, 0)
    assert machine.full


def test_a_withdrawn_part_leaves_no_trace() -> None:
    machine, one = lanes(), part(1)
    machine.submit(one, None, 0)
    assert machine.holds(one)
    assert machine.held_in(KEYS[0]) == (one,)
    machine.withdraw(one)
    assert (len(machine), machine.held_count, machine.holds(one)) == (0, 0, False)


def test_only_the_lane_whose_owner_changed_is_tried_at_once() -> None:
    machine, one, other = lanes(), part(1), part(2, KEYS[1])
    for each in (one, other):
        machine.submit(each, "a", 0)
        machine.refused(each, 0)
    machine.changed(10, KEYS[1])
    assert list(machine.due(lambda _: "b", 10)) == [Resend(target="b", epoch=2, parts=(other,))]


@dataclass
class Owner:
    """A produce instance: takes its stream in order, refuses as the protocol says."""

    stream: deque[tuple[Part, int]] = field(default_factory=deque)
    refused_epochs: dict[LaneKey, int] = field(default_factory=dict)
    replies: list[tuple[Part, str]] = field(default_factory=list)


class ChangingOwners(RuleBasedStateMachine):
    NAMES = ("a", "b", "c")

    def __init__(self) -> None:
        super().__init__()
        self.held: set[LaneKey] = set()
        self.lanes: Lanes[Part, str] = Lanes(LIMITS, self.hold_changed)
        self.owners = {name: Owner() for name in self.NAMES}
        self.owner_of: dict[LaneKey, str | None] = dict.fromkeys(KEYS, "a")
        self.believed: dict[LaneKey, str | None] = dict.fromkeys(KEYS, "a")
        self.log: dict[LaneKey, list[int]] = {key: [] for key in KEYS}
        self.unsettled: set[int] = set()
        self.ambiguous: set[int] = set()
        self.numbers = 0
        self.now = 0

    def hold_changed(self, key: LaneKey, holding: bool) -> None:
        assert (key in self.held) is not holding, "said once"
        (self.held.add if holding else self.held.discard)(key)

    def send(self, one: Part, target: str, epoch: int) -> None:
        assert one.number not in self.ambiguous, "never sent again after an unknown outcome"
        self.owners[target].stream.append((one, epoch))

    @rule(key=st.sampled_from(KEYS))
    def client_produces(self, key: LaneKey) -> None:
        if self.lanes.full:
            return
        self.numbers += 1
        one = part(self.numbers, key, self.now)
        self.unsettled.add(one.number)
        target = self.believed[key]
        epoch = self.lanes.submit(one, target, self.now)
        if epoch is not None:
            assert target is not None
            self.send(one, target, epoch)

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 4))
    def instance_reads(self, name: str, count: int) -> None:
        owner = self.owners[name]
        for _ in range(min(count, len(owner.stream))):
            one, epoch = owner.stream.popleft()
            if epoch <= owner.refused_epochs.get(one.key, -1) or self.owner_of[one.key] != name:
                owner.refused_epochs[one.key] = max(epoch, owner.refused_epochs.get(one.key, -1))
                owner.replies.append((one, "refused"))
            else:
                self.log[one.key].append(one.number)
                owner.replies.append((one, "appended"))

    @precondition(lambda self: any(owner.replies for owner in self.owners.values()))
    @rule(data=st.data())
    def reply_arrives(self, data: st.DataObject) -> None:
        owner = data.draw(st.sampled_from([o for o in self.owners.values() if o.replies]))
        one, kind = owner.replies.pop(data.draw(st.integers(0, len(owner.replies) - 1)))
        if kind == "refused":
            self.lanes.refused(one, self.now)
        else:
            self.lanes.settled(one)
            self.unsettled.discard(one.number)

    @rule(key=st.sampled_from(KEYS), name=st.sampled_from((*NAMES, None)))
    def ownership_moves(self, key: LaneKey, name: str | None) -> None:
        self.owner_of[key] = name

    @rule(key=st.sampled_from(KEYS))
    def view_catches_up(self, key: LaneKey) -> None:
        """Only this lane is looked at, and only if it is said to hold something."""
        self.believed[key] = self.owner_of[key]
        if key in self.held:
            self.lanes.changed(self.now, key)
            self.send_due(key)

    @rule(name=st.sampled_from(NAMES))
    def stream_breaks(self, name: str) -> None:
        """What was on its way or unanswered has an unknown outcome; the instance forgets its refusals."""
        owner = self.owners[name]
        lost = [one for one, _ in owner.stream] + [one for one, _ in owner.replies]
        owner.stream.clear()
        owner.replies.clear()
        owner.refused_epochs.clear()
        for one in sorted(lost, key=lambda one: one.number):
            self.ambiguous.add(one.number)
            self.unsettled.discard(one.number)
            self.lanes.settled(one)

    @rule(step=st.integers(1, 120))
    def time_passes(self, step: int) -> None:
        self.now += step
        self.pump()

    def pump(self) -> None:
        given_up = self.lanes.expired(self.now)
        for key in KEYS:
            lane = [one for one in given_up if one.key == key]
            if lane:  # the whole lane, and only because its first part waited too long
                assert self.now - lane[0].arrived_ms >= LIMITS.hold_ms_max
                assert self.lanes.held_in(key) == ()
        for one in given_up:
            self.unsettled.discard(one.number)
        self.send_due()

    def send_due(self, only: LaneKey | None = None) -> None:
        for resend in self.lanes.due(lambda key: self.believed[key], self.now, only):
            for one in resend.parts:
                self.send(one, resend.target, resend.epoch)

    @invariant()
    def appended_in_the_order_of_requests(self) -> None:
        for log in self.log.values():
            assert log == sorted(set(log))

    @invariant()
    def it_is_known_which_lanes_hold_something(self) -> None:
        assert self.held == {key for key in KEYS if self.lanes.held_in(key)} == set(self.lanes.holding)

    @invariant()
    def nothing_is_held_without_a_deadline(self) -> None:
        next_ms = self.lanes.next_ms()
        assert (next_ms is None) == (self.lanes.held_count == 0)
        if next_ms is not None:
            assert next_ms <= self.now + LIMITS.hold_ms_max

    def teardown(self) -> None:
        """Left alone with a stable owner, every part gets its answer."""
        self.owner_of = dict.fromkeys(KEYS, "b")
        self.believed = dict(self.owner_of)
        for _ in range(200):
            if not self.unsettled:
                break
            self.now += 10
            self.lanes.changed(self.now)
            self.pump()
            for name, owner in self.owners.items():
                self.instance_reads(name, len(owner.stream))
                while owner.replies:
                    one, kind = owner.replies.pop(0)
                    if kind == "refused":
                        self.lanes.refused(one, self.now)
                    else:
                        self.lanes.settled(one)
                        self.unsettled.discard(one.number)
        assert not self.unsettled
        assert len(self.lanes) == 0
        self.appended_in_the_order_of_requests()


TestChangingOwners = ChangingOwners.TestCase
TestChangingOwners.settings = settings(max_examples=60, stateful_step_count=50, derandomize=True)


@pytest.mark.deep
@pytest.mark.timeout(3_600)
def test_no_interleaving_breaks_a_lane_in_a_long_search() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        ChangingOwners, settings=settings(max_examples=5_000, stateful_step_count=100)
    )
