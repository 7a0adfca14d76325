"""What every object store must do, asked of the memory store, the directory store and a real S3 server alike."""

import asyncio
import os

import pytest
from kafscale.storage.objects import (
    DELETES_MAX,
    Buffer,
    Doomed,
    IfAbsent,
    IfMatch,
    ObjectNotFound,
    ObjectStore,
    PreconditionFailed,
)
from kafscale.storage.objects.s3 import S3Store

METADATA = {"kfs-topic-id": "a" * 32, "kfs-epoch": "3", "kfs-attempt": "b" * 32, "kfs-last": "123456"}
NO_SUCH_ETAG = "00000000000000000000000000000000"


@pytest.mark.parametrize("size", [0, 1, 61, 4096, 65537, 1 << 20, 8 << 20])
async def test_an_object_comes_back_as_it_was_put(
    object_store: ObjectStore, namespace: str, size: int
) -> None:
    data = os.urandom(size)
    etag = await object_store.put(f"{namespace}/t/0/a.kfs", [data], condition=IfAbsent(), metadata=METADATA)
    assert await object_store.get(f"{namespace}/t/0/a.kfs", if_match=etag) == data
    info = await object_store.head(f"{namespace}/t/0/a.kfs")
    assert info is not None
    assert (info.key, info.etag, info.size) == (f"{namespace}/t/0/a.kfs", etag, size)
    assert dict(info.metadata) == METADATA


async def test_a_scatter_list_of_any_buffers_is_stored_as_one_object(
    object_store: ObjectStore, namespace: str
) -> None:
    parts: list[Buffer] = [
        b"head",
        memoryview(b"..middle..")[2:8],
        bytearray(b"tail"),
        b"",
        *[b"%d," % n for n in range(3000)],
    ]
    await object_store.put(f"{namespace}/scatter", parts)
    assert await object_store.get(f"{namespace}/scatter") == b"".join(parts)


async def test_of_eight_concurrent_creators_exactly_one_wins_and_its_bytes_stay(
    object_store: ObjectStore, namespace: str
) -> None:
    for round_no in range(
        1 if isinstance(object_store, S3Store) else 10
    ):  # SeaweedFS takes seconds over contended keys
        key = f"{namespace}/race/{round_no}"

        async def create(n: int, key: str = key) -> str | None:
            try:
                return await object_store.put(
                    key, [b"%d" % n * 5000], condition=IfAbsent(), metadata={"kfs-attempt": str(n)}
                )
            except PreconditionFailed:
                return None

        etags = await asyncio.gather(*(create(n) for n in range(8)))
        winners = [n for n, etag in enumerate(etags) if etag is not None]
        assert len(winners) == 1
        info = await object_store.head(key)
        assert info is not None
        assert (info.etag, info.metadata["kfs-attempt"]) == (etags[winners[0]], str(winners[0]))
        assert await object_store.get(key) == b"%d" % winners[0] * 5000


async def test_create_if_absent_leaves_what_is_there(object_store: ObjectStore, namespace: str) -> None:
    etag = await object_store.put(
        f"{namespace}/k", [b"first"], condition=IfAbsent(), metadata={"kfs-epoch": "1"}
    )
    with pytest.raises(PreconditionFailed) as refused:
        await object_store.put(
            f"{namespace}/k", [b"second"], condition=IfAbsent(), metadata={"kfs-epoch": "2"}
        )
    assert refused.value.key == f"{namespace}/k"
    info = await object_store.head(f"{namespace}/k")
    assert info is not None
    assert (info.etag, dict(info.metadata)) == (etag, {"kfs-epoch": "1"})
    assert await object_store.get(f"{namespace}/k") == b"first"


async def test_replace_if_match_takes_bytes_etag_and_metadata_together(
    object_store: ObjectStore, namespace: str
) -> None:
    first = await object_store.put(f"{namespace}/k", [b"first"], metadata={"kfs-epoch": "1"})
    second = await object_store.put(
        f"{namespace}/k", [b"second"], condition=IfMatch(first), metadata={"kfs-epoch": "2"}
    )
    assert second != first
    info = await object_store.head(f"{namespace}/k")
    assert info is not None
    assert (info.etag, info.size, dict(info.metadata)) == (second, 6, {"kfs-epoch": "2"})
    with pytest.raises(PreconditionFailed):
        await object_store.put(f"{namespace}/k", [b"third"], condition=IfMatch(first))
    assert await object_store.get(f"{namespace}/k", if_match=second) == b"second"


