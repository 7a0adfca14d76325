"""Manifests: contiguous, complete in their epochs, and few."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.log.heads import Aborted, EpochStart, ManifestRef, Seg
from kafscale.log.manifests import (
    CHUNKS_MAX,
    MERGE_WIDTH,
    Manifest,
    ManifestDraft,
    ManifestParts,
    decode_manifest,
    encode_manifest,
    epoch_starts,
    merged,
    plan_merge,
    ref_to,
)
from kafscale.storage.schema import CorruptValue
from kafscale.store.v1 import store_pb2 as pb


def seg(base: int, end: int, epoch: int = 1) -> Seg:
    return Seg(
        base=base,
        last_delta=end - base - 1,
        size=100,
        etag=f"e{base}",
        crc32c=base,
        index_size=28,
        index_etag=f"i{base}",
        epoch=epoch,
        min_ts=0,
        max_ts=0,
        records=end - base,
        batches=1,
        created_ms=1,
    )


def manifest(*segments: Seg) -> Manifest:
    return Manifest(segments=segments, epochs=epoch_starts(segments))


def test_a_manifest_reads_back_as_written() -> None:
    written = manifest(seg(0, 4), seg(4, 9, epoch=2))
    assert decode_manifest(encode_manifest(written)) == written


LENGTHS = st.lists(st.sampled_from([0, 1, 60, 90, 300, 16_400]) | st.integers(0, 200), max_size=5)


@given(LENGTHS, st.sampled_from([1, 7, 100, 1_000, 20_000]))
def test_a_manifest_that_comes_in_blocks_is_the_manifest(lengths: list[int], block: int) -> None:
    """Whatever the length of a segment's encoding, which itself takes one byte, two or three."""
    some = [replace(seg(n, n + 1, 1 + n // 3), key="k" * length) for n, length in enumerate(lengths)]
    written = manifest(*some)
    body = encode_manifest(written)
    draft = ManifestDraft(transactional=False)
    parts = ManifestParts()
    found: list[Seg] = []
    for at in range(0, len(body), block):
        part = parts.feed(body[at : at + block], last=at + block >= len(body))
        found += part.segments()
        for line in part.lines():
            draft.add(line)
    assert tuple(found) == written.segments
    assert b"".join(draft.parts()) == body
    if some:
        assert draft.ref("k", 2) == ref_to("k", written, 2)
    built = ManifestDraft(transactional=False)
    for each in some:
        built.add(each)
    assert built.parts() == draft.parts()


def test_a_manifest_that_ends_within_a_segment_is_corrupt() -> None:
    body = encode_manifest(manifest(seg(0, 4), seg(4, 9)))
    whole = encode_manifest(manifest(seg(0, 4)))
    for missing in range(1, len(body) - len(whole)):
        with pytest.raises(CorruptValue):
            ManifestParts().feed(body[:-missing], last=True)


def test_a_manifest_with_a_hole_is_corrupt() -> None:
    with pytest.raises(CorruptValue, match="does not follow"):
        decode_manifest(encode_manifest(manifest(seg(0, 4), seg(5, 9))))


def test_a_manifest_names_the_first_offset_of_each_epoch_in_it() -> None:
    assert manifest(seg(0, 4, 1), seg(4, 9, 1), seg(9, 10, 5)).epochs == (
        EpochStart(epoch=1, start=0),
        EpochStart(epoch=5, start=9),
    )


def test_merging_keeps_segments_in_order_and_one_start_per_epoch() -> None:
    whole = merged([manifest(seg(0, 4, 1)), manifest(seg(4, 9, 1), seg(9, 10, 2))])
    assert [s.base for s in whole.segments] == [0, 4, 9]
    assert whole.epochs == (EpochStart(epoch=1, start=0), EpochStart(epoch=2, start=9))


def test_a_reference_covers_its_manifest() -> None:
    ref = ref_to("k", manifest(seg(3, 4), seg(4, 9)), level=1)
    assert (ref.first, ref.last, ref.count, ref.level) == (3, 8, 2, 1)


def test_nothing_is_merged_before_a_level_is_complete() -> None:
    assert plan_merge([_ref(n, 0) for n in range(MERGE_WIDTH - 1)]) is None


def test_a_complete_level_becomes_one_chunk_of_the_next() -> None:
    chunks = [_ref(0, 1)] + [_ref(n, 0) for n in range(1, MERGE_WIDTH + 1)]
    plan = plan_merge(chunks)
    assert plan is not None
    assert (plan.first, plan.count, plan.level) == (1, MERGE_WIDTH, 1)


@given(st.integers(1, 4_000))
def test_the_list_stays_short_and_contiguous_however_many_checkpoints_there_were(count: int) -> None:
    chunks: list[ManifestRef] = []
    for n in range(count):
        chunks.append(_ref(n, 0))
        while (plan := plan_merge(chunks)) is not None:
            old = chunks[plan.first : plan.first + plan.count]
            new = ManifestRef(
                key="",
                first=old[0].first,
                last=old[-1].last,
                count=sum(c.count for c in old),
                level=plan.level,
            )
            chunks[plan.first : plan.first + plan.count] = [new]
        assert len(chunks) <= CHUNKS_MAX
    assert [chunk.first for chunk in chunks] == [0, *(chunk.last + 1 for chunk in chunks[:-1])]
    assert chunks[-1].last == count - 1
    assert [c.level for c in chunks] == sorted((c.level for c in chunks), reverse=True)


def test_a_list_that_is_full_without_a_complete_level_is_merged_early() -> None:
    chunks = [_ref(n, 3 - n // 22) for n in range(CHUNKS_MAX)]
    plan = plan_merge(chunks)
    assert plan is not None
    assert plan.first + plan.count == len(chunks)


def _ref(first: int, level: int) -> ManifestRef:
    return ManifestRef(key=str(first), first=first, last=first, count=1, level=level)


def test_a_manifest_of_a_log_with_transactions_is_refused_by_a_version_without_them() -> None:
    """Such a version accepts schema 1 alone. It would drop what the entries say of transactions."""
    aborted = (Aborted(producer_id=7, first=0, last=3),)
    plain = manifest(seg(0, 4))
    listed = Manifest(segments=(replace(seg(0, 4), aborted=aborted, unstable=2),), transactional=True)
    draft = ManifestDraft(transactional=True)
    draft.add(listed.segments[0])
    for written, schema in (
        (encode_manifest(plain), 1),
        (encode_manifest(listed), 2),
        (b"".join(draft.parts()), 2),
    ):
        assert pb.Manifest.FromString(written).schema == schema
    assert decode_manifest(encode_manifest(listed)) == listed
    assert list(ManifestParts().feed(encode_manifest(listed), last=True).segments()) == [*listed.segments]
    golden = "08011a02080112161003186422026530301c3a0269304001580460017001"
    assert encode_manifest(Manifest(segments=(seg(0, 4),), epochs=epoch_starts((seg(0, 4),)))).hex() == golden
    assert merged([plain, Manifest(segments=(seg(4, 8),))]).transactional is False
    assert merged([listed, Manifest(segments=(seg(4, 8),))]).transactional is True
