"""A bundle that its head names is deleted by hand, and comes back later, as from the versions of a bucket."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from kafscale.storage.objects import IfAbsent, ObjectNotFound, ObjectStore, PreconditionFailed

from e2e.harness.inside import BUNDLE_SUFFIX, Inside


@dataclass(frozen=True, slots=True)
class Lost:
    """A deleted object, with all that is needed to put it back."""

    key: str
    etag: str
    body: bytes
    metadata: dict[str, str]


def take_away(
    open_store: Callable[[], ObjectStore], inside: Inside, topic: str, chance: random.Random
) -> Lost | None:
    """Deletes a random bundle that a head of the topic names. None: its owner was faster, or there is none."""
    named = sorted(name for name in inside.committed(topic) if name.endswith(BUNDLE_SUFFIX))
    if not named:
        return None
    key = chance.choice(named)

    async def take() -> Lost | None:
        store = open_store()
        try:
            info = await store.head(key)
            if info is None:
                return None
            body = await store.get(key, if_match=info.etag)
            await store.delete(key, if_match=info.etag)
        except ObjectNotFound:
            return None
        finally:
            await store.close()
        return Lost(key, info.etag, body, dict(info.metadata))

    return asyncio.run(take())


def bring_back(open_store: Callable[[], ObjectStore], lost: Lost) -> None:
    """Its bytes, etag and metadata are what they were, also if a PUT of its writer that was held arrived meanwhile."""

    async def bring() -> None:
        store = open_store()
        try:
            etag = await store.put(lost.key, [lost.body], condition=IfAbsent(), metadata=lost.metadata)
            assert etag == lost.etag, (lost.key, etag, lost.etag)
        except PreconditionFailed:
            there = await store.head(lost.key)
            assert there is not None
            assert (there.etag, dict(there.metadata)) == (lost.etag, lost.metadata), lost.key
        finally:
            await store.close()

    asyncio.run(bring())
