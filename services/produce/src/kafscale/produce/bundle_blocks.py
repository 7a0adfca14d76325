"""Slices of bundles for recovery, read in blocks that several partitions share.

After a crash an instance claims many partitions whose tails name the same bundles. A GET reads a block of BLOCK_BYTES,
not a slice, so the partitions after the first one find theirs in memory. Most bundles have one block. Callers that need
a block at the same time wait for one GET. At most KEPT_BYTES_MAX are kept, and nothing after KEPT_S without a read.

A block is named by the etag of its bundle, so it is never out of date. Callers check the slice: a block may be damaged.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from kafscale.log.places import Place

BLOCK_BYTES: Final = 1 << 20
KEPT_BYTES_MAX: Final = 64 << 20
KEPT_S: Final = 30.0


class _Block(NamedTuple):
    key: str
    etag: str | None
    number: int

    @property
    def place(self) -> Place:
        """The last block of a bundle ends where the bundle ends."""
        return Place(self.key, self.etag, self.number * BLOCK_BYTES, (self.number + 1) * BLOCK_BYTES)


class _Turn:
    """Callers that need one block: the first reads it, the others wait and find it."""

    __slots__ = ("callers", "lock")

    def __init__(self) -> None:
        self.callers = 0
        self.lock = asyncio.Lock()


class BundleBlocks:
    """`get` reads a place from the store; its errors reach each caller that waits for the block."""

    def __init__(self, get: Callable[[Place], Awaitable[bytes]]) -> None:
        self._get = get
        self._kept: OrderedDict[_Block, bytes] = OrderedDict()  # the least recently used first
        self._kept_bytes = 0
        self._turns: dict[_Block, _Turn] = {}
        self._expiry: asyncio.TimerHandle | None = None

    @property
    def kept_bytes(self) -> int:
        return self._kept_bytes

    async def read(self, place: Place) -> bytes:
        """The bytes of a slice."""
        assert place.end is not None, place
        numbers = range(place.start // BLOCK_BYTES, (place.end - 1) // BLOCK_BYTES + 1)
        found = [await self._block(_Block(place.key, place.etag, number)) for number in numbers]
        origin = numbers.start * BLOCK_BYTES
        data = found[0] if len(found) == 1 else b"".join(found)
        return data[place.start - origin : place.end - origin]

    def forget(self, place: Place) -> None:
        """What was read of this object may be damaged."""
        for block in [block for block in self._kept if (block.key, block.etag) == (place.key, place.etag)]:
            self._kept_bytes -= len(self._kept.pop(block))

    async def _block(self, block: _Block) -> bytes:
        turn = self._turns.setdefault(block, _Turn())
        turn.callers += 1
        try:
            async with turn.lock:
                data = self._kept.get(block)
                if data is None:
                    data = await self._get(block.place)
                self._keep(block, data)
                return data
        finally:
            turn.callers -= 1
            if not turn.callers:
                del self._turns[block]

    def _keep(self, block: _Block, data: bytes) -> None:
        if self._kept.pop(block, None) is None:
            self._kept_bytes += len(data)
        self._kept[block] = data
        while self._kept_bytes > KEPT_BYTES_MAX:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= len(dropped)
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_later(KEPT_S, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self._kept.clear()
        self._kept_bytes = 0
