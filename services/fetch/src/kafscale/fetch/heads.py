"""The logs that are read here, kept current by one watch and made certain by linearizable reads.

A partition is held, that is its head and meta are known, from the first request for it until no request has named it
for a while. One watch covers the heads and metas of the whole cluster, so an instance has one stream however many
topics it reads. It delivers whole revisions in their order, so both halves of a checkpoint arrive together. A change
of a partition that is not held is dropped, but its message costs CPU time. So an instance that holds nothing has no
watch, and an instance that nobody asks for anything soon holds nothing, if it holds few partitions.

A watch may be late or dead without saying so; therefore nothing that a client would act on as "there is no more" or
"this is wrong" is answered without `refresh`, which reads from etcd after it was called. Refreshes are coalesced: one
transaction of many ranges per window, begun after all requests in it arrived. Nothing polls.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import structlog
from kafscale.fetch.errors import MetadataUnavailable
from kafscale.fetch.log_table import PARTITIONS_MAX, LogTable
from kafscale.log.heads import Seg
from kafscale.log.state import LogState
from kafscale.runtime.clock import Clock
from kafscale.storage.etcd.client import (
    EtcdClient,
    EtcdError,
    EventKind,
    Range,
    RangeResult,
    WatchBatch,
)
from kafscale.storage.keys import Keyspace, PartitionKey, prefix_end
from kafscale.storage.views import WatchedRange

PARTITIONS_PER_READ: Final = 60
"""Two ranges each, under etcd's default of 128 operations in a transaction."""
READS_IN_FLIGHT_MAX: Final = 4
FEW_PARTITIONS: Final = 10 * PARTITIONS_PER_READ
"""Cheap to read again: ten transactions. More are held for `idle_ms` in any case."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTimes:
    """Intervals and time limits. `idle_ms`: without requests for the partition; `quiet_ms`: for any partition."""

    refresh_window_ms: int = 5
    refresh_timeout_ms: int = 1_000
    reconcile_ms: int = 60_000
    idle_ms: int = 10_000
    quiet_ms: int = 1_000


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
    """Partitions to be read together, and one result for all callers."""

    __slots__ = ("done", "keys")

    def __init__(self) -> None:
        self.keys: dict[PartitionKey, None] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Heads(WatchedRange):
    """`run` must be running; `tasks` owns the reads that are started here."""

    def __init__(
        self,
        etcd: EtcdClient,
        keyspace: Keyspace,
        *,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        times: HeadTimes | None = None,
        partitions_max: int = PARTITIONS_MAX,
    ) -> None:
        self._times = times or HeadTimes()
        start, end = keyspace.metas_prefix(), prefix_end(keyspace.heads_prefix())
        super().__init__(etcd, start, end, reconcile_s=self._times.reconcile_ms / 1000)
        self._keyspace = keyspace
        self._clock = clock
        self._tasks = tasks
        self._table = LogTable(keyspace, partitions_max=partitions_max)
        self._needed.clear()  # nothing is held
        self._watched = 0  # every change of a partition that is held is known up to this revision
        self._heard_ms = 0  # when the watch last delivered a change
        self._asked_ms = 0  # when a request last named a partition
        self._open: _Batch | None = None
        self._last_read_s = 0.0
        self._slots = asyncio.Semaphore(READS_IN_FLIGHT_MAX)
        self.refreshes = 0
        self.reads = 0

    # -- what is known ---------------------------------------------------------------------------

    def known(self, key: PartitionKey) -> LogState | None:
        """The newest knowledge, without I/O; None: not read yet. From now on the partition is held."""
        self._hold(key, self._clock.now_ms())
        return self._table.state(key)

    def fetched(self, keys: Iterable[PartitionKey]) -> None:
        """A Fetch names these partitions. For a while, the next bundles with records of theirs are read for all."""
        self._table.fetched(keys, self._clock.now_ms())

    def _hold(self, key: PartitionKey, now_ms: int) -> None:
        self._table.hold(key, now_ms)
        self._asked_ms = now_ms
        self._needed.set()

    def revision(self, key: PartitionKey) -> int:
        """Every change of the partition's head and meta up to this revision is known; 0: not read yet."""
        read = self._table.read_revision(key)
        return max(read, self._watched) if read else 0

    def read_ms(self, key: PartitionKey) -> int:
        """When the partition's last linearizable read began; 0: not read yet."""
        return self._table.read_ms(key)

    def confirmed_ms(self, key: PartitionKey) -> int:
        """When the partition was last read, or the watch last proved to be alive by any change; 0: not read yet."""
        read_ms = self._table.read_ms(key)
        return max(read_ms, self._heard_ms) if read_ms else 0

    def slices_beside(self, seg: Seg) -> list[Seg]:
        """Of the same bundle, in the tails of held partitions."""
        return self._table.slices_beside(seg)

    @contextmanager
    def wakeup(self, keys: Collection[PartitionKey]) -> Iterator[Wakeup]:
        """Set at each change of one of the partitions, as long as the context lasts. Meanwhile none is dropped."""
        wakeup = Wakeup()
        self._table.listen(keys, wakeup.set)
        try:
            yield wakeup
        finally:
            self._table.unlisten(keys, wakeup.set)

    @property
    def partitions_held(self) -> int:
        return len(self._table)

    @property
    def topics_followed(self) -> int:
        return len({topic_id for topic_id, _ in self._table.held()})

    # -- linearizable reads ----------------------------------------------------------------------

    async def refresh(self, keys: Iterable[PartitionKey]) -> None:
        """Afterwards `known` is at least as new as etcd was at the call. Raises MetadataUnavailable."""
        self.refreshes += 1
        wanted = dict.fromkeys(keys)
        with self.wakeup(wanted):  # none is dropped before the caller has looked at it
            now_ms = self._clock.now_ms()
            for key in wanted:
                self._hold(key, now_ms)  # before the read begins, so that no later change is missed
            await asyncio.shield(self._batch(wanted).done)

    def _batch(self, wanted: Iterable[PartitionKey]) -> _Batch:
        batch = self._open
        if batch is None:
            batch = self._open = _Batch()
            due_s = self._last_read_s + self._times.refresh_window_ms / 1000
            asyncio.get_running_loop().call_at(due_s, self._start, batch)
        batch.keys.update(dict.fromkeys(wanted))
        return batch

    def _start(self, batch: _Batch) -> None:
        self._tasks.create_task(self._read_batch(batch))

    async def _read_batch(self, batch: _Batch) -> None:
        try:
            async with self._slots:
                self._open = None
                self._last_read_s = asyncio.get_running_loop().time()
                keys = list(batch.keys)
                for at in range(0, len(keys), PARTITIONS_PER_READ):
                    self.reads += 1
                    await self._read(keys[at : at + PARTITIONS_PER_READ])
        except EtcdError as error:
            if not batch.done.done():
                batch.done.set_exception(MetadataUnavailable(reason=str(error)))
                batch.done.exception()  # retrieved here, as all callers may have left
        else:
            if not batch.done.done():
                batch.done.set_result(None)
        finally:
            if self._open is batch:
                self._open = None
            batch.done.cancel()

    async def _read(self, keys: Sequence[PartitionKey]) -> None:
        started_ms = self._clock.now_ms()
        heads = [Range(self._keyspace.head(*key)) for key in keys]
        metas = [Range(self._keyspace.meta(*key)) for key in keys]
        with self.wakeup(keys):  # held from before the read until now: a change in between was learned
            results = await self._ranges(heads + metas)
        for at, key in enumerate(keys):
            head, meta = results[at], results[len(keys) + at]
            # The meta first: a listener that wakes at the head must not find half of a checkpoint.
            self._table.learn_meta(key, *_found(meta))
            self._table.learn_head(key, *_found(head))
            self._table.confirm(key, head.revision, started_ms)

    async def _ranges(self, reads: Sequence[Range]) -> tuple[RangeResult, ...]:
        """At one revision. If etcd was restored to an older state, forgets what is not true any more."""
        watched = self._watched  # before the read: it says nothing about what is delivered while it runs
        results = await self._etcd.ranges(reads, timeout_s=self._times.refresh_timeout_ms / 1000)
        if results[0].revision < watched:
            log.warning("etcd restored to an older state", seen=watched, found=results[0].revision)
            self._watched = self._heard_ms = 0
            self._table.forget_values()
            self._restart()
        return results

    # -- the watch -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run())
            tasks.create_task(self._drop_idle())

    async def _drop_idle(self) -> None:
        while True:
            await asyncio.sleep(min(self._times.idle_ms / 4, self._times.quiet_ms) / 1000)
            self.drop_idle()

    def drop_idle(self) -> None:
        """Forgets partitions without requests for `idle_ms`, and ends the watch with the last of them.

        Forgets a few sooner, once no request has named any partition for `quiet_ms`. The watch costs CPU time for each
        commit of the cluster, which is more than a read of a few partitions when their consumers come back.
        """
        now_ms = self._clock.now_ms()
        quiet = len(self._table) <= FEW_PARTITIONS and now_ms - self._asked_ms >= self._times.quiet_ms
        self._table.drop_unused(now_ms - (self._times.quiet_ms if quiet else self._times.idle_ms))
        if not len(self._table):
            self._needed.clear()
            self._end_watch()

    async def _read_copy(self) -> int:
        """The revision first: what is held from then on is read at this revision or a later one."""
        (now,) = await self._ranges([Range(self._keyspace.cluster(), keys_only=True)])
        keys = self._table.held()
        for at in range(0, len(keys), PARTITIONS_PER_READ):
            await self._read(keys[at : at + PARTITIONS_PER_READ])
        self._watched = max(self._watched, now.revision)
        return now.revision

    def _apply(self, batch: WatchBatch) -> None:
        for event in batch.events:
            value = event.kv.value if event.kind is EventKind.PUT else None
            self._table.learn(event.kv.key, value, event.kv.mod_revision)
        self._watched = max(self._watched, batch.revision)
        self._heard_ms = self._clock.now_ms()


def _found(result: RangeResult) -> tuple[bytes | None, int]:
    """A key's value and its revision; of an absent key, the revision at which it was absent."""
    if result.kvs:
        return result.kvs[0].value, result.kvs[0].mod_revision
    return None, result.revision
