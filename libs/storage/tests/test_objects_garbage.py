"""Law: a request to a store that ends in any way leaves no reference cycle. It would keep the bytes of a PUT until the
garbage collector runs, and that is rarely."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from kafscale.storage.objects import IfAbsent, IfMatch, ObjectStore, StoreError
from kafscale.storage.objects.directory import SHOW_HERE_BYTES_MAX, DirectoryStore
from kafscale.testkit.garbage import collector_off, cycles

BODY = (b"x" * 1_000,)
LARGE = (b"x" * (SHOW_HERE_BYTES_MAX + 1),)
Use = Callable[[ObjectStore], Awaitable[None]]


async def requests_that_succeed(store: ObjectStore) -> None:
    etag = await store.put("a", BODY, condition=IfAbsent())
    await store.put("large", LARGE)
    assert await store.get("a", if_match=etag) == BODY[0]
    assert await store.delete("a", if_match=etag)


async def requests_that_are_refused(store: ObjectStore) -> None:
    await store.put("a", BODY)
    for refused in (
        store.put("a", BODY, condition=IfAbsent()),
        store.put("a", LARGE, condition=IfAbsent()),
        store.put("a", BODY, condition=IfMatch("another")),
        store.get("b"),
        store.get("a", if_match="another"),
        store.put("a\0", BODY),
    ):
        with pytest.raises(StoreError):
            await refused


async def requests_that_are_cancelled(store: ObjectStore) -> None:
    puts = [asyncio.create_task(store.put("a", LARGE, condition=IfMatch("another"))) for _ in range(4)]
    await asyncio.sleep(0)
    for put in puts:
        put.cancel()
    for put in puts:
        with suppress(asyncio.CancelledError):
            await put


@pytest.mark.parametrize(
    "use", [requests_that_succeed, requests_that_are_refused, requests_that_are_cancelled]
)
async def test_requests_leave_no_cycle(tmp_path: Path, use: Use) -> None:
    store = DirectoryStore(tmp_path)
    await store.put("first", LARGE)
    with collector_off():
        await cycles()  # of the start
        await asyncio.create_task(use(store))
        await store.close()
        assert not await cycles()
