"""One worker process of a front door: serves clients on sockets that its parent has bound.

It registers nothing: the parent has the node id and the registration. It ends on SIGTERM, after a drain, and when its
parent has ended, which it sees as the end of its standard input. Each line on standard input is a question: the answer
to `metrics` is `metrics <bytes>` and the bytes. It writes `ready` when clients may connect.
"""

import asyncio
import mmap
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Final

import msgspec
import structlog
import uvloop
from kafscale.frontdoor.access import open_access
from kafscale.frontdoor.assembly import Means, connect_streams
from kafscale.frontdoor.exchange import REVISION_KINDS, AckedRevision
from kafscale.frontdoor.listeners.tls_contexts import ListenerTls, TlsFilesWrong, open_all
from kafscale.frontdoor.quotas.usage_page import SharedUsage, UsagePage, page_bytes
from kafscale.frontdoor.server import ROLE, BoundListener, Service
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.access import ProcessAccess, authorizer_of
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.dependencies import connect_etcd, open_identity
from kafscale.runtime.grpc_identity import dial_by
from kafscale.runtime.http import exposition
from kafscale.runtime.logs import configure_logs, say_why_it_ends
from kafscale.runtime.loop_watchdog import Watchdog
from kafscale.runtime.memory_tuning import calm_collector
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.process_metrics import watch_loop
from kafscale.runtime.settings_load import USAGE_EXIT_CODE, load_settings
from kafscale.runtime.tracing import open_tracer
from kafscale.storage.coordination import node_of
from kafscale.storage.keys import Keyspace
from kafscale.storage.task_groups import OwnTasks
from kafscale.storage.topics import TopicsView

log = structlog.get_logger("kafscale.frontdoor.worker")

PLAN_VARIABLE: Final = "KAFSCALE_FRONTDOOR_WORKER_PLAN"
READY: Final = b"ready\n"
METRICS: Final = b"metrics"
SLOT_BYTES: Final = 8


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The parent's instructions for a worker, which inherits the descriptors."""

    number: int
    workers: int
    instance: str
    page: int
    sockets: list[tuple[str, str, int]]  # listener, host, descriptor


def make_page(workers: int) -> int:
    """A descriptor, for the workers, of the memory on which they share revisions (`AckedRevision`), and behind them the
    usage of quotas (`UsagePage`)."""
    page = os.memfd_create("kafscale-workers")
    os.ftruncate(page, _revision_bytes(workers) + page_bytes(workers))
    return page


def open_page(page: int, workers: int) -> memoryview:
    """The shared revisions. Their slots are aligned eight bytes, so a reader never sees half of one."""
    return memoryview(mmap.mmap(page, _revision_bytes(workers))).cast("q")


def open_usage(page: int, workers: int) -> UsagePage:
    begin = _revision_bytes(workers)
    return UsagePage(memoryview(mmap.mmap(page, begin + page_bytes(workers)))[begin:], workers)


def _revision_bytes(workers: int) -> int:
    return workers * REVISION_KINDS * SLOT_BYTES


class _Done(Exception):
    """Ends the worker's task group."""


async def _ask_pipe() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


class Worker:
    def __init__(self, settings: FrontdoorSettings, plan: Plan, tls: Mapping[str, ListenerTls]) -> None:
        self._settings = settings
        self._plan = plan
        self._tls = tls
        self._clock = SystemClock()
        self._metrics = Metrics(ROLE)
        self._watch = LoopWatch(self._clock)
        self._stop = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        # Ctrl-C reaches the whole group; the parent decides what it means.
        loop.add_signal_handler(signal.SIGINT, lambda: None)
        self._watch.start()
        with Watchdog(self._watch, self._clock):
            await self._run()

    async def _run(self) -> None:
        settings, plan = self._settings, self._plan
        page, workers, number = plan.page, plan.workers, plan.number
        etcd = connect_etcd(settings)
        keyspace = Keyspace(settings.namespace)
        tracer = open_tracer(ROLE, plan.instance, settings)
        self._metrics.watch("trace_spans_lost_total", lambda: 0 if tracer is None else tracer.delivery.lost)
        try:
            async with OwnTasks() as tasks:
                topics = TopicsView(etcd, keyspace)
                tasks.create_task(topics.run())
                access = ProcessAccess(etcd, keyspace, acls_only=False, tasks=tasks)
                authorization = self._authorization(access)
                means = Means(
                    node_id=node_of(plan.instance),
                    clock=self._clock,
                    watch=self._watch,
                    tasks=tasks,
                    metrics=self._metrics,
                    tracer=tracer,
                    budget=self._budget(),
                    acked=AckedRevision(open_page(page, workers), number),
                    connect=connect_streams(settings, dial_by(open_identity(settings))),
                    authorization=authorization,
                    access=await open_access(settings, access, etcd, self._clock),
                    usage=SharedUsage(open_usage(page, workers), number),
                )
                service = Service(settings, means, etcd=etcd, keyspace=keyspace, topics=topics, tls=self._tls)
                try:
                    await self._serve(service, tasks)
                finally:
                    authorization.close()
                raise _Done
        except* _Done:
            log.info("worker ended")
        finally:
            self._watch.stop()
            await etcd.close()
            if tracer is not None:
                await asyncio.to_thread(tracer.close)

    def _budget(self) -> MemoryBudget:
        """This worker's part of the memory."""
        budget = MemoryBudget(self._settings.memory_bytes // self._plan.workers)
        watch_loop(self._metrics, self._watch, budget)
        return budget

    def _authorization(self, access: ProcessAccess) -> Authorization:
        access.watch(self._metrics)
        grants = self._settings.log_level == "debug"
        return Authorization(authorizer_of(self._settings, access), self._metrics, grants=grants)

    async def _serve(self, service: Service, tasks: asyncio.TaskGroup) -> None:
        try:
            await service.load()
            calm_collector()
            await service.listen(self._doors())
            reader, writer = await _ask_pipe()
            writer.write(READY)
            tasks.create_task(self._answer_parent(reader, writer))
            await self._stop.wait()
            await service.drain()
        finally:
            await service.close()

    def _doors(self) -> list[BoundListener]:
        return [
            BoundListener(name=name, host=host, socket=socket.socket(fileno=descriptor))
            for name, host, descriptor in self._plan.sockets
        ]

    async def _answer_parent(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if line.strip() == METRICS:
                text = await asyncio.to_thread(exposition, self._metrics.read(), None)
                writer.write(METRICS + b" %d\n" % len(text) + text)
                await writer.drain()
        self._stop.set()


async def _main(settings: FrontdoorSettings, plan: Plan, tls: Mapping[str, ListenerTls]) -> None:
    await Worker(settings, plan, tls).run()


def main() -> int:
    settings = load_settings(FrontdoorSettings)
    plan = msgspec.json.decode(os.environ[PLAN_VARIABLE], type=Plan)
    configure_logs(
        level=settings.log_level,
        form=settings.log_format,
        service=ROLE,
        instance=plan.instance,
        worker=str(plan.number),
    )
    try:
        tls = open_all(settings.securities().values())
    except TlsFilesWrong as wrong:
        say_why_it_ends(str(wrong))
        return USAGE_EXIT_CODE
    uvloop.run(_main(settings, plan, tls))
    return 0


if __name__ == "__main__":
    sys.exit(main())
