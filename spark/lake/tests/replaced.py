"""What others do to a log under a look at it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from kafscale.log.heads import Seg, encode_meta
from kafscale.log.manifests import decode_manifest, encode_manifest
from kafscale.storage.etcd.client import Put, Txn
from kafscale.testkit.logbuilder import LogBuilder

from .shop import Shop


class Hooked:
    """etcd or a store, whose method of this name does something else first, once."""

    def __init__(self, inner: Any, name: str, first: Callable[..., Awaitable[bool]]) -> None:
        self._inner = inner
        self._name = name
        self._first = first
        self._done = False

    def __getattr__(self, name: str) -> Any:
        there = getattr(self._inner, name)
        if name != self._name:
            return there

        async def call(*args: Any, **how: Any) -> Any:
            if not self._done:
                self._done = await self._first(*args)
            return await there(*args, **how)

        return call


async def rename_manifest(
    shop: Shop, log: LogBuilder, key: str, replaced: set[str], by: Seg | None = None, drop: Seg | None = None
) -> None:
    """As an owner's merge does, or compaction, with this segment in the place of the one that begins there, and without
    the one that it holds as well."""
    meta_key = shop.keys.meta(log.topic.topic_id, 0)
    (chunk,) = [ref for ref in log.meta.chunks if ref.key == key]
    new = shop.keys.manifest_key(log.topic.topic_id, 0, chunk.first, f"new{len(replaced)}")
    manifest = decode_manifest(await shop.store.get(key))
    if by is not None:
        segments = tuple(by if seg.base == by.base else seg for seg in manifest.segments if seg != drop)
        manifest = replace(manifest, segments=segments)
    await shop.store.put(new, [encode_manifest(manifest)])
    chunks = tuple(replace(ref, key=new) if ref.key == key else ref for ref in log.meta.chunks)
    log.meta = replace(log.meta, chunks=chunks)
    await shop.etcd.txn(Txn(success=(Put(meta_key, encode_meta(log.meta)),)))
    await shop.store.delete(key)
    replaced.add(new)
