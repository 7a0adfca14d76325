"""The PUT of a bundle, until its outcome is known.

A bundle has a fresh name, so an object at that name is an earlier PUT of the same bytes. A PUT whose outcome is unknown
is sent again. After GIVE_UP_MS of failed requests the bundle is given up. As for segments, a wait for a place while the
store answers others is no failure, nor is a PUT whose bytes moved until its time was over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog
from kafscale.log.bundle import BuiltBundle
from kafscale.produce.bundles.origin import Origin
from kafscale.produce.log.flush import NEVER
from kafscale.produce.log.model import StepDownReason
from kafscale.produce.metrics import ProduceMetrics
from kafscale.produce.pace import Pace, Spanned, Wait, put_time_limit_s
from kafscale.runtime.clock import Clock
from kafscale.storage.backoff import Backoff
from kafscale.storage.keys import META_ATTEMPT, BundleId, Keyspace
from kafscale.storage.objects import (
    IfAbsent,
    ObjectStore,
    PreconditionFailed,
    StoreFull,
    StoreRefused,
    StoreSlow,
    StoreUnavailable,
)

log = structlog.get_logger(__name__)

GIVE_UP_MS: Final = 60_000
HEAD_TIMEOUT_S: Final = 5.0
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
