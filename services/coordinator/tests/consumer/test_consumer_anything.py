"""Whatever anybody says, in whatever order, a group stays a group: no exception, every invariant.

The clients here are liars: they report partitions that they never had, take each other's names and
make epochs up. So nothing is said of what they own, and all of what the machine must keep.
"""

from hypothesis import given, settings
from hypothesis import strategies as st
from kafscale.coordinator.consumer.machine import durable, next_deadline, restore, step
from kafscale.coordinator.consumer.model import (
    Commit,
    Delete,
    Event,
    Fetch,
    Heartbeat,
    PersistedGroup,
    Rules,
    Tick,
    TopicInfo,
    TopicsChanged,
)
from kafscale.coordinator.consumer.subscriptions import subscribed_topics
from kafscale.coordinator.handlers.consumer_group_describe import describe

from services.coordinator.tests.consumer import consumer_laws as laws
from services.coordinator.tests.consumer.consumer_desk import A, B, C

RULES = Rules(session_timeout_ms=5_000, members_max=3)
ids = st.sampled_from(("x", "y", "z", "w", ""))
epochs = st.sampled_from((0, 0, 0, 1, 2, 3, 4, 5, -1, -2, -3))
numbers = st.frozensets(st.integers(0, 4), max_size=5)
partitions = st.dictionaries(st.sampled_from((A, B, C)), numbers, max_size=2)
heartbeats = st.builds(
    Heartbeat,
    token=st.just(7),
    fresh_id=st.sampled_from(("d", "e")),
    member_id=ids,
    member_epoch=epochs,
    instance_id=st.sampled_from((None, None, "i", "j", "")),
    rack_id=st.sampled_from((None, "r", "")),
    rebalance_timeout_ms=st.sampled_from((-2, -1, 0, 1, 3_000, 2**31 - 1)),
    subscribed_names=st.none() | st.lists(st.sampled_from("abc"), max_size=3).map(tuple),
    subscribed_regex=st.sampled_from((None, None, "", "a|c", ".*", "(")),
    server_assignor=st.sampled_from((None, "uniform", "range", "none such")),
    owned=st.none() | st.just({}) | partitions,
    version=st.integers(0, 1),
)
joins = st.builds(
    Heartbeat,
    token=st.just(7),
    fresh_id=st.just("d"),
    member_id=ids,
    member_epoch=st.just(0),
    instance_id=st.sampled_from((None, "i", "j")),
    rebalance_timeout_ms=st.just(2_000),
    subscribed_names=st.sampled_from((("a",), ("a",), ("a", "b"), ())),
    owned=st.just({}),
    version=st.integers(0, 1),
)
static_leaves = st.builds(
    Heartbeat,
    token=st.just(7),
    fresh_id=st.just("d"),
    member_id=ids,
    member_epoch=st.just(-2),
    instance_id=st.sampled_from(("i", "j")),
)
topics = st.dictionaries(
    st.sampled_from("abc"),
    st.builds(TopicInfo, st.sampled_from((A, B, C)), st.integers(1, 4)),
).filter(lambda found: len({topic.topic_id for topic in found.values()}) == len(found))
events: st.SearchStrategy[Event] = st.one_of(
    joins,
    static_leaves,
    heartbeats,
    heartbeats,
    st.builds(Commit, token=st.just(7), member_id=ids, member_epoch=epochs),
    st.builds(Fetch, token=st.just(7), member_id=st.none() | ids, member_epoch=epochs),
    st.builds(TopicsChanged, topics=topics),
    st.just(Tick()),
    st.builds(Delete, token=st.just(7)),
)
histories = st.lists(st.tuples(events, st.sampled_from((0, 1, 1_000, 4_999, 6_000))), max_size=30)


@settings(max_examples=200, derandomize=True)
@given(histories, topics)
def test_whatever_is_said_a_group_stays_a_group(
    history: list[tuple[Event, int]], first: dict[str, TopicInfo]
) -> None:
    now_ms = 0
    group = restore(PersistedGroup(group_id="g"), now_ms, first, RULES)
    for event, elapsed_ms in history:
        now_ms += elapsed_ms
        done = step(group, event, now_ms, RULES)
        assert done == step(group, event, now_ms, RULES)
        assert len(done.replies) == (not isinstance(event, Tick | TopicsChanged))
        laws.check_move(group, done.group)
        group = done.group
        laws.check(group, now_ms)
        describe(group, RULES)
        assert subscribed_topics(group) <= set("abc")
        again = restore(durable(group), now_ms, group.topics, RULES)
        assert durable(again) is durable(group)
        laws.check(again, now_ms)
    while (due := next_deadline(group)) is not None:
        assert due > now_ms
        now_ms = due
        group = step(group, Tick(), now_ms, RULES).group
    assert not group.persisted.members
