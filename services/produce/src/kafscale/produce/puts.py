"""The PUTs of an instance: their places, and who sends them for partitions and for bundles.

    async with pace.place(size):
        etag = await store.put(...)

Every PUT passes `Pace`: segments and indexes, bundles, and what checkpoints, merges and settling write. A PUT waits
for its place (`log.put_limit` decides), and then has its time limit. The wait does not count as time of the PUT. It
ends, because each PUT in flight has such a limit: with a place, or with StoreUnavailable if the store answers nothing
at all.

`Uploader` performs PUTs and HEADs of segments for the writer of a partition, which gets each outcome. A wait is no
failure of the store, so the writer gets its time with an unknown outcome, and gives up no epoch for it. A PUT whose
epoch ended meanwhile is not sent: its bytes would be an orphan, and bandwidth may be the bottleneck.

`BundlePuts` sends the PUT of a bundle until its outcome is known. A bundle has a fresh name, so an object at that name
is an earlier PUT of the same bytes. After GIVE_UP_MS of failed requests the bundle is given up. A wait for a place
while the store answers others is no failure, nor is a PUT whose bytes moved until its time was over.

`Origin` is what a bundle says about its writer: the instance, and the cluster. The sweep of upkeep deletes bundles of
deleted topics only if they have the id of etcd's cluster. An admin draws that id when it first starts, and produce may
start before it. So the id is read for the first bundle, and again for a later one while there is none. A bundle
without it is written all the same: the sweep keeps it if its topic is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Final

import structlog
from kafscale.log.bundle import BuiltBundle
from kafscale.produce.log.model import NEVER, HeadObject, Instant, PutFailure, PutObject, StepDownReason
from kafscale.produce.log.put_limit import LOCAL_PUTS_MAX, Outcome, Place, PutBounds, PutLimit, Rank, Turn
from kafscale.produce.log.uploading import FoundObject, Tried
from kafscale.produce.log.writer import PartitionWriter
from kafscale.produce.metrics import ProduceMetrics
from kafscale.runtime.clock import Clock
from kafscale.storage.backoff import Backoff
from kafscale.storage.cluster_record import read_cluster_id
from kafscale.storage.etcd.client import EtcdClient, EtcdError
from kafscale.storage.keys import META_ATTEMPT, META_CLUSTER, META_OWNER, BundleId, Keyspace
from kafscale.storage.objects import (
    NO_METADATA,
    Buffer,
    Condition,
    IfAbsent,
    Metadata,
    ObjectNotFound,
    ObjectStore,
    PreconditionFailed,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreSlow,
    StoreUnavailable,
)
from kafscale.storage.objects.progress import time_limit_s
from kafscale.storage.schema import UnreadableValue

log = structlog.get_logger(__name__)

HEAD_TIMEOUT_S: Final = 5.0


class _Unwanted(Exception):
    """The epoch ended while the PUT waited."""


class Uploader:
    """Shared by the partitions of an instance."""

    def __init__(self, store: ObjectStore, pace: Pace, clock: Clock, metrics: ProduceMetrics) -> None:
        self._store = store
        self._pace = pace
        self._clock = clock
        self._metrics = metrics

    async def put(
        self,
        writer: PartitionWriter,
        action: PutObject,
        *,
        is_wanted: Callable[[], bool],
        span: Spanned,
    ) -> str | None:
        """The etag, if this PUT wrote the object. `span` is entered around the request, without its wait."""
        base, part = action.base, action.part
        wait = Wait(self._clock.now_ms(), self._pace)
        try:
            etag = await self._sent(action, wait, is_wanted, span)
        except _Unwanted:
            return None
        except (PreconditionFailed, ObjectNotFound):
            writer.upload_conflict(base, part, self._now())
        except (StoreUnavailable, TimeoutError) as error:
            if wait.begun_ms is not None:
                log.info("PUT outcome unknown", key=action.key, error=repr(error))
            tried = Tried(waited_ms=wait.ms, moved=isinstance(error, StoreSlow))
            writer.upload_unknown(base, part, self._now(), tried)
        except StoreFull:
            writer.upload_failed(base, part, PutFailure.FULL, self._now())
        except StoreRefused as error:
            log.error("PUT refused", key=action.key, error=str(error))
            writer.upload_failed(base, part, PutFailure.REFUSED, self._now())
        else:
            writer.upload_done(base, part, etag, self._now())
            return etag
        return None

    async def _sent(
        self,
        action: PutObject,
        wait: Wait,
        is_wanted: Callable[[], bool],
        span: Spanned,
    ) -> str:
        size = sum(map(len, action.body))
        async with self._pace.place(size):
            wait.begun_ms = self._clock.now_ms()
            if not is_wanted():
                raise _Unwanted
            with span():
                async with asyncio.timeout(put_time_limit_s(size)):
                    etag = await self._store.put(
                        action.key, action.body, condition=action.condition, metadata=action.metadata
                    )
            self._metrics.put_seconds.observe((self._clock.now_ms() - wait.begun_ms) / 1000)
            return etag

    async def head(self, writer: PartitionWriter, action: HeadObject) -> None:
        try:
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                info = await self._store.head(action.key)
        except (StoreUnavailable, StoreRefused, TimeoutError) as error:
            log.info("HEAD failed", key=action.key, error=repr(error))
            writer.upload_unknown(action.base, action.part, self._now())
        else:
            found = FoundObject.from_metadata(info.etag, info.size, info.metadata) if info else None
            writer.object_found(action.base, action.part, found, self._now())

    def _now(self) -> Instant:
        return Instant(self._clock.now_ms(), self._clock.wall_ms())


GIVE_UP_MS: Final = 60_000
RETRY_FIRST_MS: Final = 50
RETRY_MAX_MS: Final = 2_000


class BundlePuts:
    """Of one instance."""

    def __init__(
        self,
        store: ObjectStore,
        pace: Pace,
        keyspace: Keyspace,
        origin: Origin,
        *,
        clock: Clock,
        metrics: ProduceMetrics,
    ) -> None:
        self._store = store
        self._pace = pace
        self._keyspace = keyspace
        self._origin = origin
        self._clock = clock
        self._metrics = metrics

    def key(self, bundle_id: BundleId) -> str:
        return self._keyspace.bundle_key(bundle_id)

    async def stored(self, built: BuiltBundle, span: Spanned) -> str | StepDownReason:
        """The etag, or why the bundle will never be committed. `span` is entered around each PUT, without its wait."""
        key = self.key(built.id)
        metadata = {META_ATTEMPT: built.id.hex(), **await self._origin.metadata()}
        backoff = Backoff(first_ms=RETRY_FIRST_MS, cap_ms=RETRY_MAX_MS)
        failing_since_ms = NEVER
        while True:
            wait = Wait(self._clock.now_ms(), self._pace)
            try:
                return await self._put(key, built, metadata, wait, span)
            except (StoreUnavailable, TimeoutError) as error:
                log.info("PUT outcome unknown", key=key, error=repr(error))
                since_ms = NEVER if isinstance(error, StoreSlow) else failing_since_ms + wait.ms
                failing_since_ms = min(since_ms, self._clock.now_ms())
            except StoreFull:
                return StepDownReason.STORE_FULL
            except StoreRefused as error:
                log.error("PUT refused", key=key, error=str(error))
                return StepDownReason.STORE_REFUSED
            except PreconditionFailed:
                log.error("bundle has another program's object in its place", key=key)
                return StepDownReason.FOREIGN_OBJECT
            if self._clock.now_ms() - failing_since_ms >= GIVE_UP_MS:
                return StepDownReason.STORE_UNAVAILABLE
            await backoff.sleep()

    async def _put(
        self, key: str, built: BuiltBundle, metadata: Mapping[str, str], wait: Wait, span: Spanned
    ) -> str:
        try:
            async with self._pace.place(built.size):
                wait.begun_ms = self._clock.now_ms()
                with span():
                    return await self._sent(key, built, metadata, wait.begun_ms)
        except PreconditionFailed:
            async with asyncio.timeout(HEAD_TIMEOUT_S):
                there = await self._store.head(key)
            if there is None:
                raise StoreUnavailable(key, "what was there is gone") from None
            if there.metadata.get(META_ATTEMPT) != built.id.hex():
                raise
            return there.etag

    async def _sent(self, key: str, built: BuiltBundle, metadata: Mapping[str, str], begun_ms: int) -> str:
        async with asyncio.timeout(put_time_limit_s(built.size)):
            etag = await self._store.put(key, built.body, condition=IfAbsent(), metadata=metadata)
        self._metrics.put_seconds.observe((self._clock.now_ms() - begun_ms) / 1000)
        return etag


TIMEOUT_S: Final = 1.0
AGAIN_MS: Final = 10_000


class Origin:
    """Of one instance."""

    def __init__(self, etcd: EtcdClient, keyspace: Keyspace, clock: Clock, *, owner: str) -> None:
        self._etcd = etcd
        self._keyspace = keyspace
        self._clock = clock
        self._owner = owner
        self._cluster_id = ""
        self._ask_at_ms: int | None = None  # None: it was never asked for

    async def metadata(self) -> dict[str, str]:
        """Of a bundle that is about to be stored. Waits for etcd for TIMEOUT_S at most."""
        now_ms = self._clock.now_ms()
        if not self._cluster_id and (self._ask_at_ms is None or self._ask_at_ms <= now_ms):
            self._ask_at_ms = now_ms + AGAIN_MS
            self._cluster_id = await self._read()
        return {META_OWNER: self._owner, META_CLUSTER: self._cluster_id}

    async def _read(self) -> str:
        try:
            return await read_cluster_id(self._etcd, self._keyspace, timeout_s=TIMEOUT_S)
        except (EtcdError, UnreadableValue) as error:
            log.warning("cluster id not read", error=str(error))
            return ""


PUTS_FIRST = 8
STALL_S = 20.0
"""The store gives up a PUT that rests, after a shorter time. This limit is for a store that does not notice."""

Spanned = Callable[[], AbstractContextManager[None]]
"""Entered around each request of a PUT, without its wait for a place."""


def put_bounds(store: ObjectStore, puts_max: int | None) -> PutBounds:
    """A local store has no link that PUTs share: its bound is out of reach, from the start.

    More PUTs than the connections carry would wait for one within their time limit.
    """
    is_local = store.puts_at_once_max is None
    carried = store.puts_at_once_max or LOCAL_PUTS_MAX
    most = min(puts_max or carried, carried)
    return PutBounds(puts_first=most if is_local else min(PUTS_FIRST, most), puts_max=most)


def put_time_limit_s(size: int) -> float:
    return time_limit_s(size, STALL_S)


class Pace:
    """See the module's law."""

    def __init__(self, store: ObjectStore, clock: Clock, *, puts_max: int | None = None) -> None:
        self.limit = PutLimit(put_bounds(store, puts_max))
        self._store = store
        self._clock = clock
        self._turns: dict[Place, asyncio.Future[bool]] = {}  # of those that wait: whether they begin
        self.sent = 0
        """PUTs that ended: with an outcome or with a timeout."""
        self.unknown = 0
        """Those of them without an answer."""

    @asynccontextmanager
    async def place(self, size: int, rank: Rank = Rank.NORMAL) -> AsyncIterator[Place]:
        """A place for a PUT of `size` bytes. How the block ends is the outcome that the limit learns from."""
        place = await self._begun(size, rank)
        outcome = Outcome.DROPPED
        try:
            yield place
            outcome = Outcome.STORED
        except StoreSlow:
            outcome = Outcome.SLOW
            raise
        except (StoreUnavailable, TimeoutError):
            outcome = Outcome.LOST
            raise
        except StoreError:
            outcome = Outcome.ANSWERED
            raise
        finally:
            self.sent += outcome is not Outcome.DROPPED
            self.unknown += outcome in (Outcome.SLOW, Outcome.LOST)
            self._take(self.limit.finish(place, outcome, self._clock.now_ms()))

    async def put(
        self,
        key: str,
        body: Sequence[Buffer],
        *,
        condition: Condition,
        metadata: Metadata = NO_METADATA,
        rank: Rank = Rank.NORMAL,
    ) -> str:
        """A whole PUT, with its place and its time limit. Returns the etag. Raises StoreError or TimeoutError."""
        size = sum(map(len, body))
        async with self.place(size, rank), asyncio.timeout(put_time_limit_s(size)):
            return await self._store.put(key, body, condition=condition, metadata=metadata)

    async def _begun(self, size: int, rank: Rank) -> Place:
        place = self.limit.ask(size, self._clock.now_ms(), rank)
        if not place.waits:
            return place
        turn = self._turns[place] = asyncio.get_running_loop().create_future()
        try:
            begins = await turn
        except asyncio.CancelledError:
            self._forget(place)
            raise
        if not begins:
            raise StoreUnavailable("", "the store answers no PUT")
        return place

    def _forget(self, place: Place) -> None:
        """Its task was cancelled, while it waited or in the moment in which it began."""
        now_ms = self._clock.now_ms()
        if not place.waits:
            self._take(self.limit.finish(place, Outcome.DROPPED, now_ms))
        elif self._turns.pop(place, None) is not None:
            self._take(self.limit.leave(place, now_ms))

    def _take(self, turn: Turn) -> None:
        self._answer(turn.begun, True)
        self._answer(turn.turned_away, False)

    def _answer(self, places: Iterable[Place], begins: bool) -> None:
        for place in places:
            waiting = self._turns.pop(place)
            if not waiting.done():  # its task may have been cancelled just now
                waiting.set_result(begins)


class Wait:
    """How long a PUT waited for its place while the store answered others."""

    __slots__ = ("_asked_ms", "_pace", "begun_ms")

    def __init__(self, asked_ms: int, pace: Pace) -> None:
        self._asked_ms = asked_ms
        self._pace = pace
        self.begun_ms: int | None = None  # None: it never got a place

    @property
    def ms(self) -> int:
        until_ms = self._pace.limit.answered_ms if self.begun_ms is None else self.begun_ms
        return max(0, until_ms - self._asked_ms)
