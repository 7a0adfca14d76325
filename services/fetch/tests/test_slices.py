"""Which slices of a bundle one GET reads, and the index that knows them."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from kafscale.fetch.log_table import LogTable
from kafscale.fetch.slices import GAP_BYTES_MAX, RUN_BYTES_MAX, SliceIndex, run_around
from kafscale.log.heads import Head, Meta, Seg, encode_head, encode_meta
from kafscale.storage.keys import Keyspace, TopicId

BUNDLE = bytes(range(16))


def slice_at(position: int, size: int, bundle: bytes = BUNDLE, etag: str = "e") -> Seg:
    return Seg(
        base=0, last_delta=0, size=size, etag=etag, crc32c=0, index_size=0, index_etag="", epoch=1, min_ts=0,
        max_ts=0, records=1, batches=1, created_ms=0, bundle=bundle, position=position,
    )  # fmt: skip


SIZES = st.integers(1, 1 << 20)
GAPS = st.integers(0, 2 * GAP_BYTES_MAX)


@given(parts=st.lists(st.tuples(GAPS, SIZES), min_size=1, max_size=30), at=st.integers(0, 29))
def test_a_run_is_all_that_one_get_may_read_around_a_slice(parts: list[tuple[int, int]], at: int) -> None:
    position, slices = 32, []
    for gap, size in parts:
        slices.append(slice_at(position + gap, size))
        position += gap + size
    wanted = slices[at % len(slices)]
    run = run_around(wanted, reversed(slices))
    assert wanted in run
    assert run == slices[slices.index(run[0]) : slices.index(run[-1]) + 1], "neighbours, in order"
    length = run[-1].position + run[-1].size - run[0].position
    assert length <= RUN_BYTES_MAX
    for left, right in zip(run, run[1:], strict=False):
        assert right.position - left.position - left.size <= GAP_BYTES_MAX
    for beyond in slices[max(0, slices.index(run[0]) - 1) : slices.index(run[0])]:
        gap = run[0].position - beyond.position - beyond.size
        assert gap > GAP_BYTES_MAX or length + gap + beyond.size > RUN_BYTES_MAX


def test_a_slice_larger_than_a_run_is_read_alone() -> None:
    wanted = slice_at(100, RUN_BYTES_MAX + 1)
    assert run_around(wanted, [slice_at(50, 50), slice_at(wanted.position + wanted.size, 50)]) == [wanted]


def test_slices_that_overlap_are_not_read_together() -> None:
    """No writer makes such heads."""
    wanted = slice_at(100, 100)
    assert run_around(wanted, [slice_at(50, 51), slice_at(199, 10)]) == [wanted]


def test_the_index_knows_the_tails_that_it_was_given() -> None:
    index: SliceIndex[str] = SliceIndex()
    mine, other = slice_at(32, 10), slice_at(42, 10)
    index.replace("a", (), (mine,))
    index.replace("b", (), (other, replace(other, bundle=b"")))
    assert index.beside(mine) == [mine, other]
    assert index.beside(replace(mine, etag="another object")) == []
    index.replace("b", (other,), ())
    assert index.beside(mine) == [mine]
    index.replace("a", (mine,), ())
    assert len(index) == 0


def test_a_table_knows_the_slices_of_the_partitions_that_it_holds() -> None:
    keyspace, topic_id = Keyspace("ns"), TopicId(b"t" * 16)
    table = LogTable(keyspace, partitions_max=2)

    def learn(partition: int, revision: int, *tail: Seg) -> None:
        key = (topic_id, partition)
        table.hold(key, partition)
        table.learn_meta(key, encode_meta(Meta()), 1)
        table.learn_head(key, encode_head(Head(epoch=1, topic="t", tail=tail, next=1, lso=1)), revision)
        table.state(key)

    first, second = slice_at(32, 10), slice_at(42, 10)
    learn(0, 1, first)
    learn(1, 1, second)
    assert table.slices_beside(first) == [first, second]
    learn(1, 2)
    assert table.slices_beside(first) == [first]
    learn(1, 3, second)
    learn(2, 1)
    assert table.slices_beside(first) == [second], "the least lately used partition made room"
    table.forget_values()
    assert table.slices_beside(first) == []
    learn(1, 1, second)
    table.drop_unused(10)
    assert table.slices_beside(first) == []


def test_a_change_counts_before_a_request_looks_at_it() -> None:
    keyspace, topic_id = Keyspace("ns"), TopicId(b"t" * 16)
    table = LogTable(keyspace)
    keys = [(topic_id, n) for n in range(4)]
    slices = [slice_at(32 + 10 * n, 10) for n in range(3)]
    tails = [*slices, slice_at(32, 10, bundle=bytes(16))]
    for key, seg in zip(keys, tails, strict=True):
        table.hold(key, 0)
        table.fetched([key], 0)
        table.learn_meta(key, encode_meta(Meta()), 1)
        table.learn_head(key, encode_head(Head(epoch=1, topic="t", tail=(seg,), next=1, lso=1)), 1)
    table.learn_head(keys[2], b"a head that nobody can read, of " + BUNDLE, 2)
    assert sorted(seg.position for seg in table.slices_beside(slices[0])) == [32, 42]
    table.learn_head(keys[1], encode_head(Head(epoch=1, topic="t", next=1, lso=1)), 2)
    assert table.slices_beside(slices[0]) == [slices[0]], "the other is settled"
