"""The life of every service's process: wait for its dependencies, register, serve, drain, leave.

    waiting for etcd and the store -> STARTING -> READY -> DRAINING -> ended

A role that does nothing with the store (`storage/rights`) sends it no request and does not wait for it.

SIGTERM or SIGINT drains a ready process, and ends a process that is not ready yet. An error that waiting cannot cure (a
node id in use, a store that ignores conditions, an address in use) is one log line and exit code 1.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import grpc.aio
import structlog
import uvloop
from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.dependencies import (
    Need,
    connect_etcd,
    etcd_need,
    open_identity,
    open_object_store,
    store_need,
    wait_for,
)
from kafscale.runtime.grpc_identity import Dial, GrpcIdentity, IdentityUnusable, dial_by, plain
from kafscale.runtime.grpc_server import GrpcFace, advertised, advertised_http, names_of, open_server
from kafscale.runtime.health import Health, Phase
from kafscale.runtime.http import HttpFace, serving
from kafscale.runtime.logs import configure_logs
from kafscale.runtime.loop_watchdog import Watchdog
from kafscale.runtime.memory_tuning import MALLOC_ENV, calm_collector
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.process_metrics import watch_process
from kafscale.runtime.service import Runtime, ServiceParts
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.settings_load import load_settings
from kafscale.runtime.shared_cache import CacheUnusable
from kafscale.runtime.stream.server import StreamServer
from kafscale.runtime.tracing import Tracer, open_tracer
from kafscale.runtime.transactions.rights import METRIC, REMEDY, has_rights, needs_rights
from kafscale.storage.etcd.client import EtcdClient, EtcdError
from kafscale.storage.etcd.transport import BadEndpoint
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.keepalive import Keepalive, KeepaliveThread
from kafscale.storage.membership.members import (
    InstanceState,
    Listener,
    NodeIdTaken,
    Registration,
    RegistrationRefused,
)
from kafscale.storage.objects import ObjectStore, StoreUnsuitable
from kafscale.storage.rights.objects import StoreUse, use_of
from kafscale.storage.task_groups import OwnTasks

__all__ = ["MALLOC_ENV", "Runtime", "ServiceParts", "run_service"]

S = TypeVar("S", bound=ServiceSettings)
T = TypeVar("T")
Build = Callable[[Runtime[S]], AbstractAsyncContextManager[ServiceParts]]

log = structlog.get_logger("kafscale.process")

FAILED_EXIT_CODE: Final = 1
LEAVE_TIMEOUT_S: Final = 3.0


class CannotServe(Exception):
    """Waiting cannot cure this error. The text is for the operator."""


class _Leaving(Exception):
    """Ends the task group of a process that has drained."""


def run_service(
    role: str, settings: S | type[S], build: Build[S], *, listeners: Sequence[Listener] = ()
) -> int:
    """Runs until SIGTERM or SIGINT; the exit code. `listeners` are advertised to Kafka clients.

    A settings class is read from the environment and the flags; invalid settings end the process with code 2.
    """
    if isinstance(settings, type):
        settings = load_settings(settings)
    ids = configure_logs(level=settings.log_level, form=settings.log_format, service=role)
    process = Process(role, settings, build, listeners, log_ids=ids, loaded=calm_collector)
    return uvloop.run(_until_signalled(process))


async def _until_signalled(process: "Process[S]") -> int:
    # A supervisor that orders the drains itself starts its children with SIGINT ignored.
    handled = [signal.SIGTERM] + [signal.SIGINT] * (signal.getsignal(signal.SIGINT) is not signal.SIG_IGN)
    main = asyncio.current_task()
    assert main is not None, "a coroutine runs in a task"
    for number in handled:
        asyncio.get_running_loop().add_signal_handler(number, process.signalled, main)
    with Watchdog(process.watch, process.clock):
        return await process.run()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ways of a process to what is outside of it. The defaults are those of a real process; a simulated one has
    others."""

    connect_etcd: Callable[[ServiceSettings], EtcdClient] = connect_etcd
    open_store: Callable[[ServiceSettings, StoreUse], ObjectStore] = open_object_store
    grpc_server: Callable[[], grpc.aio.Server] = open_server
    dial: Dial = plain
    """Without a certificate."""
    keepalive: type[Keepalive] = KeepaliveThread


