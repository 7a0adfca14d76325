"""The logs of the topics read here, kept current by watches and made certain by linearizable reads.

A topic's heads and metas are watched from its first use until nobody has asked for a while. A watch may
be late or dead without saying so; therefore nothing that a client would act on as "there is no more" or "this is
wrong" is answered without `refresh`, which reads from etcd after it was called. Refreshes are coalesced: one
transaction of many ranges per window, begun after all requests in it arrived. Nothing polls.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import structlog
from kafscale.fetch.errors import MetadataUnavailable
from kafscale.fetch.logstate import LogState, LogTable, PartitionKey
from kafscale.runtime.clock import Clock
from kafscale.storage.etcd.client import (
    EtcdClient,
    EtcdError,
    EventKind,
    Range,
    RangeResult,
    WatchBatch,
    WatchCompacted,
)
from kafscale.storage.keys import Keyspace, TopicId, UnknownKey, prefix_end

PARTITIONS_PER_READ: Final = 60
"""Two ranges each, under etcd's default of 128 operations in a transaction."""
PREFIXES: Final = 2
READS_IN_FLIGHT_MAX: Final = 4
BACKOFF_S: Final = 0.5

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTimes:
    """How long things may take, in the settings' words."""

    refresh_window_ms: int = 5
    refresh_timeout_ms: int = 1_000
    reconcile_ms: int = 60_000
    idle_ms: int = 300_000


