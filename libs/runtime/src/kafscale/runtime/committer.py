"""Group commit: many independent compare-and-swaps travel to etcd in one request.

Each job is a nested transaction over the keys of one partition or group, so a fenced job fails alone. The laws: each
job gets exactly one answer, and it is definite. A request whose outcome is unknown is sent again, job for job, until
etcd gives a definite answer. Jobs that succeed take the revision of the whole request, because etcd's nested revisions
are unreliable (etcd #14490). A request never holds two jobs that put the same key (a claim may follow a commit that is
still queued), because etcd would refuse the whole request. Two requests in flight may hold jobs of one key: a caller
that needs them in order waits for the first.

With a `history`, each request compares that etcd holds a witness of it. An etcd that went back applies nothing of the
request, and its jobs wait, also those whose outcome is unknown: an older etcd cannot say what became of them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Distribution, Metrics, Tally
from kafscale.runtime.tracing import CURRENT_SPAN, Span, start_child
from kafscale.storage.backoff import Backoff
from kafscale.storage.etcd.client import (
    Compare,
    Delete,
    EtcdClient,
    EtcdRejected,
    EtcdUnknown,
    Put,
    Range,
    Txn,
    TxnResult,
    UnknownKind,
)
from kafscale.storage.history.history import History

log = structlog.get_logger(__name__)

JOBS_PER_REQUEST_MAX = 100
REQUEST_BYTES_MAX = 1 << 20
OPERATIONS_MAX = 128
"""etcd's default of --max-txn-ops: the number of jobs plus the width of the widest job."""
REQUESTS_IN_FLIGHT_MAX = 4
RETRY_FIRST_MS = 20
TRANSACTION = "commit txn"
"""The name of a job's span, from its submission to etcd's definite answer."""
RETRY_MAX_MS = 1_000
TRY_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """etcd's definite answer to one job."""

    result: TxnResult  # of the nested transaction
    revision: int  # of the whole request: the mod_revision of every key a winner put
    ambiguous: bool  # an earlier try of the same bytes had an unknown outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """etcd refused the request before proposing it: nothing was written. The cause is a bug here or missing rights."""

    reason: str


Answer = Settled | Refused


class CommitMetrics:
    """The metrics of a service that commits."""

    def __init__(self, metrics: Metrics) -> None:
        self.seconds: Distribution = metrics.histogram("commit_seconds")
        self.jobs: Distribution = metrics.histogram("commit_jobs")
        self.unknown: Tally = metrics.counter("commits_unknown_total")


@dataclass(frozen=True, slots=True)
class _Job:
    key: bytes  # the key that it puts; a request may write a key only once
    txn: Txn
    bytes: int
    width: int  # operations, as etcd counts them
    submitted_ms: int
    done: Callable[[Answer], None]
    span: Span | None