async def test_of_eight_concurrent_replacers_of_one_etag_exactly_one_wins(
    object_store: ObjectStore, namespace: str
) -> None:
    etag = await object_store.put(f"{namespace}/k", [b"old"])

    async def replace(n: int) -> int | None:
        try:
            await object_store.put(f"{namespace}/k", [b"new%d" % n], condition=IfMatch(etag))
        except PreconditionFailed:
            return None
        return n

    won = [n for n in await asyncio.gather(*map(replace, range(8))) if n is not None]
    assert len(won) == 1
    assert await object_store.get(f"{namespace}/k") == b"new%d" % won[0]


async def test_replace_if_match_of_a_missing_object_is_refused(
    object_store: ObjectStore, namespace: str
) -> None:
    with pytest.raises(PreconditionFailed):
        await object_store.put(f"{namespace}/none", [b"x"], condition=IfMatch(NO_SUCH_ETAG))
    assert await object_store.head(f"{namespace}/none") is None


async def test_an_unconditional_put_replaces(object_store: ObjectStore, namespace: str) -> None:
    await object_store.put(f"{namespace}/k", [b"a long first body"], metadata={"kfs-epoch": "1"})
    etag = await object_store.put(f"{namespace}/k", [b"short"])
    info = await object_store.head(f"{namespace}/k")
    assert info is not None
    assert (info.etag, info.size, dict(info.metadata)) == (etag, 5, {})


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (0, 4, b"0123"),
        (4, 7, b"456"),
        (8, 100, b"89"),
        (10, None, b""),
        (10, 20, b""),
        (25, 30, b""),
        (5, 5, b""),
    ],
)
async def test_a_range_is_cut_at_the_objects_end(
    object_store: ObjectStore, namespace: str, start: int, end: int | None, expected: bytes
) -> None:
    await object_store.put(f"{namespace}/k", [b"0123456789"])
    assert await object_store.get(f"{namespace}/k", start=start, end=end) == expected


async def test_a_get_of_another_etag_is_refused_in_ranges_too(
    object_store: ObjectStore, namespace: str
) -> None:
    etag = await object_store.put(f"{namespace}/k", [b"0123456789"])
    assert await object_store.get(f"{namespace}/k", if_match=etag, start=2, end=4) == b"23"
    for start, end in ((0, None), (2, 4)):
        with pytest.raises(PreconditionFailed):
            await object_store.get(f"{namespace}/k", if_match=NO_SUCH_ETAG, start=start, end=end)


async def test_what_is_not_there_is_told_apart(object_store: ObjectStore, namespace: str) -> None:
    assert await object_store.head(f"{namespace}/none") is None
    with pytest.raises(ObjectNotFound) as missing:
        await object_store.get(f"{namespace}/none")
    assert missing.value.key == f"{namespace}/none"
    with pytest.raises(ObjectNotFound):
        await object_store.get(f"{namespace}/none", if_match=NO_SUCH_ETAG)


async def test_delete_if_match_spares_another_etag(object_store: ObjectStore, namespace: str) -> None:
    old = await object_store.put(f"{namespace}/k", [b"condemned"])
    new = await object_store.put(f"{namespace}/k", [b"successor"], condition=IfMatch(old))
    with pytest.raises(PreconditionFailed):
        await object_store.delete(f"{namespace}/k", if_match=old)
    assert await object_store.get(f"{namespace}/k") == b"successor"
    assert await object_store.delete(f"{namespace}/k", if_match=new) is True
    assert await object_store.head(f"{namespace}/k") is None
    assert await object_store.delete(f"{namespace}/k", if_match=new) is False


async def test_many_are_deleted_each_only_as_it_was_condemned(
    object_store: ObjectStore, namespace: str
) -> None:
    await object_store.probe()
    etags = [await object_store.put(f"{namespace}/t&<0>/{n}", [b"%d" % n]) for n in range(6)]
    await object_store.put(f"{namespace}/t&<0>/1", [b"successor"])
    doomed = [
        Doomed(f"{namespace}/t&<0>/0", etags[0]),
        Doomed(f"{namespace}/t&<0>/1", etags[1]),
        Doomed(f"{namespace}/t&<0>/2"),
        Doomed(f"{namespace}/t&<0>/3", NO_SUCH_ETAG),
        Doomed(f"{namespace}/none", NO_SUCH_ETAG),
        Doomed(f"{namespace}/t&<0>/4", etags[4]),
    ]
    found = await object_store.delete_many(doomed)
    assert [each for each in found if not isinstance(each, bool)] == [found[1], found[3]]
    assert isinstance(found[1], PreconditionFailed)
    assert isinstance(found[3], PreconditionFailed)
    assert (found[0], found[2], found[5]) == (True, True, True)
    assert await object_store.get(f"{namespace}/t&<0>/1") == b"successor"
    left = [info.key async for info in object_store.list(f"{namespace}/")]
    assert left == [f"{namespace}/t&<0>/{n}" for n in (1, 3, 5)]
    assert await object_store.delete_many([]) == []


