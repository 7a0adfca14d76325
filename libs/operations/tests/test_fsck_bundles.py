"""fsck compares bundles with the heads that name them, and says of each other bundle what it waits for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace

import pytest
from kafscale.log.bundle import BUNDLE_HEADER_SIZE, Directory, parse_bundle
from kafscale.log.heads import SEGMENTS_TAG, Seg, encode_head, encode_segs
from kafscale.log.manifests import Manifest, encode_manifest
from kafscale.operations.fsck.bundles import ANOTHER_CLUSTER
from kafscale.operations.fsck.checks import NamedSlice, check_directory
from kafscale.operations.fsck.run import Fsck, Verdict
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import META_CLUSTER, BundleId, Keyspace
from kafscale.storage.objects import MemoryStore, ObjectInfo
from kafscale.store.v1 import store_pb2 as pb
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.wire.records import build_batch

CLUSTER = "the cluster"


class Bucket(MemoryStore):
    """Calls `before_get` once, before a slice or, if `at_header`, a directory is read. May hide bundles from lists."""

    def __init__(self) -> None:
        super().__init__()
        self.before_get: Callable[[], Awaitable[None]] | None = None
        self.at_header = False
        self.hides = False

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        is_header = end == BUNDLE_HEADER_SIZE
        if key.endswith(".kfb") and is_header is self.at_header and self.before_get is not None:
            hook, self.before_get = self.before_get, None
            await hook()
        return await super().get(key, if_match=if_match, start=start, end=end)

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list(prefix, start_after=start_after):
            if not (self.hides and info.key.endswith(".kfb")):
                yield info


@pytest.fixture
async def store(etcd: EtcdClient, keyspace: Keyspace) -> Bucket:
    await etcd.put(keyspace.cluster(), pb.Cluster(schema=1, cluster_id=CLUSTER).SerializeToString())
    return Bucket()


@pytest.fixture
async def log(etcd: EtcdClient, keyspace: Keyspace, store: Bucket) -> LogBuilder:
    """A segment, then two slices."""
    log = LogBuilder(etcd, keyspace, store, await create_topic(etcd, keyspace, "orders"))
    await log.append(records(10))
    log.as_slices = True
    await log.append(records(20), records(5))
    await log.append(records(30))
    return log


async def check(etcd: EtcdClient, keyspace: Keyspace, store: MemoryStore) -> Verdict:
    return await Fsck(etcd, keyspace, store, lambda *_: None).run()


async def rewrite(store: MemoryStore, key: str, data: bytes, cluster: str = CLUSTER) -> str:
    """The new etag."""
    return await store.put(key, [data], metadata={META_CLUSTER: cluster})


async def flip(log: LogBuilder, store: MemoryStore, seg: Seg, at: int) -> None:
    """A byte of the seg's bundle, which the head names by the new etag: only the content shows the damage."""
    key = log.segment_key(seg)
    data = bytearray(await store.get(key))
    data[at] ^= 1
    await log.replace_segment(seg, replace(seg, etag=await rewrite(store, key, bytes(data))))


def sentences(verdict: Verdict) -> list[str]:
    return [problem.what for problem in verdict.problems]


async def test_named_bundles_are_clean_and_counted(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder
) -> None:
    verdict = await check(etcd, keyspace, store)
    assert verdict.problems == []
    assert (verdict.segments, verdict.slices) == (3, 2)
    assert verdict.slice_bytes == sum(seg.size for seg in log.segments[1:])
    found = verdict.bundles
    assert (found.stored, found.named, found.pinned, found.dead, found.unreadable) == (2, 2, 0, 0, {})


async def test_a_bundle_without_a_name_is_pinned_or_dead_and_no_problem(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder
) -> None:
    await log.upload([build_batch(records(3))])  # its commit may come
    settled = log.segment_key(log.segments[1])
    await log.settle(2)
    await rewrite(store, settled, await store.get(settled))  # its other partitions were deleted
    verdict = await check(etcd, keyspace, store)
    assert verdict.clean
    found = verdict.bundles
    assert (found.stored, found.named, found.pinned, found.dead, found.unreadable) == (3, 1, 1, 1, {})
    await log.claim(2)  # the upload's epoch is over; nothing else says whose its other partitions are
    found = (await check(etcd, keyspace, store)).bundles
    assert (found.pinned, found.dead, list(found.unreadable.values())) == (0, 1, [ANOTHER_CLUSTER])


