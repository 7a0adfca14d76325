"""Heads, metas and owner records: what is written is what is read, and nothing else is accepted."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.log.heads import (
    Aborted,
    EpochStart,
    Head,
    ManifestRef,
    Meta,
    OpenTransaction,
    Seg,
    decode_head,
    decode_meta,
    encode_head,
    encode_meta,
    is_bundle_id,
)
from kafscale.storage.coordination import OwnerRecord, decode_owner, encode_owner
from kafscale.storage.schema import CorruptValue, UnknownSchema, UnreadableValue, require_schema
from kafscale.storage.topics import decode_epoch_floor, encode_epoch_floor
from kafscale.store.v1 import store_pb2 as pb

i64 = st.integers(-(1 << 63), (1 << 63) - 1)
i32 = st.integers(-(1 << 31), (1 << 31) - 1)
u32 = st.integers(0, (1 << 32) - 1)
text = st.text(max_size=40)
segs = st.builds(
    Seg,
    base=i64,
    last_delta=i32,
    size=i32,
    etag=text,
    crc32c=u32,
    index_size=u32,
    index_etag=text,
    epoch=i32,
    min_ts=i64,
    max_ts=i64,
    records=i32,
    batches=i32,
    created_ms=i64,
    key=text,
    aborted=st.lists(st.builds(Aborted, producer_id=i64, first=i64, last=i64), max_size=2).map(tuple),
    delete_horizon_ms=i64,
    bundle=st.just(b"") | st.binary(min_size=16, max_size=16).filter(is_bundle_id),
    position=u32,
)
starts = st.builds(EpochStart, epoch=i32, start=i64)
nodes = st.just("") | st.integers(0, 2**31 - 1).map(str)
instances = st.just("") | st.from_regex(r"(0|[1-9][0-9]{0,8})/[0-9a-z-]+", fullmatch=True)
heads = st.builds(
    Head,
    epoch=i32,
    topic=text,
    owner=instances,
    handoff_to=nodes,
    next=i64,
    lso=i64,
    attempt=st.binary(max_size=16),
    tail=st.lists(segs, max_size=4).map(tuple),
    epochs=st.lists(starts, max_size=4).map(tuple),
    bytes=i64,
    max_ts=i64,
    snap_offset=i64,
    snap_key=text,
)
begun = st.builds(OpenTransaction, producer_id=i64, epoch=i32, number=i64, first=i64)
with_transactions = st.builds(
    replace, heads, transactional=st.just(True), open=st.lists(begun, max_size=3).map(tuple)
)
any_heads = st.one_of(heads, with_transactions)


def seg(base: int, end: int, epoch: int = 1) -> Seg:
    return Seg(
        base=base,
        last_delta=end - base - 1,
        size=100,
        etag=f"e{base}",
        crc32c=base % (1 << 32),
        index_size=28,
        index_etag=f"i{base}",
        epoch=epoch,
        min_ts=0,
        max_ts=0,
        records=end - base,
        batches=1,
        created_ms=1,
    )


@given(any_heads)
def test_a_head_reads_back_as_written(head: Head) -> None:
    assert decode_head(encode_head(head)) == head


@given(any_heads)
def test_a_head_written_again_after_reading_has_the_same_bytes(head: Head) -> None:
    """The cached encodings of segments that were read and of those that were made agree."""
    data = encode_head(head)
    assert encode_head(decode_head(data)) == data


@given(any_heads)
def test_the_joined_encoding_is_plain_protobuf(head: Head) -> None:
    message = pb.Head.FromString(encode_head(head))
    assert [s.base for s in message.tail] == [s.base for s in head.tail]
    assert message.next == head.next
    assert message.schema == 1 + any(s.is_slice for s in head.tail) + 2 * head.transactional


@given(
    st.builds(
        Meta,
        log_start=i64,
        manifest_end=i64,
        chunks=st.lists(
            st.builds(ManifestRef, key=text, first=i64, last=i64, count=i32, level=i32), max_size=4
        ).map(tuple),
        gc_seq=i64,
        swept=i64,
        epochs_key=text,
    )
)
def test_a_meta_reads_back_as_written(meta: Meta) -> None:
    assert decode_meta(encode_meta(meta)) == meta


@given(st.builds(OwnerRecord, epoch=i32, owner=instances, handoff_to=nodes), i32)
def test_owner_records_and_epoch_floors_read_back_as_written(record: OwnerRecord, floor: int) -> None:
    assert decode_owner(encode_owner(record)) == record
    assert decode_epoch_floor(encode_epoch_floor(floor)) == floor


def test_a_newer_schema_is_refused_with_a_sentence() -> None:
    with pytest.raises(UnknownSchema, match="schema 5, this version of KafScale reads 1, 2, 3, 4;"):
        decode_head(pb.Head(schema=5, epoch=1).SerializeToString())
    with pytest.raises(UnknownSchema, match="schema 2, this version of KafScale reads 1;"):
        decode_meta(pb.Meta(schema=2).SerializeToString())


def test_a_head_whose_tail_has_a_slice_is_refused_by_a_version_that_knows_none() -> None:
    """Such a version accepts schema 1 alone. It may read every other head."""
    piece = replace(seg(5, 9), bundle=b"b" * 16, position=32)
    for tail, schema in (((), 1), ((seg(0, 5),), 1), ((seg(0, 5), piece), 2)):
        message = pb.Head.FromString(encode_head(Head(epoch=1, topic="t", tail=tail)))
        assert message.schema == schema


def test_a_head_whose_log_had_a_transaction_is_refused_by_a_version_that_knows_none() -> None:
    """Such a version accepts schemas 1 and 2. It would serve aborted records. Once it is so it stays, also when nothing
    is open."""
    begun = (OpenTransaction(producer_id=7, epoch=1, number=2, first=3),)
    piece = replace(seg(5, 9), bundle=b"b" * 16, position=32)
    for tail, open_, schema in (((), (), 3), ((seg(0, 5),), begun, 3), ((seg(0, 5), piece), begun, 4)):
        head = Head(epoch=1, topic="t", tail=tail, open=open_, transactional=True)
        assert pb.Head.FromString(encode_head(head)).schema == schema
    with pytest.raises(AssertionError, match="a version without transactions"):
        encode_head(Head(epoch=1, topic="t", open=begun))


def test_a_head_without_transactions_has_the_bytes_that_it_always_had() -> None:
    starts = (EpochStart(epoch=1, start=0),)
    head = Head(epoch=2, topic="t", owner="1/b", next=5, lso=5, tail=(seg(0, 5),), epochs=starts, bytes=100)
    golden = (
        "080110021a03312f62280530054a020801506458ffffffffffffffffff"
        "0172017442161004186422026530301c3a0269304001580560017001"
    )
    assert encode_head(head).hex() == golden


@pytest.mark.parametrize("bundle", [b"short", b"\xff" * 16, bytes(17)])
def test_a_head_that_names_no_possible_bundle_is_unreadable(bundle: bytes) -> None:
    damaged = encode_head(Head(epoch=1, topic="t", tail=(replace(seg(0, 5), bundle=bundle),)))
    with pytest.raises(UnreadableValue, match="no id of a bundle"):
        decode_head(damaged)


def test_each_feature_of_a_value_is_refused_or_read_without_regard_to_the_others() -> None:
    """The next features have the bits 2 and 4. A version that reads 1 and 4 does not read 2, though 4 is newer."""
    for bits in range(8):
        if bits & 2:
            with pytest.raises(UnknownSchema, match=f"schema {1 + bits}, .* reads 1, 2, 5, 6;"):
                require_schema("this head", 1 + bits, features=1 | 4)
        else:
            require_schema("this head", 1 + bits, features=1 | 4)


def test_a_value_without_a_schema_is_refused() -> None:
    with pytest.raises(UnknownSchema):
        decode_meta(b"")


def test_bytes_that_are_no_message_are_corrupt() -> None:
    with pytest.raises(CorruptValue, match="head"):
        decode_head(b"\xff\xff\xff")


def test_a_segment_ends_behind_its_last_offset() -> None:
    assert (seg(10, 15).last, seg(10, 15).end) == (14, 15)


def test_a_full_head_stays_within_a_few_kilobytes() -> None:
    tail = tuple(seg(n * 1_000_000_000, n * 1_000_000_000 + 4) for n in range(32))
    assert len(encode_head(Head(epoch=9, topic="t" * 100, tail=tail))) < 4_096
    slices = tuple(replace(each, bundle=b"b" * 16, position=1 << 21, index_size=0) for each in tail)
    assert len(encode_head(Head(epoch=9, topic="t" * 100, tail=slices))) < 4_400


@given(heads, heads)
def test_a_head_is_read_alike_whatever_was_read_before_it(head: Head, before: Head) -> None:
    assert decode_head(encode_head(head), before) == head


@given(heads)
def test_segments_that_stand_in_both_values_are_kept_as_they_are(head: Head) -> None:
    first = decode_head(encode_head(head))
    again = decode_head(encode_head(head), first)
    bases = [seg.base for seg in head.tail]
    if len(set(bases)) == len(bases):
        assert all(one is other for one, other in zip(first.tail, again.tail, strict=True))


def test_a_segment_that_changed_under_its_base_is_read_anew() -> None:
    seg = Seg(
        base=5, last_delta=1, size=9, etag="a", crc32c=1, index_size=1, index_etag="i", epoch=1,
        min_ts=0, max_ts=0, records=2, batches=1, created_ms=0,
    )  # fmt: skip
    moved = replace(seg, key="elsewhere")
    before = decode_head(encode_head(Head(epoch=1, topic="t", tail=(seg,))))
    assert decode_head(encode_head(Head(epoch=1, topic="t", tail=(moved,))), before).tail == (moved,)


@pytest.mark.parametrize(
    ("owner", "handoff_to"),
    [("nobody", ""), ("1/", ""), ("/boot", ""), ("x/boot", ""), ("", "x"), ("", "\u0663")],
)
def test_an_owner_that_no_instance_can_be_is_no_head_and_no_owner_record(owner: str, handoff_to: str) -> None:
    """Who compared it would take a part of it for a node id."""
    head = Head(epoch=1, topic="t", owner=owner, handoff_to=handoff_to)
    with pytest.raises(CorruptValue, match="not a head"):
        decode_head(encode_head(head))
    record = OwnerRecord(epoch=1, owner=owner, handoff_to=handoff_to)
    with pytest.raises(CorruptValue, match="not a owner record"):
        decode_owner(encode_owner(record))
