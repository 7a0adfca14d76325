"""The server-side assignors: the target assignment of a group (KIP-848).

Both are functions of the subscriptions, the existing topics and, for uniform, the present target. The laws: each
partition of a subscribed topic goes to exactly one of its subscribers; equal arguments give equal targets; if nothing
changed, nothing moves.

`uniform` keeps as much of the target as it can and balances the rest: the loads of two members that could swap a
partition differ by at most one. `range` gives each subscriber of a topic one run of its partitions. The run is the
same in all topics with equal size and subscribers, so records with one key in two such topics go to one member
(co-partitioning).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import assert_never

from kafscale.coordinator.consumer.model import NOTHING, Assignor, MemberId, Partitions
from kafscale.storage.keys import PartitionKey, TopicId

Target = dict[MemberId, Partitions]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The fields of a member that an assignor uses."""

    instance_id: str | None = None
    subscribed: frozenset[TopicId] = frozenset()  # all of them exist
    target: Partitions = field(default_factory=dict)  # the present one


Candidates = Mapping[MemberId, Candidate]


def assign(assignor: Assignor, candidates: Candidates, sizes: Mapping[TopicId, int]) -> Target:
    """`sizes`: the number of partitions of each subscribed topic."""
    match assignor:
        case Assignor.UNIFORM:
            return _uniform(candidates, sizes)
        case Assignor.RANGE:
            return _range(candidates, sizes)
        case _:
            assert_never(assignor)


def _subscribers(candidates: Candidates) -> dict[TopicId, list[MemberId]]:
    """The subscribers of each topic, ordered by instance id, then by member id, so a static member keeps its place.

    Topics with the same subscribers may share one list, because often 1,000 members name the same 100 topics.
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
    """The partitions of all topics with the same subscribers, and which member has each."""

    def __init__(self, members: Sequence[MemberId]) -> None:
        self.members = members
        self.sizes: dict[TopicId, int] = {}  # its topics, in their order
        self.held: dict[MemberId, list[PartitionKey]] = {member_id: [] for member_id in members}
        self.free: list[PartitionKey] = []

    def take_back(self, candidates: Candidates) -> None:
        """Members keep the partitions of their present target; the others are free."""
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
        """Each free partition goes to the member with the lowest load."""
        lightest = [(loads[member_id], rank) for rank, member_id in enumerate(self.members)]
        heapify(lightest)
        for partition in self.free:
            load, rank = heappop(lightest)
            member_id = self.members[rank]
            self.held[member_id].append(partition)
            loads[member_id] = load + 1
            heappush(lightest, (load + 1, rank))

    def level(self, loads: dict[MemberId, int]) -> bool:
        """Moves partitions from the highest to the lowest load while that balances them. Returns whether one moved.

        Each move lowers the sum of the squared loads, so the moves of all pools end.
        """
        lightest = [(loads[member_id], rank) for rank, member_id in enumerate(self.members)]
        heaviest = [(-load, -rank) for load, rank in lightest if self.held[self.members[rank]]]
        heapify(lightest)
        heapify(heaviest)
        moved = False
        while heaviest:
            donor, receiver = self.members[-heaviest[0][1]], self.members[lightest[0][1]]
            if -heaviest[0][0] != loads[donor] or not self.held[donor]:
                heappop(heaviest)  # it has given a partition away since
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
    # Pools with few members have the fewest choices, so their partitions are assigned first.
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
