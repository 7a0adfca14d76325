"""Periodic jobs, each on its own schedule, on one of several instances.

The laws: of the READY instances, the one with the lowest node id works, and jobs are safe if two instances work at
once. A job is due `every_ms` after its last successful run, on any instance. A run has a deadline. A failed run is
logged and retried; it neither ends the process nor delays another job. A run that found work and made no progress has
failed, however it ended.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Metrics
from kafscale.storage.etcd.client import EtcdClient, EtcdError
from kafscale.storage.history.witness import WentBack
from kafscale.storage.job_runs import decode_job_run, encode_job_run
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import LiveView, Registration
from kafscale.storage.objects import StoreError
from kafscale.storage.schema import UnreadableValue

log = structlog.get_logger(__name__)

RETRY_MS: Final = 60_000
"""After a failed run, or the interval of the job if that is shorter."""
DEADLINE_MIN_MS: Final = 600_000


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`run` may be cancelled at any point: the next run continues.

    `stands_still`: whether the last run found work and made no progress, even if it was cancelled.
    """

    name: str
    every_ms: int
    run: Callable[[], Awaitable[None]]
    stands_still: Callable[[], bool] = _never

    @property
    def deadline_ms(self) -> int:
        return max(self.every_ms, DEADLINE_MIN_MS)


class LowestNode:
    """The turn of the ready instance with the lowest node id. `mine`: whether this instance is the active one."""

    def __init__(self, live: LiveView, registration: Registration) -> None:
        self._live = live
        self._registration = registration
        self._changed = asyncio.Event()
        live.subscribe(self._wake)

    @property
    def mine(self) -> bool:
        ready = self._live.ready()
        return bool(ready) and ready[0].id == self._registration.instance.id

    async def changed(self, timeout_s: float | None = None) -> None:
        """Returns when it may have changed, or after the time."""
        changed = self._changed
        try:
            async with asyncio.timeout(timeout_s):
                await changed.wait()
        except TimeoutError:
            return

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Schedule:
    """See the module's law. `run` it for as long as the process lives."""

    def __init__(
        self,
        jobs: Sequence[Job],
        *,
        turn: LowestNode,
        etcd: EtcdClient,
        keys: Keyspace,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._jobs = jobs
        self._turn = turn
        self._etcd = etcd
        self._keys = keys
        self._clock = clock
        self._runs = metrics.counters("runs_total")
        self._failures = metrics.counters("failures_total")
        self._last = metrics.gauges("last_run_timestamp_seconds")
        self._next = metrics.gauges("next_run_timestamp_seconds")
        self._seconds = metrics.histograms("run_seconds")
        self._stalled = metrics.gauges("stalled_runs")
        self._stalled_runs: Counter[str] = Counter()  # in a row
        for counters in (self._runs, self._failures):
            counters.begin(*(job.name for job in jobs))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for job in self._jobs:
                tasks.create_task(self._keep(job), name=job.name)

    async def _keep(self, job: Job) -> None:
        while True:
            if not self._turn.mine:
                # Bounded: after a lost lease the view shows the new registration before the process knows its id.
                await self._turn.changed(min(job.every_ms, RETRY_MS) / 1000)
                continue
            wait_ms = await self._due_in_ms(job)
            self._next.labels(job.name).set((self._clock.wall_ms() + wait_ms) / 1000)
            if wait_ms > 0:
                await self._turn.changed(wait_ms / 1000)
            elif not await self._once(job):
                await self._turn.changed(min(job.every_ms, RETRY_MS) / 1000)

    async def _due_in_ms(self, job: Job) -> int:
        """The time of the last run is in etcd, so a restart or another instance continues the same schedule."""
        now_ms = self._clock.wall_ms()
        try:
            kv = await self._etcd.get(self._keys.job_run(job.name))
            if kv is None:
                await self._ended(job, now_ms)
                return job.every_ms
        except EtcdError as trouble:
            log.warning("etcd unavailable for upkeep", job=job.name, why=str(trouble))
            return min(job.every_ms, RETRY_MS)
        try:
            ended_ms = decode_job_run(kv.value)
        except UnreadableValue as damage:
            # It is only a time: the run that is due now writes it again.
            log.error("record of the last run unreadable", job=job.name, why=str(damage))
            return 0
        # A clock that went back must not delay a job for longer than its interval.
        return min(job.every_ms, ended_ms + job.every_ms - now_ms)

    async def _once(self, job: Job) -> bool:
        began_ms = self._clock.now_ms()
        ended = await self._tried(job)
        stands_still = job.stands_still()
        self._stalled_runs[job.name] = self._stalled_runs[job.name] + 1 if stands_still else 0
        self._stalled.labels(job.name).set(self._stalled_runs[job.name])
        if stands_still:
            log.warning("job stalled", job=job.name)
        if ended and not stands_still:
            self._runs.labels(job.name).inc()
            self._seconds.labels(job.name).observe((self._clock.now_ms() - began_ms) / 1000)
            self._last.labels(job.name).set(self._clock.wall_ms() / 1000)
            return True
        self._failures.labels(job.name).inc()
        return False

    async def _tried(self, job: Job) -> bool:
        """Whether the run succeeded. If it also made progress, the next one is due an interval later."""
        try:
            async with asyncio.timeout(job.deadline_ms / 1000):
                await job.run()
            if not job.stands_still():
                await self._ended(job, self._clock.wall_ms())
        except (EtcdError, StoreError, TimeoutError, WentBack) as trouble:
            log.warning("job failed", job=job.name, why=repr(trouble))
        except Exception:
            # A bug of KafScale. The other jobs continue, and this one is retried like after any failure.
            log.exception("job failed", job=job.name)
        else:
            return True
        return False

    async def _ended(self, job: Job, at_ms: int) -> None:
        await self._etcd.put(self._keys.job_run(job.name), encode_job_run(at_ms))
