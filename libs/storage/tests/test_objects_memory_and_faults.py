"""The memory store's bound, and the faults that tests of the services inject."""

import asyncio

import pytest
from kafscale.storage.objects import (
    IfAbsent,
    IfMatch,
    MemoryStore,
    PreconditionFailed,
    StoreFull,
    StoreUnavailable,
)
from kafscale.testkit.objects import Fault, FaultyStore, scripted, seeded


async def test_a_full_memory_store_refuses_until_there_is_room() -> None:
    store = MemoryStore(bytes_max=10)
    etag = await store.put("a", [b"12345678"])
    with pytest.raises(StoreFull):
        await store.put("b", [b"123"])
    assert await store.head("b") is None
    await store.put("a", [b"1234567890"], condition=IfMatch(etag))
    await store.delete("a")
    await store.put("b", [b"123"])


async def test_a_listing_goes_on_while_objects_come_and_go() -> None:
    store = MemoryStore()
    for name in "abcdef":
        await store.put(name, [b"x"])
    seen = []
    async for info in store.list(""):
        seen.append(info.key)
        if info.key == "b":
            await store.delete("a")
            await store.delete("c")
            await store.put("bb", [b"x"])
    assert seen == ["a", "b", "bb", "d", "e", "f"]


async def test_each_step_of_a_script_strikes_once() -> None:
    store = FaultyStore(MemoryStore(), scripted(("put", "a", Fault.UNAVAILABLE), ("put", "a", Fault.FULL)))
    with pytest.raises(StoreUnavailable):
        await store.put("a", [b"x"])
    await store.put("b", [b"x"])
    with pytest.raises(StoreFull):
        await store.put("a", [b"x"])
    assert await store.head("a") is None
    await store.put("a", [b"x"])
    assert store.requests == [("put", "a"), ("put", "b"), ("put", "a"), ("head", "a"), ("put", "a")]


async def test_a_dropped_reply_was_applied_and_a_late_request_is_applied_later() -> None:
    store = FaultyStore(MemoryStore(), scripted(("put", "a", Fault.DROP_REPLY), ("put", "b", Fault.LATE)))
    with pytest.raises(StoreUnavailable):
        await store.put("a", [b"x"], condition=IfAbsent())
    assert await store.get("a") == b"x"
    data = bytearray(b"then")
    with pytest.raises(StoreUnavailable):
        await store.put("b", [data], condition=IfAbsent())
    data[:] = b"now!"
    assert await store.head("b") is None
    assert store.late_count == 1
    await store.deliver_late()
    assert await store.get("b") == b"then"
    assert store.late_count == 0


async def test_a_late_request_that_is_refused_then_troubles_nobody() -> None:
    store = FaultyStore(MemoryStore(), scripted(("put", "a", Fault.LATE)))
    with pytest.raises(StoreUnavailable):
        await store.put("a", [b"old"], condition=IfAbsent())
    await store.put("a", [b"new"], condition=IfAbsent())
    await store.deliver_late()
    assert await store.get("a") == b"new"


async def test_a_held_request_goes_on_when_released() -> None:
    store = FaultyStore(MemoryStore(), scripted(("put", "a", Fault.HOLD)))
    held = asyncio.ensure_future(store.put("a", [b"x"]))
    await store.put("b", [b"x"])
    assert not held.done()
    assert await store.head("a") is None
    store.release()
    await held
    assert await store.get("a") == b"x"


async def test_reads_come_back_wrong_when_told_so() -> None:
    store = FaultyStore(MemoryStore(), scripted(("get", "a", Fault.BIT_FLIP), ("get", "a", Fault.TRUNCATE)))
    await store.put("a", [b"0123"])
    assert await store.get("a") == b"01\x333"
    assert await store.get("a") == b"012"
    assert await store.get("a") == b"0123"
    with pytest.raises(PreconditionFailed):
        await store.get("a", if_match="other")


def test_one_seed_gives_one_sequence_of_faults() -> None:
    def sequence(seed: int) -> list[Fault | None]:
        plan = seeded(seed, rate=0.5, faults=[Fault.LATE, Fault.UNAVAILABLE])
        return [plan("put", "k") for _ in range(40)]

    assert sequence(1) == sequence(1) != sequence(2)
    assert seeded(1, rate=1.0, faults=[Fault.LATE])("get", "k") is None
