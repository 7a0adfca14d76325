"""Checks with a few requests whether a store honours the conditions that commits depend on.

Some S3 servers accept If-None-Match and If-Match but ignore them, so every writer succeeds. Such a store is
refused. Only If-Match on DELETE may be missing; the result says so. A separate check finds out whether one request can
delete many objects, and whether it honours a condition for each: a server may support one and not the other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import Final

from kafscale.storage.objects.port import (
    Condition,
    Doomed,
    IfAbsent,
    IfMatch,
    ObjectNotFound,
    ObjectStore,
    Outcome,
    PreconditionFailed,
    StoreUnavailable,
    StoreUnsuitable,
)

PROBE_PREFIX: Final = ".kafscale-probe/"
"""The only place where a probe of an S3 store writes; it is in no namespace."""
_RACERS: Final = 2
_METADATA: Final = {"kfs-epoch": "1", "kfs-attempt": "00ff"}
_WRONG: Final = IfMatch("00000000000000000000000000000000")


async def probe_conditions(store: ObjectStore, key: str) -> bool:
    """Whether DELETE honours If-Match. Raises StoreUnsuitable if anything else is missing. Leaves no object."""
    try:
        await _probe_put(store, key)
        return await _probe_delete(store, key)
    finally:
        await store.delete(key)


class Batches(Enum):
    """What DeleteObjects supports. PLAIN: it ignores etags."""

    NONE = auto()
    PLAIN = auto()
    CONDITIONAL = auto()


async def probe_batches(
    store: ObjectStore, key: str, delete: Callable[[Sequence[Doomed]], Awaitable[list[Outcome]]]
) -> Batches:
    """`delete` is one request. Leaves no object. After any failure, objects are deleted one by one."""
    try:
        etag = await store.put(key, [b"right"])
        (wrong,) = await delete([Doomed(key, _WRONG.etag)])
        if isinstance(wrong, PreconditionFailed):
            (right,) = await delete([Doomed(key, etag)])
            gone = right is True and await store.head(key) is None
            return Batches.CONDITIONAL if gone else Batches.NONE
        if wrong is True and await store.head(key) is None:
            return Batches.PLAIN
        return Batches.NONE
    finally:
        await store.delete(key)


async def _probe_put(store: ObjectStore, key: str) -> None:
    bodies = [[b"racer", str(n).encode()] for n in range(_RACERS)]
    racers = (_try_put(store, key, body, IfAbsent()) for body in bodies)
    won = [etag for etag in await asyncio.gather(*racers, return_exceptions=True) if etag is not None]
    failure = next((error for error in won if isinstance(error, BaseException)), None)
    if failure is not None:
        raise failure
    if len(won) != 1:
        raise StoreUnsuitable(
            key, f"{len(won)} of {_RACERS} concurrent PUTs with If-None-Match: * succeeded, not one"
        )
    if await _try_put(store, key, [b"late"], IfAbsent()) is not None:
        raise StoreUnsuitable(key, "it ignores If-None-Match: * on PUT")
    if await _try_put(store, key, [b"wrong"], _WRONG) is not None:
        raise StoreUnsuitable(key, "it ignores If-Match on PUT")
    etag = await _try_put(store, key, [b"right"], IfMatch(str(won[0])))
    if etag is None:
        raise StoreUnsuitable(key, "it refuses a PUT whose If-Match is right")
    info = await store.head(key)
    if info is None or info.etag != etag or dict(info.metadata) != _METADATA:
        raise StoreUnsuitable(key, f"HEAD does not answer what the last PUT stored: {info}")
    if await _gets(store, key, _WRONG.etag) or not await _gets(store, key, etag):
        raise StoreUnsuitable(key, "it does not honour If-Match on GET")
    if await _gets(store, key, _WRONG.etag, 1, 3) or not await _gets(store, key, etag, 1, 3):
        raise StoreUnsuitable(key, "it does not honour If-Match on GET of a range")


async def _try_put(store: ObjectStore, key: str, body: Sequence[bytes], condition: Condition) -> str | None:
    try:
        return await store.put(key, body, condition=condition, metadata=_METADATA)
    except PreconditionFailed:
        return None
    except StoreUnavailable as error:
        if error.reason.startswith("409 "):  # S3's answer to a lost race
            return None
        raise


async def _gets(store: ObjectStore, key: str, etag: str, start: int = 0, end: int | None = None) -> bool:
    try:
        return await store.get(key, if_match=etag, start=start, end=end) == b"right"[start:end]
    except PreconditionFailed:
        return False


async def _probe_delete(store: ObjectStore, key: str) -> bool:
    try:
        await store.delete(key, if_match=_WRONG.etag)
    except (PreconditionFailed, ObjectNotFound):
        return True
    return await store.head(key) is not None
