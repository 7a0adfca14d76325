"""The server-side assignors: who should have what, once everybody has followed (KIP-848).

Both are functions of what the members are subscribed to, what exists, and (uniform) the target so
far. The laws: each partition of a topic that somebody is subscribed to goes to exactly one of its
subscribers; the same arguments give the same target; with nothing changed nothing moves.

`uniform` keeps what it can and balances: between two members that could swap a partition the loads
differ by at most one, so among members of equal subscription they do. `range` gives each subscriber
of a topic one run of its partitions, the same run in all topics of equal size and subscribers, so
that what has one key in two topics comes together (co-partitioning).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import assert_never

from kafscale.coordinator.consumer.model import NOTHING, Assignor, MemberId, Partitions
from kafscale.storage.keys import TopicId

Target = dict[MemberId, Partitions]
TopicPartition = tuple[TopicId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A member as an assignor sees it."""

    instance_id: str | None = None
    subscribed: frozenset[TopicId] = frozenset()  # all of them exist
    target: Partitions = field(default_factory=dict)  # so far


Candidates = Mapping[MemberId, Candidate]


def assign(assignor: Assignor, candidates: Candidates, sizes: Mapping[TopicId, int]) -> Target:
    """`sizes`: the number of partitions of each topic that somebody is subscribed to."""
    match assignor:
        case Assignor.UNIFORM:
            return _uniform(candidates, sizes)
        case Assignor.RANGE:
            return _range(candidates, sizes)
        case _:
            assert_never(assignor)


def _subscribers(candidates: Candidates) -> dict[TopicId, list[MemberId]]:
    """By topic, in the order of instance ids, then of member ids: a static member keeps its place.

    Topics with the very same subscribers may share one list: a thousand members name the same hundred topics.
    """

    def rank(member_id: MemberId) -> tuple[bool, str, str]:
        instance_id = candidates[member_id].instance_id
        return (instance_id is None, instance_id or "", member_id)

    ranks = {member_id: position for position, member_id in enumerate(sorted(candidates, key=rank))}
    by_subscription: dict[frozenset[TopicId], list[MemberId]] = defaultdict(list)
    for member_id in ranks:
        by_subscription[candidates[member_id].subscribed].append(member_id)
    found: dict[TopicId, list[MemberId]] = {}
    for subscribed, members in by_subscription.items():
        for topic in subscribed:
            found[topic] = (
                members if topic not in found else sorted(found[topic] + members, key=ranks.__getitem__)
            )
    return found


# --- range -------------------------------------------------------------------------------------


def _range(candidates: Candidates, sizes: Mapping[TopicId, int]) -> Target:
    target: dict[MemberId, dict[TopicId, frozenset[int]]] = {member_id: {} for member_id in candidates}
    subscribers = _subscribers(candidates)
    for topic in sorted(subscribers):
        members = subscribers[topic]
        size, longer = divmod(sizes[topic], len(members))
        start = 0
        for position, member_id in enumerate(members):
            end = start + size + (position < longer)
            if end > start:
                target[member_id][topic] = frozenset(range(start, end))
            start = end
    return dict(target)


# --- uniform -----------------------------------------------------------------------------------


class _Pool:
    """The partitions of all topics that have the very same subscribers, and who has them."""

    def __init__(self, members: Sequence[MemberId]) -> None:
        self.members = members
        self.sizes: dict[TopicId, int] = {}  # its topics, in their order
        self.held: dict[MemberId, list[TopicPartition]] = {member_id: [] for member_id in members}
        self.free: list[TopicPartition] = []

    def take_back(self, candidates: Candidates) -> None:
        """What the members have stays with them, the rest is free."""
        taken: dict[TopicId, set[int]] = {topic: set() for topic in self.sizes}
        for member_id in self.members:
            target = candidates[member_id].target
            for topic in sorted(self.sizes.keys() & target.keys()):
                kept = target[topic] - taken[topic]
                self.held[member_id] += [
                    (topic, number) for number in sorted(kept) if number < self.sizes[topic]
                ]
                taken[topic] |= kept
        self.free += [
            (topic, number)
            for topic, size in self.sizes.items()
            for number in range(size)
            if number not in taken[topic]
        ]

    def fill(self, loads: dict[MemberId, int]) -> None:
        """Each free partition goes to the member that has the least."""
        lightest = [(loads[member_id], rank) for rank, member_id in enumerate(self.members)]
        heapify(lightest)
        for partition in self.free:
            load, rank = heappop(lightest)
            member_id = self.members[rank]
            self.held[member_id].append(partition)
            loads[member_id] = load + 1
            heappush(lightest, (load + 1, rank))

    def level(self, loads: dict[MemberId, int]) -> bool:
        """Moves partitions from the heaviest to the lightest while that helps; whether one moved.

        Each move lowers the sum of the squared loads, so moves in all pools together come to an end.
        """
        lightest = [(loads[member_id], rank) for rank, member_id in enumerate(self.members)]
        heaviest = [(-load, -rank) for load, rank in lightest if self.held[self.members[rank]]]
        heapify(lightest)
        heapify(heaviest)
        moved = False
        while heaviest:
            donor, receiver = self.members[-heaviest[0][1]], self.members[lightest[0][1]]
            if -heaviest[0][0] != loads[donor] or not self.held[donor]:
                heappop(heaviest)  # it has given since
            elif lightest[0][0] != loads[receiver]:
                heappop(lightest)
            elif loads[donor] - loads[receiver] <= 1:
                break
            else:
                self.held[receiver].append(self.held[donor].pop())
                loads[donor] -= 1
                loads[receiver] += 1
                moved = True
                for member_id, rank in ((donor, -heaviest[0][1]), (receiver, lightest[0][1])):
                    heappush(heaviest, (-loads[member_id], -rank))
                    heappush(lightest, (loads[member_id], rank))
        return moved


def _uniform(candidates: Candidates, sizes: Mapping[TopicId, int]) -> Target:
    by_subscribers: dict[tuple[MemberId, ...], _Pool] = {}
    known: dict[int, _Pool] = {}  # by the list that topics share
    subscribers = _subscribers(candidates)
    for topic, members in sorted(subscribers.items()):
        if id(members) not in known:
            key = tuple(members)
            known[id(members)] = by_subscribers.setdefault(key, _Pool(key))
        known[id(members)].sizes[topic] = sizes[topic]
    for pool in by_subscribers.values():
        pool.take_back(candidates)
    # Where few can take a partition the choice is small, so these are given out first.
    pools = sorted(by_subscribers.values(), key=lambda pool: (len(pool.members), pool.members))
    loads = dict.fromkeys(candidates, 0)
    for pool in pools:
        for member_id, held in pool.held.items():
            loads[member_id] += len(held)
    for pool in pools:
        pool.fill(loads)
    moved = [True]
    while any(moved):
        moved = [pool.level(loads) for pool in pools]
    return {member_id: _held(member_id, pools) for member_id in candidates}


def _held(member_id: MemberId, pools: Sequence[_Pool]) -> Partitions:
    numbers: dict[TopicId, set[int]] = defaultdict(set)
    for pool in pools:
        for topic, number in pool.held.get(member_id, ()):
            numbers[topic].add(number)
    return {topic: frozenset(some) for topic, some in numbers.items()} if numbers else NOTHING
