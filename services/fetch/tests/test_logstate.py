"""Knowledge of a log only grows, in whatever order it arrives."""

import random

from hypothesis import given
from hypothesis import strategies as st
from kafscale.fetch.logstate import LogState, LogTable, PartitionKey
from kafscale.storage.heads import Head, Meta, Seg, encode_head, encode_meta
from kafscale.storage.keys import TopicId

KEY = PartitionKey(TopicId(b"t" * 16), 0)


def head(end: int) -> bytes:
    return encode_head(Head(epoch=1, topic="t", next=end, lso=end))


def seg(base: int) -> Seg:
    return Seg(
        base=base, last_delta=9, size=100, etag="e", crc32c=0, index_size=0, index_etag="", epoch=1,
        min_ts=0, max_ts=0, records=10, batches=1, created_ms=0,
    )  # fmt: skip


@given(history=st.lists(st.booleans(), min_size=1, max_size=8), seed=st.integers())
def test_the_newest_revision_wins_in_any_order_of_arrival(history: list[bool], seed: int) -> None:
    """True is a commit, False a deletion; each at its revision, some told twice."""
    events = [(head(10 * n) if alive else None, n) for n, alive in enumerate(history, start=1)]
    arrivals = events + random.Random(seed).sample(events, len(events) // 2)
    random.Random(seed).shuffle(arrivals)
    table, ends = LogTable(), []
    for value, revision in arrivals:
        table.learn_head(KEY, value, revision)
        state = table.state(KEY, rest_is_absent=True)
        assert state is not None
        ends.append(revision)
        newest = max(ends)
        assert state.next == (10 * newest if history[newest - 1] else 0)


def test_an_absence_that_was_read_is_not_undone_by_an_older_event() -> None:
    table = LogTable()
    table.learn_head(KEY, None, 7)
    table.learn_head(KEY, head(10), 6)
    assert table.state(KEY, rest_is_absent=True) == LogState()
    table.learn_head(KEY, head(20), 8)
    state = table.state(KEY, rest_is_absent=True)
    assert state is not None
    assert state.next == 20


def test_listeners_hear_changes_and_nothing_else() -> None:
    table, heard = LogTable(), []
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
    assert not table.listened(KEY.topic_id)


def test_a_forgotten_topic_is_unknown_again() -> None:
    table = LogTable()
    table.learn_head(KEY, head(1), 5)
    table.confirm(KEY, 6, 100)
    assert (table.read_revision(KEY), table.read_ms(KEY)) == (6, 100)
    table.forget(KEY.topic_id)
    assert table.state(KEY, rest_is_absent=False) is None
    assert table.read_revision(KEY) == 0


def test_a_log_is_not_known_before_both_of_its_keys_are() -> None:
    """A log start of 0 that nobody has read must not be told."""
    table = LogTable()
    assert table.state(KEY, rest_is_absent=False) is None
    table.learn_head(KEY, head(10), 5)
    assert table.state(KEY, rest_is_absent=False) is None
    assert table.state(KEY, rest_is_absent=True).next == 10
    table.learn_meta(KEY, encode_meta(Meta(log_start=4)), 3)
    assert table.state(KEY, rest_is_absent=False).log_start == 4


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
    assert (state.next, state.lso, state.log_start, state.epoch, state.tail) == (0, 0, 0, None, ())
