"""The object store in a local directory, shared by the processes of one machine. The law is in `disk_tree`.

An object is the plain file `{root}/{key}`. Writes and reads have separate threads, so that a read never queues
behind an fsync. Only the page-cache part of a small create is done on the event loop. Requests cost nothing, so
there is no budget.
"""

import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Final

from kafscale.storage.objects.disk_pool import DiskPool
from kafscale.storage.objects.disk_tree import DiskTree
from kafscale.storage.objects.port import (
    DELETES_MAX,
    NO_METADATA,
    Buffer,
    Condition,
    Doomed,
    IfAbsent,
    Metadata,
    ObjectInfo,
    Outcome,
    delete_singly,
)

WRITE_THREADS: Final = 16
READ_THREADS: Final = 4
PENDING_MAX: Final = 1024
LOCK_WAIT_S: Final = 10.0
SHOW_HERE_BYTES_MAX: Final = 1 << 20
_LIST_PAGE: Final = 500


class DirectoryStore:
    """Nothing is created before the first request. `attributes` False: a new store keeps its records in links.
    `kept_bytes`: a PUT that would leave less room on the disk raises StoreFull."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        lock_wait_s: float = LOCK_WAIT_S,
        attributes: bool = True,
        kept_bytes: int = 0,
    ) -> None:
        self.bills_requests = False
        self.puts_at_once_max: int | None = None
        self.conditional_delete = True
        self.root = Path(root).absolute()
        self._removed_at_close = False
        self._tree = DiskTree(
            str(self.root), lock_wait_s=lock_wait_s, attributes=attributes, kept_bytes=kept_bytes
        )
        self._writers = DiskPool("object-write", threads=WRITE_THREADS, pending_max=PENDING_MAX)
        self._readers = DiskPool("object-read", threads=READ_THREADS, pending_max=PENDING_MAX)

    @classmethod
    def temporary(cls) -> "DirectoryStore":
        """A store for this process only. Closing it removes everything."""
        store = cls(tempfile.mkdtemp(prefix="kafscale-objects-"))
        store._removed_at_close = True
        return store

    async def put(
        self,
        key: str,
        body: Sequence[Buffer],
        *,
        condition: Condition = None,
        metadata: Metadata = NO_METADATA,
    ) -> str:
        if isinstance(condition, IfAbsent) and self._may_show_here(body):
            shown = self._tree.try_show(key, body, metadata)
            if shown is not None:
                return await self._writers.post(self._tree.settle, key, shown)
        return await self._writers.run(self._tree.put, key, body, condition, metadata)

    def _may_show_here(self, body: Sequence[Buffer]) -> bool:
        """A thread releases the GIL at each of a create's ten system calls and, while the loop is busy, waits
        up to 5 ms each time to get it back. So the steps that do not wait for the disk run on the loop
        (measured: 0.3 ms for 100 KB), and threads only sync. Opening the next files ahead in threads was tried;
        the thread switches cost more than they saved."""
        size = sum(map(len, body))
        fits = size <= SHOW_HERE_BYTES_MAX and not self._writers.full
        return fits and self._tree.waits_only_for_fsync(size)

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        return await self._readers.run(self._tree.get, key, if_match, start, end)

    async def head(self, key: str) -> ObjectInfo | None:
        return await self._writers.run(self._tree.head, key)

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        return await self._writers.run(self._tree.delete, key, if_match)

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        assert len(doomed) <= DELETES_MAX, len(doomed)
        return await delete_singly(lambda key, etag: self.delete(key, if_match=etag), doomed)

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        scan = self._tree.scan(prefix, start_after)
        while page := await self._readers.run(_take, scan):
            for info in page:
                yield info

    async def probe(self) -> None:
        """Conditions hold by construction. This detects early that the directory cannot be used."""
        await self._writers.run(self._tree.prepare)

    async def close(self) -> None:
        await self._writers.close()
        await self._readers.close()
        self._tree.close()
        if self._removed_at_close:
            shutil.rmtree(self.root)


def _take(scan: Iterator[ObjectInfo]) -> list[ObjectInfo]:
    return list(itertools.islice(scan, _LIST_PAGE))