async def test_the_heads_of_all_partitions_are_read(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.operations.fsck.bundles.HEADS_PER_READ", 1)
    payments = await create_topic(etcd, keyspace, "payments")
    await LogBuilder(etcd, keyspace, store, payments, as_slices=True).append(records(3))
    verdict = await check(etcd, keyspace, store)
    assert (verdict.clean, verdict.bundles.stored, verdict.bundles.named) == (True, 3, 3)


async def test_an_unreadable_head_keeps_the_bundles_of_its_partition(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder
) -> None:
    await etcd.put(keyspace.head(log.topic.topic_id, 0), b"\xff")
    found = (await check(etcd, keyspace, store)).bundles
    assert (found.stored, found.named, found.pinned, found.dead, found.unreadable) == (2, 0, 2, 0, {})


@pytest.mark.parametrize("cluster", ["another", ""])
async def test_without_a_head_a_bundle_is_dead_only_if_this_cluster_wrote_it(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder, cluster: str
) -> None:
    """An empty or wrong etcd has no head of it either."""
    await log.delete_head()
    await etcd.delete(keyspace.topic("orders"))
    ours, other = (log.segment_key(seg) for seg in log.segments[1:])
    await rewrite(store, ours, await store.get(ours))
    await rewrite(store, other, await store.get(other), cluster)
    found = (await check(etcd, keyspace, store)).bundles
    assert (found.dead, found.unreadable) == (1, {other: ANOTHER_CLUSTER})


async def test_what_is_no_bundle_is_listed_and_no_problem(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder
) -> None:
    strange = keyspace.bundles_prefix() + "readme.txt"
    torn = keyspace.bundle_key(BundleId(bytes(16)))
    elsewhere = torn.replace("1970010100", "1970010101")
    beyond = f"{keyspace.bundles_prefix()}9999123123/{'f' * 32}.kfb"
    for key in (strange, torn, elsewhere, beyond):
        await store.put(key, [b"not a bundle"])
    verdict = await check(etcd, keyspace, store)
    assert verdict.clean
    found = verdict.bundles
    assert (found.stored, found.named) == (3, 2)
    for key in (strange, elsewhere, beyond):
        assert found.unreadable[key] == "has no name of a bundle"
    assert found.unreadable[torn].startswith("cannot be read as a bundle: too short")


async def test_a_flipped_byte_of_a_slice_is_found_in_its_range(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder
) -> None:
    seg = log.segments[1]
    await flip(log, store, seg, seg.position + 100)
    (problem,) = (await check(etcd, keyspace, store)).problems
    assert problem.where == f"{log.segment_key(seg)}@{seg.position}"
    assert problem.what.startswith("checksum does not match")


async def test_a_flipped_byte_of_a_directory_is_a_problem_of_its_bundle(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder
) -> None:
    seg = log.segments[1]
    await flip(log, store, seg, -60)
    (problem,) = (await check(etcd, keyspace, store)).problems
    assert problem.where == log.segment_key(seg)
    assert problem.what.startswith("its directory cannot be read: checksum does not match")


async def test_a_bundle_that_was_cut(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder
) -> None:
    seg = log.segments[2]
    key = log.segment_key(seg)
    cut = (await store.get(key))[: seg.position + 50]
    await log.replace_segment(seg, replace(seg, etag=await rewrite(store, key, cut)))
    (problem,) = (await check(etcd, keyspace, store)).problems
    assert problem.what == f"has 50 bytes, the commit record says {seg.size}"


async def test_a_named_bundle_that_is_gone_is_reported_once_for_each_slice(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder
) -> None:
    seg = log.segments[1]
    await store.delete(log.segment_key(seg))
    assert sentences(await check(etcd, keyspace, store)) == [
        f"is committed and not in the store (etag {seg.etag})"
    ]


async def test_a_named_bundle_below_the_log_start_must_be_there_because_its_slices_are_settled(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder
) -> None:
    await log.retain_from(log.segments[2].base, delete=False)
    assert (await check(etcd, keyspace, store)).clean
    seg = log.segments[1]
    await store.delete(log.segment_key(seg))
    assert sentences(await check(etcd, keyspace, store)) == [
        f"is named by the head of orders/0 and not in the store (etag {seg.etag})"
    ]


async def test_another_object_in_the_place_of_a_bundle(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder
) -> None:
    seg = log.segments[1]
    await store.put(log.segment_key(seg), [b"of another program"])
    (sentence,) = sentences(await check(etcd, keyspace, store))
    assert sentence == f"is not the object that was committed (etag {seg.etag})"


@pytest.mark.parametrize("at_header", [False, True])
async def test_a_slice_that_is_settled_while_fsck_runs_is_no_problem(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder, at_header: bool
) -> None:
    bundles = [log.segment_key(seg) for seg in log.segments[1:]]

    async def settle_and_delete() -> None:
        await log.settle()
        for key in bundles:
            await store.delete(key)

    store.before_get, store.at_header = settle_and_delete, at_header
    assert (await check(etcd, keyspace, store)).problems == []
    assert store.before_get is None, "it was settled"


async def test_a_bundle_that_is_written_after_the_listing_is_found_by_its_key(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder
) -> None:
    store.hides = True
    verdict = await check(etcd, keyspace, store)
    assert (verdict.problems, verdict.bundles.stored, verdict.slices) == ([], 0, 2)
    await flip(log, store, log.segments[1], -60)
    assert not (await check(etcd, keyspace, store)).clean


@pytest.mark.parametrize(
    ("field", "fact"),
    [
        ("position", "position"),
        ("size", "size"),
        ("leader_epoch", "leader epoch"),
        ("base", "base offset"),
        ("last", "last offset"),
        ("crc32c", "checksum"),
        ("records", "records"),
        ("batches", "batches"),
        ("min_ts", "smallest timestamp"),
        ("max_ts", "largest timestamp"),
    ],
)
async def test_the_directory_and_the_head_say_the_same(
    store: Bucket, log: LogBuilder, field: str, fact: str
) -> None:
    seg = log.segments[1]
    named = NamedSlice(log.topic.topic_id, 0, "orders", seg)
    directory = parse_bundle(await store.get(log.segment_key(seg)))
    assert list(check_directory("b", directory.id, directory, [named])) == []
    entry = directory.entries[1]
    other = entry._replace(**{field: getattr(entry, field) + 1})
    changed = Directory(id=directory.id, created_ms=1, entries=(directory.entries[0], other))
    (problem,) = check_directory("b", directory.id, changed, [named])
    assert problem.what.startswith(f"{fact} of orders/0: the commit record says {getattr(entry, field)}, ")


async def test_a_directory_without_the_named_slice_or_with_another_id(store: Bucket, log: LogBuilder) -> None:
    directory = parse_bundle(await store.get(log.segment_key(log.segments[1])))
    named = NamedSlice(log.topic.topic_id, 7, "orders", log.segments[1])
    (problem,) = check_directory("b", directory.id, directory, [named])
    assert problem.what == "its directory has no slice of orders/7, which the head names"
    (problem,) = check_directory("b", BundleId(bytes(16)), directory, [])
    assert problem.what == f"its header has the id {directory.id.hex()}"


async def test_a_manifest_lists_no_slice(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder
) -> None:
    """No service writes such a manifest: nothing would settle the slice, and its bundle would be deleted."""
    seg = log.segments[1]
    ref = await log.checkpoint(keep=1)
    first = encode_manifest(Manifest(segments=tuple(log.segments[:1]), epochs=()))
    await store.put(ref.key, [first + encode_segs([seg], SEGMENTS_TAG)])
    assert sentences(await check(etcd, keyspace, store)) == [
        f"a manifest lists the slice {seg.base} of bundle {seg.bundle.hex()}: only heads may"
    ]


@pytest.mark.parametrize("wrong", [{"key": "k"}, {"index_size": 28}, {"index_etag": "e"}])
async def test_a_slice_has_no_key_and_no_index(
    etcd: EtcdClient, keyspace: Keyspace, store: Bucket, log: LogBuilder, wrong: dict[str, object]
) -> None:
    tail = (*log.head.tail[:2], replace(log.head.tail[2], **wrong))  # type: ignore[arg-type]
    await etcd.put(keyspace.head(log.topic.topic_id, 0), encode_head(replace(log.head, tail=tail)))
    assert sentences(await check(etcd, keyspace, store)) == [
        f"the slice {tail[2].base} has the key or the index of a segment"
    ]
