"""Local copies of ranges of etcd's keys, kept current by a watch.

`PrefixView` is a copy of everything under one prefix. Its law: the copy only moves forward. It starts from a
linearizable read and follows a watch from the next revision; an update older than what is held is ignored. When the
history was compacted, the range is read again. Once a minute it is read again in any case, because etcd has lost watch
events before (issue 18089). A read at a revision before the one already seen means that etcd was restored from a
backup: only then does the copy go back, and the watch with it.

A value that cannot be read affects only its key: it is in `unreadable` instead of `items` until it changes, and this is
logged once. The key is not absent. Code that acts on absence must look into `unreadable`.

`WatchedRange` is the part that reads, watches and starts again. The fetch service builds a copy of selected keys on it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Generic, TypeVar

from kafscale.storage.backoff import Backoff
from kafscale.storage.etcd.client import (
    EtcdClient,
    EtcdUnknown,
    EventKind,
    KeyValue,
    Range,
    WatchBatch,
    WatchCompacted,
)
from kafscale.storage.keys import prefix_end
from kafscale.storage.schema import UnreadableValue

log = logging.getLogger(__name__)

RECONCILE_S = 60.0
BACKOFF_FIRST_MS = 100
BACKOFF_MAX_MS = 1_000
COMPACTED_MAX_MS = 10_000
KEYS_PER_READ_MAX = 100

T = TypeVar("T")


class WatchedRange(ABC):
    """Keeps a copy of the keys from `start` to `end` current: reads them, follows a watch from there, and reads again
    when the history was compacted and every `reconcile_s`. A subclass is the copy."""

    def __init__(self, etcd: EtcdClient, start: bytes, end: bytes, *, reconcile_s: float) -> None:
        self._needed = asyncio.Event()
        """While it is clear, nobody needs the copy: it is not read, and no new watch begins."""
        self._needed.set()
        self._etcd = etcd
        self._range_start = start
        self._range_end = end
        self._reconcile_s = reconcile_s
        self._following: asyncio.Timeout | None = None
        self.resyncs = 0
        """Reads because the history was compacted or etcd went back in time."""

    async def run(self) -> None:
        """Until cancelled. A history that is compacted time and again is read less and less often."""
        backoff = Backoff(first_ms=BACKOFF_FIRST_MS, cap_ms=COMPACTED_MAX_MS)
        while True:
            await self._needed.wait()
            try:
                await self._follow(await self._read_until_answered() + 1)
                backoff.reset()
            except WatchCompacted as error:
                self.resyncs += 1
                at = error.compact_revision
                log.info("watch history compacted: %r at revision %d", self._range_start, at)
                await backoff.sleep()

    @abstractmethod
    async def _read_copy(self) -> int:
        """Reads all that the copy needs, and returns the revision from which the watch continues. May raise
        EtcdUnknown: then it is called again."""

    @abstractmethod
    def _apply(self, batch: WatchBatch) -> None:
        """Takes over changes of all keys of the range, whole revisions in their order."""

    def _restart(self) -> None:
        """What the copy holds may be wrong: it is read again now."""
        self.resyncs += 1
        self._end_watch()

    def _end_watch(self) -> None:
        """The copy is read again before the next watch. A watch whose time is over may end only in a later turn of the
        loop, and a Timeout that has expired cannot be moved."""
        if self._following is not None and not self._following.expired():
            self._following.reschedule(asyncio.get_running_loop().time())

    async def _read_until_answered(self) -> int:
        backoff = Backoff(first_ms=BACKOFF_FIRST_MS, cap_ms=BACKOFF_MAX_MS)
        while True:
            try:
                return await self._read_copy()
            except EtcdUnknown:
                # The copy stays as it is. Nothing may claim meanwhile that it is fresh.
                await backoff.sleep()

    async def _follow(self, start_revision: int) -> None:
        """Until it is time to read the range again."""
        watch = self._etcd.watch(self._range_start, range_end=self._range_end, start_revision=start_revision)
        try:
            async with watch, asyncio.timeout(self._reconcile_s) as self._following:
                async for batch in watch:
                    self._apply(batch)
        except TimeoutError:
            return
        finally:
            self._following = None


class PrefixView(WatchedRange, Generic[T]):
    """`run` it in a task, wait for `ready`. Everything else is synchronous, and of this event loop.

    `decode` turns a key and value into what is kept; None keeps the key out of `items`, UnreadableValue puts it into
    `unreadable`. Anything else that it raises is our bug and ends `run`.
    """

    def __init__(
        self,
        etcd: EtcdClient,
        prefix: bytes,
        decode: Callable[[KeyValue], T | None],
        *,
        reconcile_s: float = RECONCILE_S,
    ) -> None:
        super().__init__(etcd, prefix, prefix_end(prefix), reconcile_s=reconcile_s)
        self._decode = decode
        self._items: dict[bytes, T] = {}
        self._revisions: dict[bytes, int] = {}  # mod_revision of every key held, decoded or not
        self._merged = 0  # revision of the latest range of the whole prefix
        self._watched = 0  # revision up to which the watch has delivered everything
        # Absences that a range under way, or a watch that lags behind a range, could contradict.
        self._absent: dict[bytes, int] = {}
        self._reading = 0
        self._listeners: list[Callable[[bytes, T | None], None]] = []
        self._damage_listeners: list[Callable[[bytes, UnreadableValue | None], None]] = []
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._ready = asyncio.Event()
        self._refreshing = asyncio.Lock()
        self._refreshes_begun = 0
        self._refreshes_done = 0
        self._unreadable: dict[bytes, UnreadableValue] = {}
        self.items: Mapping[bytes, T] = MappingProxyType(self._items)
        self.unreadable: Mapping[bytes, UnreadableValue] = MappingProxyType(self._unreadable)
        """Keys that exist, and why their values cannot be read."""
        self.revision = 0
        """Every change of the prefix up to here is in `items`."""

    async def ready(self) -> None:
        """Returns when the first range has been read."""
        await self._ready.wait()

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    def subscribe(self, listener: Callable[[bytes, T | None], None]) -> Callable[[], None]:
        """Calls `listener(key, value)` after each change, with None for what left `items`. Returns the unsubscribe
        function."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def subscribe_damage(self, listener: Callable[[bytes, UnreadableValue | None], None]) -> None:
        """Calls `listener(key, why)` when a value cannot be read, before what was known of the key leaves `items`; and
        with None when the value was replaced or deleted, before the new one is in `items`."""
        self._damage_listeners.append(listener)

    def revision_of(self, key: bytes) -> int:
        """The revision of the last change of the key that the view has seen, or 0 if it is absent."""
        return self._revisions.get(key, 0)

    async def wait_revision(self, revision: int, timeout_s: float) -> bool:
        """Whether the view saw a change of the prefix at `revision` or later in time."""
        if self.revision >= revision:
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (revision, waiter)
        self._waiters.append(entry)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            return False
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)
        return True

    async def refresh(self) -> None:
        """Reads the range now: afterwards `items` holds all that was committed before the call.

        Callers that come while a range is under way share the next one. Raises `EtcdUnknown`.
        """
        ticket = self._refreshes_begun + 1
        async with self._refreshing:
            if self._refreshes_done >= ticket:
                return
            self._refreshes_begun += 1
            number = self._refreshes_begun
            await self._read_all()
            self._refreshes_done = number

    async def refresh_keys(self, keys: Collection[bytes]) -> None:
        """As `refresh`, for these keys alone."""
        wanted = list(keys)
        for start in range(0, len(wanted), KEYS_PER_READ_MAX):
            part = wanted[start : start + KEYS_PER_READ_MAX]
            self._reading += 1
            try:
                results = await self._etcd.ranges([Range(key) for key in part])
                self._merge([kv for r in results for kv in r.kvs], part, results[0].revision)
            finally:
                self._read_ended()

    # -- the task --------------------------------------------------------------------------------

    async def _read_copy(self) -> int:
        revision = self._watched = await self._read_all()
        self._ready.set()
        return revision

    async def _read_all(self) -> int:
        seen = self.revision
        self._reading += 1
        try:
            result = await self._etcd.prefix(self._range_start)
            if result.revision < seen:
                self._go_back()
            self._merge(result.kvs, None, result.revision)
        finally:
            self._read_ended()
        self._advance(result.revision)
        return result.revision

    # -- the copy --------------------------------------------------------------------------------

    def _apply(self, batch: WatchBatch) -> None:
        for event in batch.events:
            if event.kv.mod_revision <= self._merged:
                continue  # the watch lags behind a range that includes this event
            if event.kind is EventKind.PUT:
                self._set(event.kv)
            else:
                self._remove(event.kv.key, event.kv.mod_revision)
        self._watched = batch.revision
        self._forget_absences()
        self._advance(batch.revision)

    def _merge(self, kvs: Iterable[KeyValue], asked: Collection[bytes] | None, revision: int) -> None:
        """Takes over what was read at `revision`. Of the keys in `asked` (None: all), absent ones are removed."""
        if revision < self._merged:
            return  # ranges crossed: a later one was already taken over, and it includes this one
        present = set()
        for kv in kvs:
            present.add(kv.key)
            self._set(kv)
        for key in list(self._revisions) if asked is None else asked:
            if key not in present:
                self._remove(key, revision)
        if asked is None:
            self._merged = revision

    def _set(self, kv: KeyValue) -> None:
        key, revision = kv.key, kv.mod_revision
        if self._revisions.get(key, 0) >= revision or self._absent.get(key, 0) >= revision:
            return
        value = self._decoded(kv)
        self._revisions[key] = revision
        if value is not None:
            self._items[key] = value
        elif self._items.pop(key, None) is None:
            return
        self._notify(key, value)

    def _decoded(self, kv: KeyValue) -> T | None:
        try:
            value = self._decode(kv)
        except UnreadableValue as error:
            self._unreadable[kv.key] = error
            log.error("stored value unreadable: %r: %s", kv.key, error)
            self._notify_damage(kv.key, error)
            return None
        if self._unreadable.pop(kv.key, None) is not None:
            log.warning("stored value readable again: %r", kv.key)
            self._notify_damage(kv.key, None)
        return value

    def _remove(self, key: bytes, revision: int) -> None:
        self._absent[key] = max(revision, self._absent.get(key, 0))
        if self._revisions.get(key, revision + 1) > revision:
            return
        del self._revisions[key]
        if self._unreadable.pop(key, None) is not None:
            self._notify_damage(key, None)
        if self._items.pop(key, None) is not None:
            self._notify(key, None)

    def _notify(self, key: bytes, value: T | None) -> None:
        for listener in tuple(self._listeners):
            listener(key, value)

    def _notify_damage(self, key: bytes, why: UnreadableValue | None) -> None:
        for listener in self._damage_listeners:
            listener(key, why)

    def _advance(self, revision: int) -> None:
        self.revision = max(self.revision, revision)
        if not self._waiters:
            return
        for wanted, waiter in self._waiters:
            if wanted <= self.revision and not waiter.done():
                waiter.set_result(None)

    def _go_back(self) -> None:
        """etcd lost revisions that this view has seen: forget them, and restart the watch."""
        self.revision = self._merged = self._watched = 0
        self._absent.clear()
        self._revisions = dict.fromkeys(self._revisions, 0)
        self._restart()

    def _read_ended(self) -> None:
        self._reading -= 1
        self._forget_absences()

    def _forget_absences(self) -> None:
        if not self._reading and self._absent:
            self._absent = {key: at for key, at in self._absent.items() if at > self._watched}