class Process(Generic[S]):
    """A service on the running loop. Changes nothing of the operating system's process: `run_service` does."""

    def __init__(
        self,
        role: str,
        settings: S,
        build: Build[S],
        listeners: Sequence[Listener],
        *,
        log_ids: dict[str, str],
        ports: Ports | None = None,
        loaded: Callable[[], None] = lambda: None,
    ) -> None:
        """`loaded` is called once, before the process is READY. The process writes its id into `log_ids`."""
        self._log_ids = log_ids
        self._ports = ports or Ports()
        self._loaded = loaded
        self._role = role
        self._settings = settings
        self._build = build
        self._listeners = listeners
        self.clock = SystemClock()
        self.watch = LoopWatch(self.clock)
        self._health = Health(role)
        self._metrics = Metrics(role)
        self._keyspace = Keyspace(settings.namespace)
        self._face = GrpcFace(
            health=self._health,
            clock=self.clock,
            watch=self.watch,
            memory_bytes=settings.memory_bytes,
            metrics=self._metrics,
            server=self._ports.grpc_server,
        )
        self._http = HttpFace(health=self._health, watch=self.watch, clock=self.clock, metrics=self._metrics)
        self._http.names = names_of(settings.grpc_listen, settings.grpc_advertise)
        self._stop = asyncio.Event()
        self._offered = False
        self._identity: GrpcIdentity | None = None

    async def run(self) -> int:
        """Until `signalled`; the exit code."""
        exit_code = 0
        try:
            async with AsyncExitStack() as stack:
                await self._live(stack)
        except* (
            CannotServe,
            NodeIdTaken,
            RegistrationRefused,
            StoreUnsuitable,
            BadEndpoint,
            CacheUnusable,
        ) as group:
            exit_code = FAILED_EXIT_CODE
            for error in leaves(group):
                log.error("cannot serve", why=str(error))
        except* asyncio.CancelledError:
            if not self._stop.is_set():
                raise
            log.info("process stopped before it was ready")
        except* Exception as group:
            exit_code = FAILED_EXIT_CODE
            log.error("process failed", exc_info=group)
        return exit_code

    def signalled(self, main: asyncio.Task[int]) -> None:
        """`main` runs the process. The first signal drains. A second one, or one before the process is offered to
        others, ends it at once."""
        if self._stop.is_set() or not self._offered:
            main.cancel()
        self._stop.set()

    async def _live(self, stack: AsyncExitStack) -> None:
        self.watch.start()
        stack.callback(self.watch.stop)
        http_address = await self._listen(stack)
        etcd, store = await self._outside(stack)
        port = await self._bind(stack)
        registration = await self._wait(self._registering(etcd, http_address, port))
        try:
            self._log_ids["instance"] = registration.instance.id
            await self._health.enter(Phase.STARTING)
            await self._serve(etcd, store, registration)
        finally:
            await leave(registration)

    async def _listen(self, stack: AsyncExitStack) -> str:
        try:
            address = await stack.enter_async_context(serving(self._http, self._settings.http_listen))
        except (OSError, ValueError) as error:
            raise CannotServe(f"KAFSCALE_HTTP_LISTEN={self._settings.http_listen}: {error}") from error
        log.info("http server started", http=address)
        return address

    async def _outside(self, stack: AsyncExitStack) -> tuple[EtcdClient, ObjectStore]:
        try:
            etcd = self._ports.connect_etcd(self._settings)
        except OSError as error:
            raise CannotServe(f"the certificate for etcd: {error}") from error
        stack.push_async_callback(etcd.close)
        await self._wait(etcd_need(self._settings, etcd, self._keyspace))
        await self._try_rights_of_transactions(etcd)
        use = use_of(self._role)
        store = self._ports.open_store(self._settings, use)
        stack.push_async_callback(store.close)
        if use is not StoreUse.NONE:
            await self._wait(store_need(self._settings, store))
        return etcd, store

    async def _try_rights_of_transactions(self, etcd: EtcdClient) -> None:
        """Turns transactions off in this process if its user in etcd lacks rights that they need."""
        if not self._settings.transactions or not needs_rights(self._role):
            return
        granted = await self._wait(
            Need(
                what="etcd to say what its user may read",
                remedy="look at etcd: it answered a moment ago",
                probe=lambda: has_rights(etcd, self._keyspace, self._role),
                not_yet=(EtcdError,),
            )
        )
        self._metrics.watch(METRIC, lambda: int(not granted))
        if not granted:
            log.error(
                "transactions off: the user in etcd lacks rights", user=self._settings.etcd_user, do=REMEDY
            )
            self._settings = self._settings.model_copy(update={"transactions": False})

    async def _bind(self, stack: AsyncExitStack) -> int:
        try:
            self._identity = open_identity(self._settings)
            port = await self._face.start(self._settings.grpc_listen, self._identity)
        except IdentityUnusable as error:
            raise CannotServe(f"the certificate for gRPC: {error}") from error
        except (RuntimeError, ValueError) as error:
            raise CannotServe(f"KAFSCALE_GRPC_LISTEN={self._settings.grpc_listen}: {error}") from error
        stack.push_async_callback(self._face.stop)
        return port

    def _registering(self, etcd: EtcdClient, http_address: str, port: int) -> Need[Registration]:
        settings = self._settings
        address = advertised(settings.grpc_listen, settings.grpc_advertise, port)
        return Need(
            what="registration in etcd",
            remedy="look at etcd: it answered a moment ago",
            probe=lambda: Registration.join(
                etcd,
                self._keyspace,
                role=self._role,
                address=address,
                tls=self._identity is not None,
                node_id=settings.node_id,
                listeners=self._listeners,
                rack=settings.rack,
                keepalive=self._ports.keepalive,
                http_address=advertised_http(http_address, address),
                trouble=lambda error: log.warning("registration failed", why=str(error)),
            ),
            not_yet=(EtcdError,),
        )

    async def _wait(self, need: Need[T]) -> T:
        return await wait_for(need, clock=self.clock, say=self._health.say)

    async def _serve(self, etcd: EtcdClient, store: ObjectStore, registration: Registration) -> None:
        """Serves until a signal, then drains. All tasks of the service end here."""
        try:
            async with OwnTasks() as tasks, self._tracing(registration) as tracer:
                tasks.create_task(registration.run())
                runtime = Runtime(
                    role=self._role,
                    settings=self._settings,
                    etcd=etcd,
                    keyspace=self._keyspace,
                    store=store,
                    registration=registration,
                    metrics=self._metrics,
                    task_group=tasks,
                    clock=self.clock,
                    watch=self.watch,
                    tracer=tracer,
                    dial=dial_by(self._identity, self._ports.dial),
                )
                watch_process(
                    self._metrics,
                    watch=self.watch,
                    budget=runtime.budget,
                    registration=registration,
                    streams=self._face.streams,
                    tracer=tracer,
                    identity=self._identity,
                )
                try:
                    async with self._build(runtime) as parts:
                        if runtime.settings.authorizer != "none":
                            self._health.say("waiting for the ACLs in etcd, all of which must be readable")
                            await runtime.access_ready()
                        await self._until_stopped(parts, registration, tasks, tracer)
                finally:
                    runtime.close()
                raise _Leaving
        except* _Leaving:
            await self._health.enter(Phase.STOPPED)

    async def _until_stopped(
        self, parts: ServiceParts, registration: Registration, tasks: OwnTasks, tracer: Tracer | None
    ) -> None:
        self._http.worker_metrics = parts.worker_metrics
        self._face.offer(parts, tracer)
        await parts.before_ready()
        self._loaded()
        # From here on other processes may see this one as READY: a signal must drain.
        self._offered = True
        later = parts.announce_after_s > 0
        await self._wait(
            Need(
                what="etcd to take the state READY",
                remedy="look at etcd: it answered a moment ago",
                probe=lambda: registration.set_state(InstanceState.READY, unannounced=later),
                not_yet=(EtcdError,),
            )
        )
        if later:
            tasks.create_task(registration.announce(parts.announce_after_s))
        await self._health.enter(Phase.READY)
        instance = registration.instance
        log.info("ready", grpc=instance.address, http=instance.http_address)
        await self._stop.wait()
        await self._health.enter(Phase.DRAINING)
        await drain(parts, self._face.streams, registration, self._settings.drain_timeout_ms)

    @asynccontextmanager
    async def _tracing(self, registration: Registration) -> AsyncIterator[Tracer | None]:
        tracer = open_tracer(self._role, registration.instance.id, self._settings)
        try:
            yield tracer
        finally:
            if tracer is not None:
                await asyncio.to_thread(tracer.close)


async def drain(
    parts: ServiceParts, streams: StreamServer, registration: Registration, timeout_ms: int
) -> None:
    """Publishes DRAINING, lets the service hand over, then refuses new requests and answers the open ones.

    The drain ends after `timeout_ms`, even if requests are still open.
    """
    log.info("draining", open_requests=streams.open_requests, timeout_ms=timeout_ms)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            try:
                await registration.set_state(InstanceState.DRAINING)
            except EtcdError as error:
                log.warning("draining state unpublished", why=str(error))
            await parts.drain()
            streams.refuse_new()
            await streams.until_idle()
    except TimeoutError:
        streams.refuse_new()
        log.warning("drain timed out", open_requests=streams.open_requests, timeout_ms=timeout_ms)
    else:
        log.info("drained")
    streams.leave()


async def leave(registration: Registration) -> None:
    """Removes the registration. If etcd does not answer, the registration expires with its lease."""
    try:
        async with asyncio.timeout(LEAVE_TIMEOUT_S):
            await registration.leave()
    except (EtcdError, TimeoutError) as error:
        log.warning("registration left to expire", why=str(error))


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """All exceptions in a nested group."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
