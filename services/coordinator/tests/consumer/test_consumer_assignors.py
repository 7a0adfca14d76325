"""The assignors: complete and disjoint always; uniform balanced and sticky; range co-partitioned."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafscale.coordinator.consumer.assignors import Candidate, Target, assign
from kafscale.coordinator.consumer.model import Assignor, MemberId, Partitions
from kafscale.storage.keys import TopicId

UNIFORM, RANGE = Assignor.UNIFORM, Assignor.RANGE
TOPICS = [TopicId(bytes([number] * 16)) for number in range(1, 5)]
sizes_of_topics = st.lists(st.integers(1, 9), min_size=4, max_size=4).map(
    lambda sizes: dict(zip(TOPICS, sizes, strict=True))
)
subscriptions = st.lists(st.frozensets(st.sampled_from(TOPICS), max_size=4), min_size=1, max_size=6)
equal_subscriptions = st.tuples(st.frozensets(st.sampled_from(TOPICS), min_size=1), st.integers(1, 6)).map(
    lambda drawn: [drawn[0]] * drawn[1]
)


def members(subscribed: list[frozenset[TopicId]]) -> dict[MemberId, Candidate]:
    return {MemberId(f"m{number}"): Candidate(subscribed=one) for number, one in enumerate(subscribed)}


def keeping(candidates: Mapping[MemberId, Candidate], target: Target) -> dict[MemberId, Candidate]:
    return {name: replace(candidate, target=target.get(name, {})) for name, candidate in candidates.items()}


def load(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


def pairs(partitions: Partitions) -> set[tuple[TopicId, int]]:
    return {(topic, number) for topic, numbers in partitions.items() for number in numbers}


def moved(before: Target, after: Target) -> int:
    return sum(len(pairs(now) - pairs(before.get(name, {}))) for name, now in after.items())


def judge(
    assignor: Assignor, candidates: Mapping[MemberId, Candidate], sizes: Mapping[TopicId, int]
) -> Target:
    target = assign(assignor, candidates, sizes)
    assert target == assign(assignor, candidates, sizes)
    assert target.keys() == candidates.keys()
    given_away = [pair for partitions in target.values() for pair in pairs(partitions)]
    wanted = {topic for candidate in candidates.values() for topic in candidate.subscribed}
    assert sorted(given_away) == sorted((topic, number) for topic in wanted for number in range(sizes[topic]))
    for name, candidate in candidates.items():
        assert target[name].keys() <= candidate.subscribed
        assert all(target[name].values())
    if assignor is UNIFORM:
        for one in candidates:
            for other in candidates:
                if candidates[one].subscribed == candidates[other].subscribed:
                    assert abs(load(target[one]) - load(target[other])) <= 1
    return target


@settings(max_examples=100, derandomize=True)
@given(st.sampled_from(Assignor), subscriptions | equal_subscriptions, subscriptions, sizes_of_topics)
def test_whoever_comes_and_goes_all_is_assigned_once_and_to_who_wants_it(
    assignor: Assignor,
    first: list[frozenset[TopicId]],
    then: list[frozenset[TopicId]],
    sizes: dict[TopicId, int],
) -> None:
    target = judge(assignor, members(first), sizes)
    assert judge(assignor, keeping(members(first), target), sizes) == target, "nothing changed, nothing moves"
    grown = {topic: size + 1 for topic, size in sizes.items()}
    judge(assignor, keeping(members(then), target), grown)
    judge(assignor, keeping(members(then), target), dict.fromkeys(sizes, 1))


@settings(max_examples=100, derandomize=True)
@given(equal_subscriptions, sizes_of_topics)
def test_uniform_moves_no_more_than_it_must(
    subscribed: list[frozenset[TopicId]], sizes: dict[TopicId, int]
) -> None:
    few = members(subscribed)
    target = judge(UNIFORM, few, sizes)
    more = members([*subscribed, subscribed[0]])
    newest = MemberId(f"m{len(subscribed)}")
    after = judge(UNIFORM, keeping(more, target), sizes)
    assert moved(target, after) == load(after[newest]), "only the newcomer gets anything"
    back = judge(UNIFORM, keeping(few, after), sizes)
    assert moved(after, back) == load(after[newest]), "only what it had is given away"


def test_uniform_levels_what_only_some_can_take() -> None:
    one, two = TOPICS[:2]
    target = judge(
        UNIFORM,
        members([frozenset((one, two)), frozenset((one,)), frozenset((two,))]),
        {one: 1, two: 5},
    )
    assert sorted(load(partitions) for partitions in target.values()) == [1, 2, 3]


def test_uniform_takes_a_partition_that_two_targets_claim_from_one() -> None:
    topic = TOPICS[0]
    both = {topic: frozenset((0, 1))}
    candidates = {
        MemberId(name): Candidate(subscribed=frozenset((topic,)), target=both) for name in ("x", "y")
    }
    judge(UNIFORM, candidates, {topic: 2})


@settings(max_examples=100, derandomize=True)
@given(equal_subscriptions, st.integers(1, 9))
def test_range_co_partitions_equal_topics(subscribed: list[frozenset[TopicId]], size: int) -> None:
    target = judge(RANGE, members(subscribed), dict.fromkeys(TOPICS, size))
    for partitions in target.values():
        assert len(set(partitions.values())) <= 1
        for numbers in partitions.values():
            assert sorted(numbers) == list(range(min(numbers), max(numbers) + 1))


@pytest.mark.parametrize("assignor", Assignor)
def test_range_goes_by_instance_ids_first(assignor: Assignor) -> None:
    topic = TOPICS[0]
    only = frozenset((topic,))
    candidates = {
        MemberId("a"): Candidate(subscribed=only),
        MemberId("c"): Candidate(subscribed=only, instance_id="i2"),
        MemberId("b"): Candidate(subscribed=only, instance_id="i1"),
    }
    target = judge(assignor, candidates, {topic: 5})
    assert [load(target[MemberId(name)]) for name in "abc"] == [1, 2, 2]


def test_ten_thousand_partitions_among_a_thousand_members_are_quick() -> None:
    topics = [TopicId(number.to_bytes(16, "big")) for number in range(100)]
    candidates = members([frozenset(topics)] * 1_000)
    sizes = dict.fromkeys(topics, 100)
    target = assign(UNIFORM, candidates, sizes)
    assert {load(partitions) for partitions in target.values()} == {10}
    gone = dict(list(keeping(candidates, target).items())[:500])
    assert {load(partitions) for partitions in assign(UNIFORM, gone, sizes).values()} == {20}