class Wakeup:
    """A change seen since the last `clear`; waited for without a task of its own."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, timeout_ms: int) -> None:
        """Returns at the change, or when the time is over."""
        timer = asyncio.get_running_loop().call_later(max(0, timeout_ms) / 1000, self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()


class _Batch:
    """Partitions to be read together, and the answer for all who asked."""

    __slots__ = ("done", "keys")

    def __init__(self) -> None:
        self.keys: dict[PartitionKey, None] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Follower:
    """Both prefixes of one topic, followed by two tasks."""

    __slots__ = ("changed_ms", "heads_revision", "loaded", "metas_revision", "tasks", "used_ms")

    def __init__(self, now_ms: int) -> None:
        self.used_ms = now_ms
        self.changed_ms = 0
        self.heads_revision = 0
        self.metas_revision = 0
        self.loaded: set[bytes] = set()  # the prefixes that were read whole
        self.tasks: list[asyncio.Task[None]] = []


class Heads:
    """`run` sweeps idle watches and must be running; `tasks` owns every task started here."""

    def __init__(
        self,
        etcd: EtcdClient,
        keyspace: Keyspace,
        *,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        times: HeadTimes | None = None,
    ) -> None:
        self._etcd = etcd
        self._keyspace = keyspace
        self._clock = clock
        self._tasks = tasks
        self._times = times or HeadTimes()
        self._table = LogTable()
        self._followers: dict[TopicId, _Follower] = {}
        self._open: _Batch | None = None
        self._last_read_s = 0.0
        self._slots = asyncio.Semaphore(READS_IN_FLIGHT_MAX)
        self.refreshes = 0
        self.reads = 0

    # -- what is known ---------------------------------------------------------------------------

    def known(self, key: PartitionKey) -> LogState | None:
        """The newest knowledge, without I/O; None: nothing is known yet. Starts to follow the topic."""
        follower = self._follow(key.topic_id)
        return self._table.state(key, rest_is_absent=len(follower.loaded) == PREFIXES)

    def revision(self, key: PartitionKey) -> int:
        """Every commit of the partition up to this revision is known."""
        follower = self._followers.get(key.topic_id)
        watched = 0 if follower is None else follower.heads_revision
        return max(self._table.read_revision(key), watched)

    def log_start_revision(self, key: PartitionKey) -> int:
        """The partition's log start is known as of this revision. Metas have a watch of their own, which
        says nothing while they rest, so this may lag far behind `revision`."""
        follower = self._followers.get(key.topic_id)
        watched = 0 if follower is None else follower.metas_revision
        return max(self._table.read_revision(key), watched)

    def confirmed_ms(self, key: PartitionKey) -> int:
        """When the knowledge of the partition was last known to be current."""
        follower = self._followers.get(key.topic_id)
        heard_ms = 0 if follower is None else follower.changed_ms
        return max(self._table.read_ms(key), heard_ms)

    @contextmanager
    def wakeup(self, keys: Sequence[PartitionKey]) -> Iterator[Wakeup]:
        """Set at each change of one of the partitions, as long as the context lasts."""
        wakeup = Wakeup()
        self._table.listen(keys, wakeup.set)
        try:
            yield wakeup
        finally:
            self._table.unlisten(keys, wakeup.set)

    @property
    def topics_followed(self) -> int:
        return len(self._followers)

    # -- linearizable reads ----------------------------------------------------------------------

    async def refresh(self, keys: Iterable[PartitionKey]) -> None:
        """Afterwards `known` is at least as new as etcd was at the call. Raises MetadataUnavailable."""
        self.refreshes += 1
        batch = self._open
        if batch is None:
            batch = self._open = _Batch()
            due_s = self._last_read_s + self._times.refresh_window_ms / 1000
            asyncio.get_running_loop().call_at(due_s, self._start, batch)
        batch.keys.update(dict.fromkeys(keys))
        await asyncio.shield(batch.done)

    def _start(self, batch: _Batch) -> None:
        self._tasks.create_task(self._read_batch(batch))

    async def _read_batch(self, batch: _Batch) -> None:
        try:
            async with self._slots:
                self._open = None
                self._last_read_s = asyncio.get_running_loop().time()
                keys = list(batch.keys)
                for at in range(0, len(keys), PARTITIONS_PER_READ):
                    await self._read(keys[at : at + PARTITIONS_PER_READ])
        except EtcdError as error:
            if not batch.done.done():
                batch.done.set_exception(MetadataUnavailable(reason=str(error)))
                batch.done.exception()  # whoever asked may have left: then nobody else retrieves it
        else:
            if not batch.done.done():
                batch.done.set_result(None)
        finally:
            if self._open is batch:
                self._open = None
            batch.done.cancel()

    async def _read(self, keys: Sequence[PartitionKey]) -> None:
        started_ms = self._clock.now_ms()
        self.reads += 1
        heads = [Range(self._keyspace.head(*key)) for key in keys]
        metas = [Range(self._keyspace.meta(*key)) for key in keys]
        results = await self._etcd.ranges(heads + metas, timeout_s=self._times.refresh_timeout_ms / 1000)
        for at, key in enumerate(keys):
            head, meta = results[at], results[len(keys) + at]
            # The meta first: a listener that wakes at the head must not find half of a checkpoint.
            self._table.learn_meta(key, *_found(meta))
            self._table.learn_head(key, *_found(head))
            self._table.confirm(key, head.revision, started_ms)

    # -- watches ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """Drop the watches of topics that nobody reads."""
        while True:
            await asyncio.sleep(self._times.idle_ms / 1000 / 4)
            self.drop_idle()

    def drop_idle(self) -> None:
        horizon_ms = self._clock.now_ms() - self._times.idle_ms
        for topic_id, follower in tuple(self._followers.items()):
            if follower.used_ms <= horizon_ms and not self._table.listened(topic_id):
                for task in follower.tasks:
                    task.cancel()
                del self._followers[topic_id]
                self._table.forget(topic_id)

    def _follow(self, topic_id: TopicId) -> _Follower:
        now_ms = self._clock.now_ms()
        follower = self._followers.get(topic_id)
        if follower is None:
            follower = self._followers[topic_id] = _Follower(now_ms)
            for prefix in (self._keyspace.heads_prefix(topic_id), self._keyspace.metas_prefix(topic_id)):
                follower.tasks.append(
                    self._tasks.create_task(self._follow_prefix(follower, topic_id, prefix))
                )
        follower.used_ms = now_ms
        return follower

    async def _follow_prefix(self, follower: _Follower, topic_id: TopicId, prefix: bytes) -> None:
        """Read all, watch from there, and read all again once a minute or when history was compacted."""
        while True:
            try:
                revision = await self._load(follower, topic_id, prefix)
                watch = self._etcd.watch(prefix, range_end=prefix_end(prefix), start_revision=revision + 1)
                async with watch, asyncio.timeout(self._times.reconcile_ms / 1000):
                    async for batch in watch:
                        self._apply(follower, batch)
            except TimeoutError:
                continue
            except WatchCompacted as error:
                log.info("watch_compacted", topic_id=topic_id.hex(), revision=error.compact_revision)
            except EtcdError as error:
                log.warning("watch_failed", topic_id=topic_id.hex(), reason=str(error))
                await asyncio.sleep(BACKOFF_S)

    async def _load(self, follower: _Follower, topic_id: TopicId, prefix: bytes) -> int:
        started_ms = self._clock.now_ms()
        seen = follower.heads_revision  # before the read: it says nothing about what was heard while it ran
        found = await self._etcd.prefix(prefix)
        if found.revision < seen:
            self._go_back(follower, topic_id, found.revision)
        present = set()
        for kv in found.kvs:
            present.add(self._learn(kv.key, kv.value, kv.mod_revision))
        learn = self._table.learn_head if self._is_heads(prefix) else self._table.learn_meta
        for key in self._table.partitions(topic_id):
            if key not in present:
                learn(key, None, found.revision)
        follower.loaded.add(prefix)
        self._heard(follower, found.revision, started_ms, heads=self._is_heads(prefix))
        return found.revision

    def _go_back(self, follower: _Follower, topic_id: TopicId, revision: int) -> None:
        """etcd was restored to an older state: what was seen beyond it is not true any more."""
        log.warning("etcd_went_back", topic_id=topic_id.hex(), seen=follower.heads_revision, found=revision)
        follower.heads_revision = follower.metas_revision = 0
        follower.loaded.clear()
        self._table.forget(topic_id)

    def _apply(self, follower: _Follower, batch: WatchBatch) -> None:
        heads = False
        for event in batch.events:
            value = event.kv.value if event.kind is EventKind.PUT else None
            self._learn(event.kv.key, value, event.kv.mod_revision)
            heads = heads or self._is_heads(event.kv.key)
        self._heard(follower, batch.revision, self._clock.now_ms(), heads=heads)

    def _heard(self, follower: _Follower, revision: int, at_ms: int, *, heads: bool) -> None:
        if heads:
            follower.heads_revision = max(follower.heads_revision, revision)
            follower.changed_ms = max(follower.changed_ms, at_ms)
        else:
            follower.metas_revision = max(follower.metas_revision, revision)

    def _learn(self, raw: bytes, value: bytes | None, revision: int) -> PartitionKey | None:
        try:
            if self._is_heads(raw):
                key = PartitionKey(*self._keyspace.parse_head(raw))
                self._table.learn_head(key, value, revision)
            else:
                key = PartitionKey(*self._keyspace.parse_meta(raw))
                self._table.learn_meta(key, value, revision)
        except UnknownKey:
            return None
        return key

    def _is_heads(self, raw: bytes) -> bool:
        return raw.startswith(self._keyspace.heads_prefix())


def _found(result: RangeResult) -> tuple[bytes | None, int]:
    """A key's value and its revision; of an absent key, the revision at which it was absent."""
    if result.kvs:
        return result.kvs[0].value, result.kvs[0].mod_revision
    return None, result.revision