async def test_a_thousand_are_deleted_at_once(object_store: ObjectStore, namespace: str) -> None:
    await object_store.probe()
    limit = asyncio.Semaphore(16)

    async def put(n: int) -> Doomed:
        async with limit:
            key = f"{namespace}/t/0/segment-{n:020d}.kfs"
            return Doomed(key, await object_store.put(key, [b"%d" % n]))

    doomed = await asyncio.gather(*map(put, range(DELETES_MAX)))
    assert await object_store.delete_many(doomed) == [True] * DELETES_MAX
    assert [info.key async for info in object_store.list(f"{namespace}/")] == []


async def test_a_deleted_name_can_be_created_again(object_store: ObjectStore, namespace: str) -> None:
    for n in range(3):
        etag = await object_store.put(f"{namespace}/t/0/k", [b"%d" % n], condition=IfAbsent())
        assert await object_store.delete(f"{namespace}/t/0/k", if_match=etag)


NAMES = ("a-b/0/x", "a.b/0/x", "a/0/x", "a/0/x.index", "a/0/y", "a/10/x", "a/2/x", "ab/0/x", "b", "\u00e9/0")


async def put_names(store: ObjectStore, namespace: str) -> dict[str, str]:
    return {
        f"{namespace}/{name}": await store.put(f"{namespace}/{name}", [name.encode()])
        for name in reversed(NAMES)
    }


async def listed(store: ObjectStore, prefix: str, start_after: str = "") -> list[str]:
    return [info.key async for info in store.list(prefix, start_after=start_after)]


async def test_a_listing_is_complete_over_neighbours_and_depths(
    object_store: ObjectStore, namespace: str
) -> None:
    etags = await put_names(object_store, namespace)
    found = [info async for info in object_store.list(f"{namespace}/")]
    assert {info.key: info.etag for info in found} == etags
    assert [info.size for info in found] == [len(info.key.encode()) - len(namespace) - 1 for info in found]
    assert await listed(object_store, f"{namespace}/none/") == []


@pytest.mark.parametrize("object_store_kind", ["memory", "directory"], indirect=True)
async def test_a_listing_goes_in_byte_order_over_folders(object_store: ObjectStore, namespace: str) -> None:
    await put_names(object_store, namespace)
    keys = [f"{namespace}/{name}" for name in NAMES]
    assert await listed(object_store, f"{namespace}/") == keys
    for n, key in enumerate(keys):
        assert await listed(object_store, f"{namespace}/", start_after=key) == keys[n + 1 :]
    assert await listed(object_store, f"{namespace}/a", start_after=f"{namespace}/a/1") == keys[5:8]


async def test_a_listing_within_a_folder_goes_in_order_from_any_start(
    object_store: ObjectStore, namespace: str
) -> None:
    await put_names(object_store, namespace)
    folder = [f"{namespace}/a/0/{name}" for name in ("x", "x.index", "y")]
    assert await listed(object_store, f"{namespace}/a/0/") == folder
    assert await listed(object_store, f"{namespace}/a/0/x.") == [folder[1]]
    assert await listed(object_store, f"{namespace}/a/0/", start_after=folder[0]) == folder[1:]
    assert await listed(object_store, f"{namespace}/a/0/", start_after=f"{namespace}/a/0/xa") == folder[2:]


async def test_a_listing_of_more_than_a_page_is_complete(object_store: ObjectStore, namespace: str) -> None:
    keys = [f"{namespace}/t/0/segment-{n:020d}.kfs" for n in range(1203)]
    limit = asyncio.Semaphore(16)

    async def put(key: str) -> None:
        async with limit:
            await object_store.put(key, [b"x"], condition=IfAbsent())

    await asyncio.gather(*map(put, keys))
    assert [info.key async for info in object_store.list(f"{namespace}/t/")] == keys
    assert [info.key async for info in object_store.list(f"{namespace}/t/", start_after=keys[1100])] == keys[
        1101:
    ]


async def test_the_start_up_probe_accepts_it_and_leaves_nothing(
    object_store: ObjectStore, namespace: str
) -> None:
    before = {info.key async for info in object_store.list("") if not info.key.startswith("t")}
    await object_store.probe()
    assert object_store.conditional_delete
    assert {info.key async for info in object_store.list("") if not info.key.startswith("t")} <= before
