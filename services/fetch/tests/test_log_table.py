"""Knowledge of a log only grows, in whatever order it arrives."""

import random

from hypothesis import given
from hypothesis import strategies as st
from kafscale.fetch.log_table import LogTable
from kafscale.log.heads import Head, Meta, Seg, encode_head, encode_meta
from kafscale.log.state import LogState
from kafscale.storage.keys import Keyspace, PartitionKey, TopicId
from kafscale.storage.topics import Topic

KEY = (TopicId(b"t" * 16), 0)
KEYSPACE = Keyspace("test")


def held(*keys: PartitionKey, partitions_max: int = 100) -> LogTable:
    """A table that holds these partitions, KEY if none is named, all of them used at 0 ms."""
    table = LogTable(KEYSPACE, partitions_max=partitions_max)
    for key in keys or (KEY,):
        table.hold(key, 0)
    return table


def head(end: int) -> bytes:
    return encode_head(Head(epoch=1, topic="t", next=end, lso=end))


def seg(base: int) -> Seg:
    return Seg(
        base=base, last_delta=9, size=100, etag="e", crc32c=0, index_size=0, index_etag="", epoch=1,
        min_ts=0, max_ts=0, records=10, batches=1, created_ms=0,
    )  # fmt: skip


@given(history=st.lists(st.booleans(), min_size=1, max_size=8), seed=st.integers())
def test_the_newest_revision_wins_in_any_order_of_arrival(history: list[bool], seed: int) -> None:
    """True is a commit, False a deletion; each at its revision, some reported twice."""
    events = [(head(10 * n) if alive else None, n) for n, alive in enumerate(history, start=1)]
    arrivals = events + random.Random(seed).sample(events, len(events) // 2)
    random.Random(seed).shuffle(arrivals)
    table, ends = held(), []
    table.learn_meta(KEY, None, 1)
    for value, revision in arrivals:
        table.learn_head(KEY, value, revision)
        state = table.state(KEY)
        assert state is not None
        ends.append(revision)
        newest = max(ends)
        assert state.next == (10 * newest if history[newest - 1] else 0)


def test_an_absence_that_was_read_is_not_undone_by_an_older_event() -> None:
    table = held()
    table.learn_meta(KEY, None, 7)
    table.learn_head(KEY, None, 7)
    table.learn_head(KEY, head(10), 6)
    assert table.state(KEY) == LogState()
    table.learn_head(KEY, head(20), 8)
    state = table.state(KEY)
    assert state is not None
    assert state.next == 20


def test_listeners_hear_changes_and_nothing_else() -> None:
    table, heard = held(), []
    listener = lambda: heard.append(1)  # noqa: E731
    table.listen([KEY], listener)
    table.learn_head(KEY, head(1), 5)
    table.learn_head(KEY, head(1), 6)  # the same again
    table.learn_head(KEY, head(0), 4)  # late
    assert len(heard) == 1
    table.learn_meta(KEY, encode_meta(Meta(log_start=1)), 7)
    assert len(heard) == 2
    table.unlisten([KEY], listener)
    table.learn_head(KEY, head(2), 8)
    assert len(heard) == 2
    assert KEY not in table._listeners


def test_a_dropped_partition_is_unknown_again_and_learns_nothing() -> None:
    table = held()
    table.learn_head(KEY, head(1), 5)
    table.learn_meta(KEY, None, 5)
    table.confirm(KEY, 6, 100)
    assert (table.read_revision(KEY), table.read_ms(KEY)) == (6, 100)
    table.drop_unused(since_ms=0)
    assert len(table) == 0
    table.learn(KEYSPACE.head(*KEY), head(2), 7)
    table.learn_head(KEY, head(2), 7)
    table.confirm(KEY, 8, 200)
    assert (table.state(KEY), table.read_revision(KEY), len(table)) == (None, 0, 0)
    table.hold(KEY, 1)
    assert table.state(KEY) is None


def test_a_log_is_not_known_before_both_of_its_keys_are() -> None:
    """A log start of 0 that nobody has read must not be answered."""
    table = held()
    assert table.state(KEY) is None
    table.learn_head(KEY, head(10), 5)
    assert table.state(KEY) is None
    table.learn_meta(KEY, encode_meta(Meta(log_start=4)), 3)
    assert table.state(KEY).log_start == 4


def test_values_of_raw_keys_reach_their_partition_and_no_other() -> None:
    other, stranger = (KEY[0], 1), (KEY[0], 2)
    table = held(KEY, other)
    for key, end in ((KEY, 10), (other, 20), (stranger, 30)):
        table.learn(KEYSPACE.head(*key), head(end), 5)
        table.learn(KEYSPACE.meta(*key), encode_meta(Meta(log_start=end - 5)), 5)
    table.learn(KEYSPACE.owner(*KEY), b"no head", 6)
    found = [table.state(key) for key in (KEY, other)]
    assert [(state.next, state.log_start) for state in found] == [(10, 5), (20, 15)]
    assert table.state(stranger) is None
    assert table.held() == [KEY, other]


def test_the_least_lately_used_partition_makes_room_and_held_requests_keep_theirs() -> None:
    keys = [(KEY[0], n) for n in range(6)]
    table = held(*keys[:3], partitions_max=3)
    table.hold(keys[0], 1)
    table.hold(keys[3], 2)
    assert table.held() == [keys[2], keys[0], keys[3]]
    table.listen(keys[2:3], lambda: None)
    table.hold(keys[4], 3)
    assert set(table.held()) == {keys[2], keys[3], keys[4]}
    table.listen(keys, lambda: None)
    table.hold(keys[5], 4)
    assert len(table) == 4, "every other one has a held request"


def test_after_its_values_are_forgotten_a_table_believes_older_ones() -> None:
    table, heard = held(), []
    table.listen([KEY], lambda: heard.append(1))
    table.learn_head(KEY, head(90), 900)
    table.learn_meta(KEY, None, 900)
    table.confirm(KEY, 900, 100)
    heard.clear()
    table.forget_values()
    assert (table.state(KEY), table.read_revision(KEY), heard) == (None, 0, [1])
    table.learn_head(KEY, head(10), 7)
    table.learn_meta(KEY, None, 7)
    assert table.state(KEY).next == 10


def test_half_of_a_checkpoint_is_noticed_where_it_hides_segments() -> None:
    before = LogState(
        head=Head(epoch=1, topic="t", next=40, tail=(seg(20), seg(30))), meta=Meta(manifest_end=20)
    )
    overlapping = LogState(head=before.head, meta=Meta(manifest_end=30))
    assert not before.torn
    assert not overlapping.torn
    assert not LogState().torn
    for tail in ((seg(30),), ()):
        assert LogState(head=Head(epoch=1, topic="t", next=40, tail=tail), meta=before.meta).torn


def test_an_unclaimed_partition_is_an_empty_log() -> None:
    state = LogState()
    assert (state.next, state.lso, state.log_start, state.tail) == (0, 0, 0, ())
    topic = Topic(name="t", topic_id=TopicId(bytes(16)), partitions=1, epoch_floor=4)
    assert state.leader_epoch(topic) == 5, "that of the first claim"
    assert LogState(head=Head(epoch=7, owner="1/a", topic="t")).leader_epoch(topic) == 7
