"""The slices of bundles that heads name: their owners have not settled them into segments yet.

All heads are read, because a partition without an owner has slices too and no instance reports them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final

from kafscale.log.heads import HEAD_FEATURES
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import UnreadableValue, parse_value
from kafscale.store.v1 import store_pb2 as pb

HEADS_PER_READ: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    slices: int = 0
    bytes: int = 0
    oldest_created_ms: int | None = None
    """When the oldest of them was written. None: there is none."""


async def read_unsettled(etcd: EtcdClient, keys: Keyspace) -> Unsettled:
    """Page by page, so the heads are not of one moment. Raises EtcdError."""
    slices: list[pb.Seg] = []
    async for kv in etcd.each(keys.heads_prefix(), page_keys=HEADS_PER_READ):
        with contextlib.suppress(UnreadableValue):  # `kafscale fsck` reports damage
            slices += _slices_of(kv.value)
    return Unsettled(
        slices=len(slices),
        bytes=sum(seg.size for seg in slices),
        oldest_created_ms=min((seg.created for seg in slices), default=None),
    )


def _slices_of(value: bytes) -> list[pb.Seg]:
    """Without `decode_head`, which builds every segment of the tail."""
    head = pb.Head()
    parse_value(head, value, "head", HEAD_FEATURES)
    return [seg for seg in head.tail if seg.bundle]