class Committer:
    """Owns the requests in flight. `submit` is synchronous; `run` holds the workers."""

    def __init__(
        self, etcd: EtcdClient, *, clock: Clock, metrics: CommitMetrics, history: History | None = None
    ) -> None:
        self._etcd = etcd
        self._history = history
        self._clock = clock
        self._metrics = metrics
        self._waiting: deque[_Job] = deque()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._unknown_since: dict[int, tuple[int, UnknownKind]] = {}  # worker → when, kind

    def submit(
        self,
        txn: Txn,
        done: Callable[[Answer], None],
        *,
        key: bytes | None = None,
        span: Span | None = None,
    ) -> None:
        """Queues a job. `key` is the key that it puts, by default the key of its first compare.

        The job ends `span`, by default a child of the current request's span if that request is traced.
        The loop calls `done` once, with the definite answer.
        """
        key = txn.compare[0].key if key is None else key
        if span is None and CURRENT_SPAN.get() is not None:
            span = start_child(TRANSACTION)
        self._waiting.append(_Job(key, txn, _size(txn), _width(txn), self._clock.now_ms(), done, span))
        self._wake()

    async def ask(self, txn: Txn, *, key: bytes | None = None) -> Answer:
        """Submits a job and waits for its answer. The job goes on if the caller is cancelled."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.submit(txn, lambda settled: None if answer.done() else answer.set_result(settled), key=key)
        return await answer

    @property
    def backlog(self) -> int:
        return len(self._waiting)

    @property
    def has_unknown(self) -> bool:
        return bool(self._unknown_since)

    def unresolved_ms(self) -> int:
        """Time since the outcome of the oldest unresolved request became unknown; 0 if there is none."""
        if not self._unknown_since:
            return 0
        return self._clock.now_ms() - min(since for since, _ in self._unknown_since.values())

    def out_of_space(self) -> bool:
        """True while etcd answers NOSPACE: the outcome of commits is unknown, and callers should make no new ones."""
        return any(kind is UnknownKind.NOSPACE for _, kind in self._unknown_since.values())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for worker in range(REQUESTS_IN_FLIGHT_MAX):
                workers.create_task(self._work(worker), name=f"commit-{worker}")

    async def _work(self, worker: int) -> None:
        backoff = Backoff(first_ms=RETRY_FIRST_MS, cap_ms=RETRY_MAX_MS)
        while True:
            await self._serve(worker, backoff)

    async def _serve(self, worker: int, backoff: Backoff) -> None:
        """One request. An idle worker holds none of its jobs: each holds a partition or a group."""
        jobs = await self._take()
        answers = await self._send(worker, jobs, backoff)
        now_ms = self._clock.now_ms()
        for job, answer in zip(jobs, answers, strict=True):
            self._metrics.seconds.observe((now_ms - job.submitted_ms) / 1000)
            if job.span is not None:
                job.span.end()
            job.done(answer)

    async def _take(self) -> list[_Job]:
        while not self._waiting:
            idle = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle
        jobs: list[_Job] = []
        keys: set[bytes] = set()
        room = REQUEST_BYTES_MAX
        widest = 0
        while self._waiting and len(jobs) < JOBS_PER_REQUEST_MAX:
            job = self._waiting[0]
            widest = max(widest, job.width)
            if job.key in keys or (jobs and (job.bytes > room or len(jobs) + 1 + widest > OPERATIONS_MAX)):
                break
            room -= job.bytes
            keys.add(job.key)
            jobs.append(self._waiting.popleft())
        if self._waiting:
            self._wake()
        return jobs

    def _wake(self) -> None:
        while self._idle:
            idle = self._idle.popleft()
            if not idle.done():
                idle.set_result(None)
                return

    async def _send(self, worker: int, jobs: list[_Job], backoff: Backoff) -> list[Answer]:
        txns = tuple(job.txn for job in jobs)
        self._metrics.jobs.observe(len(jobs))
        for job in jobs:
            if job.span is not None:
                job.span.event("sent")
        while True:
            request = Txn(compare=await self._fence(), success=txns)
            try:
                result = await self._etcd.txn(request, timeout_s=TRY_TIMEOUT_S)
            except EtcdUnknown as unknown:
                self._note_unknown(worker, unknown.kind, len(jobs))
            except EtcdRejected as rejected:
                if worker not in self._unknown_since:
                    log.error("commit request refused", jobs=len(jobs), why=str(rejected))
                    return [Refused(reason=str(rejected)) for _ in jobs]
                # An earlier try may have been applied: only a definite answer to the same bytes settles it.
                self._note_unknown(worker, UnknownKind.OTHER, len(jobs))
            else:
                if result.succeeded:
                    ambiguous = self._unknown_since.pop(worker, None) is not None
                    if ambiguous:
                        backoff.reset()
                    return [_settle(nested, result.revision, ambiguous) for nested in result.responses]
                assert self._history is not None, "only the fence is compared"
                self._history.missed()
            await backoff.sleep()

    async def _fence(self) -> tuple[Compare, ...]:
        """Waits while etcd's history is not the one that this process knows."""
        if self._history is None:
            return ()
        while (fence := self._history.fence) is None:
            await self._history.until_good()
        return (fence,)

    def _note_unknown(self, worker: int, kind: UnknownKind, jobs: int) -> None:
        self._metrics.unknown.inc()
        known = self._unknown_since.get(worker)
        since_ms = known[0] if known else self._clock.now_ms()
        if known is None:
            log.warning("commit outcome unknown, retrying", kind=kind.value, jobs=jobs)
        self._unknown_since[worker] = (since_ms, kind)


def _settle(nested: object, revision: int, ambiguous: bool) -> Settled:
    assert isinstance(nested, TxnResult), nested
    return Settled(result=nested, revision=revision, ambiguous=ambiguous)


def _width(txn: Txn) -> int:
    """As etcd counts: the longest list of the transaction, and that of the widest transaction in it."""
    nested = [_width(op) for op in (*txn.success, *txn.failure) if isinstance(op, Txn)]
    return max(len(txn.compare), len(txn.success), len(txn.failure)) + max(nested, default=0)


def _size(txn: Txn) -> int:
    """Bytes of one nested transaction, a little more than its protobuf encoding."""
    total = 64
    for compare in txn.compare:
        total += 32 + len(compare.key)
    for op in (*txn.success, *txn.failure):
        match op:
            case Put():
                total += 24 + len(op.key) + len(op.value)
            case Range() | Delete():
                total += 24 + len(op.key)
            case Txn():
                total += _size(op)
    return total
