"""PUTs and HEADs of segments and indexes: performed for the writer of a partition, which gets each outcome.

A PUT waits for its place first (`pace`). The wait is no failure of the store, so the writer gets its time with an
unknown outcome, and gives up no epoch for it. A PUT whose epoch ended meanwhile is not sent: its bytes would be an
orphan, and the link may be what there is too little of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog
from kafscale.produce.log.claimants import FoundObject
from kafscale.produce.log.model import HeadObject, Instant, PutFailure, PutObject
from kafscale.produce.log.uploading import Tried
from kafscale.produce.log.writer import PartitionWriter
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.pace import Pace, Spanned, Wait, put_time_limit_s
from kafscale.runtime.clock import Clock
from kafscale.storage.objects import (
    ObjectNotFound,
    ObjectStore,
    PreconditionFailed,
    StoreFull,
    StoreRefused,
    StoreSlow,
    StoreUnavailable,
)

log = structlog.get_logger(__name__)

HEAD_TIMEOUT_S = 5.0


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
