"""Where the bytes of a segment are: whole objects, and ranges of bundles."""

import pytest
from kafscale.log.heads import settled_end
from kafscale.log.manifests import Manifest, encode_manifest
from kafscale.log.places import index_of, place_of
from kafscale.log.segment import HEADER_SIZE, verify_segment
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import BundleId, Keyspace
from kafscale.storage.objects import MemoryStore, PreconditionFailed
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
async def log(etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore) -> LogBuilder:
    """Two segments, then two slices."""
    built = LogBuilder(etcd, keyspace, store, await create_topic(etcd, keyspace, "t"))
    for n in range(4):
        built.as_slices = n >= 2
        await built.append(records(10))
    return built


async def test_each_place_has_the_bytes_that_were_committed(
    keyspace: Keyspace, store: MemoryStore, log: LogBuilder
) -> None:
    for seg in log.head.tail:
        place = place_of(keyspace, "t", 0, seg)
        data = await place.read(store)
        assert len(data) == seg.size
        verified = verify_segment(data)
        assert (verified.header.base_offset, verified.footer.crc32c) == (seg.base, seg.crc32c)
        assert data[HEADER_SIZE:-16] == log.expected(seg.base, seg.last)
        assert await place.read(store, 5, 9) == data[5:9]
        with pytest.raises(PreconditionFailed):
            await place._replace(etag="another").read(store)


async def test_a_slice_is_a_range_of_its_bundle_and_has_no_index(keyspace: Keyspace, log: LogBuilder) -> None:
    segment, piece = log.head.tail[0], log.head.tail[2]
    place = place_of(keyspace, "t", 0, segment)
    assert (place.key, place.name, place.end) == (keyspace.segment_key("t", 0, 0), place.key, None)
    index = index_of(place, segment)
    assert index is not None
    assert index.key == keyspace.index_key("t", 0, 0)
    place = place_of(keyspace, "t", 0, piece)
    assert place.key == keyspace.bundle_key(BundleId(piece.bundle))
    assert (place.start, place.end) == (piece.position, piece.position + piece.size)
    assert place.name == f"{place.key}@{piece.position}"
    assert index_of(place, piece) is None


def test_names_below_the_first_slice_are_settled(log: LogBuilder) -> None:
    assert settled_end(log.head.tail, log.next) == 20
    assert settled_end(log.head.tail[:2], 20) == 20
    assert settled_end((), 7) == 7


def test_a_manifest_lists_no_slice(log: LogBuilder) -> None:
    encode_manifest(Manifest(segments=log.head.tail[:2]))
    with pytest.raises(AssertionError):
        encode_manifest(Manifest(segments=log.head.tail))


async def test_a_slice_that_is_settled_keeps_its_bytes(
    keyspace: Keyspace, store: MemoryStore, log: LogBuilder
) -> None:
    before = [await place_of(keyspace, "t", 0, seg).read(store) for seg in log.head.tail]
    await log.settle()
    assert not any(seg.is_slice for seg in log.head.tail)
    assert [await place_of(keyspace, "t", 0, seg).read(store) for seg in log.head.tail] == before
