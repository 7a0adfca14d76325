"""Several worker processes on the same ports, under one parent that holds the registration.

Each worker has its own sockets on the shared ports. The parent binds them with SO_REUSEPORT, so the kernel spreads the
connections, and a restarted worker accepts the connections that wait in its queue. Workers are spawned, never forked:
gRPC's threads do not survive a fork. A worker that dies is started again, with a longer delay each time. On a stop a
worker has the time of the drain, and then it is killed.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import structlog
from kafscale.frontdoor.access import decoy_key
from kafscale.frontdoor.quotas.usage_page import UsagePage
from kafscale.frontdoor.server import ROLE, BoundListener, usage_peers
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.frontdoor.worker import METRICS, PLAN_VARIABLE, READY, Plan, make_page, open_usage
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.process import CannotServe, Runtime, ServiceParts
from kafscale.runtime.stream.inbound import Handler
from kafscale.storage.access_keys import AccessKeys
from kafscale.storage.backoff import Backoff
from kafscale.storage.decoy_key import DecoyKeyDamaged
from kafscale.storage.membership.members import LiveView

log = structlog.get_logger("kafscale.frontdoor.workers")

MODULE: Final = "kafscale.frontdoor.worker"
SCRAPE_TIMEOUT_S: Final = 2.0
KILL_AFTER_S: Final = 5.0
PIPE_BYTES_MAX: Final = 8 << 20


class WorkerProcess:
    """One worker, over all its lives."""

    def __init__(self, plan: Plan, argv: Sequence[str]) -> None:
        self.plan = plan
        self.ready = asyncio.Event()
        self.deaths = 0
        self._argv = argv
        self._process: asyncio.subprocess.Process | None = None
        self._stopping = False
        self._asking = asyncio.Lock()

    async def run(self) -> None:
        """Until stop()."""
        backoff = Backoff(first_ms=100, cap_ms=5_000)
        while not self._stopping:
            process = self._process = await self._spawn()
            if await self._says_ready(process):
                backoff.reset()
            code = await process.wait()
            self.ready.clear()
            if self._stopping:
                return
            self.deaths += 1
            log.error("worker died", worker=self.plan.number, exit_code=code)
            await asyncio.sleep(backoff.next_s())

    async def _spawn(self) -> asyncio.subprocess.Process:
        plan = msgspec.json.encode(self.plan).decode()
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            MODULE,
            *self._argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=[self.plan.page, *(descriptor for _, _, descriptor in self.plan.sockets)],
            env={**os.environ, PLAN_VARIABLE: plan},
            limit=PIPE_BYTES_MAX,
        )

    async def _says_ready(self, process: asyncio.subprocess.Process) -> bool:
        assert process.stdout is not None
        if await process.stdout.readline() != READY:
            return False
        self.ready.set()
        return True

    async def metrics(self) -> bytes | None:
        """What the worker's /metrics would be; None when it does not answer."""
        process = self._process
        if process is None or not self.ready.is_set():
            return None
        assert process.stdin is not None
        assert process.stdout is not None
        async with self._asking:
            try:
                async with asyncio.timeout(SCRAPE_TIMEOUT_S):
                    process.stdin.write(METRICS + b"\n")
                    head = await process.stdout.readline()
                    return await process.stdout.readexactly(int(head.split()[1]))
            except (TimeoutError, OSError, asyncio.IncompleteReadError, IndexError) as error:
                # Its pipe is out of step from here on, so the worker is restarted.
                log.error("worker unresponsive", worker=self.plan.number, reason=repr(error))
                self._kill()
                return None

    async def stop(self, timeout_s: float) -> None:
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(timeout_s):
                await process.wait()
        except TimeoutError:
            log.error("worker killed", worker=self.plan.number)
            self._kill()
            await process.wait()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


class Workers:
    def __init__(
        self,
        *,
        instance: str,
        sockets: Sequence[Sequence[tuple[str, str, int]]],
        argv: Sequence[str],
        metrics: Metrics,
    ) -> None:
        """`sockets`: for each worker the listeners' names, hosts and descriptors."""
        page = self.page = make_page(len(sockets))
        self._workers = [
            WorkerProcess(
                Plan(number=number, workers=len(sockets), instance=instance, page=page, sockets=list(own)),
                argv,
            )
            for number, own in enumerate(sockets)
        ]
        metrics.watch("workers_ready", lambda: sum(worker.ready.is_set() for worker in self._workers))
        metrics.watch("worker_deaths_total", lambda: sum(worker.deaths for worker in self._workers))

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Returns when every worker serves."""
        for worker in self._workers:
            tasks.create_task(worker.run())
        for worker in self._workers:
            await worker.ready.wait()

    async def expositions(self) -> Mapping[str, bytes]:
        texts = await asyncio.gather(*(worker.metrics() for worker in self._workers))
        return {str(number): text for number, text in enumerate(texts) if text is not None}

    async def stop(self, timeout_s: float) -> None:
        await asyncio.gather(*(worker.stop(timeout_s) for worker in self._workers))

    async def close(self) -> None:
        await self.stop(KILL_AFTER_S)
        os.close(self.page)


async def _check_decoy_key(runtime: Runtime[FrontdoorSettings]) -> None:
    """Each worker reads it, but the process that ends says why. Raises CannotServe."""
    if runtime.settings.has_logins:
        try:
            await decoy_key(runtime.etcd, AccessKeys(runtime.keyspace), runtime.clock)
        except DecoyKeyDamaged as damaged:
            raise CannotServe(str(damaged)) from damaged


def _usage_peers(runtime: Runtime[FrontdoorSettings], page: UsagePage) -> dict[int, Handler]:
    """Only the parent speaks with other front doors."""
    front_doors = LiveView(runtime.etcd, runtime.keyspace, ROLE)
    runtime.task_group.create_task(front_doors.run())
    return usage_peers(runtime, front_doors, page)


@asynccontextmanager
async def build_workers(
    runtime: Runtime[FrontdoorSettings], *, doors: Sequence[Sequence[BoundListener]], argv: Sequence[str]
) -> AsyncIterator[ServiceParts]:
    workers = Workers(
        instance=runtime.registration.instance.id,
        sockets=[[(door.name, door.host, door.socket.fileno()) for door in own] for own in doors],
        argv=argv,
        metrics=runtime.metrics,
    )

    in_cluster = runtime.settings.quota_scope == "cluster"
    peers = _usage_peers(runtime, open_usage(workers.page, len(doors))) if in_cluster else {}

    async def before_ready() -> None:
        await _check_decoy_key(runtime)
        await workers.start(runtime.task_group)

    async def drain() -> None:
        await workers.stop(runtime.settings.drain_timeout_ms / 1000 + KILL_AFTER_S)

    try:
        yield ServiceParts(
            before_ready=before_ready,
            drain=drain,
            worker_metrics=workers.expositions,
            peers=peers,
            announce_after_s=runtime.settings.frontdoor_announce_after_ms / 1000,
        )
    finally:
        await workers.close()
