"""An event loop for many processes at once, in virtual time: each callback belongs to an instance, and an instance can
be killed, paused and resumed.

Who runs owns what it starts: a callback belongs to the instance during whose callback it was scheduled, and the step of
a task to the instance that created the task, whoever wakes it. Laws: no callback of a killed instance runs again, not
even a `finally`, as after a SIGKILL; those of a paused one run after it is resumed, in their order, as after a SIGCONT.
Work for threads is done on the loop, a turn after it is asked for. Tasks and futures are hashed in the order in which
they were made, so that sets of them have the same order in each run. TCP connections are made in the network in memory,
from and to the node with the name of the instance. So a run depends on nothing but the program, its seeds, and the hash
seed of Python.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

from kafscale.testkit.clock import Jumping, VirtualLoop
from kafscale.testkit.memory_grpc.network import Network
from kafscale.testkit.memory_tcp import Factory, MemoryListener, MemorySocket, MemoryTransport, connect

T = TypeVar("T")
WALL_BEGINS_NS: Final = 1_700_000_000 * 1_000_000_000
Callback = Callable[..., object]


@dataclass(eq=False)
class Instance:
    """A process of the simulation."""

    name: str
    is_killed: bool = False
    is_paused: bool = False
    skew_ms: int = 0
    """By which its wall clock is ahead."""
    held: list[Callable[[], None]] = field(default_factory=list)
    """What is to run after the pause."""


class _Numbered:
    """Its hash is not its address."""

    _count: ClassVar = itertools.count()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._number = next(self._count)
        super().__init__(*args, **kwargs)

    def __hash__(self) -> int:
        return self._number


class NumberedTask(_Numbered, asyncio.Task[T]):
    def __init__(self, coro: Coroutine[Any, Any, T], *, owner: Instance | None, **kwargs: Any) -> None:
        self.owner = owner  # its first step is scheduled by the next line
        super().__init__(coro, **kwargs)


class NumberedFuture(_Numbered, asyncio.Future[T]):
    pass


class _Blind(Jumping):
    """There are no sockets."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return self.jump(timeout)


class InstanceLoop(VirtualLoop):
    selector_kind = _Blind

    def __init__(self, network: Network | None = None) -> None:
        """`network`: of TCP connections."""
        self.network = network
        self.current: Instance | None = None
        """Whose callback runs; None: the simulation's own."""
        self._owners: dict[asyncio.Task[Any], Instance] = {}
        """Of tasks that are not done. Those of killed instances stay, because a task that is freed runs code."""
        super().__init__()
        self.set_task_factory(self._task)  # type: ignore[arg-type]

    @contextmanager
    def running(self, instance: Instance | None) -> Iterator[None]:
        """What is scheduled in this context belongs to the instance."""
        before, self.current = self.current, instance
        try:
            yield
        finally:
            self.current = before

    def run_as(self, instance: Instance, work: Callable[[], object]) -> None:
        """Now, in the name of the instance: after its pause, if it is paused, and never if it is killed."""
        if instance.is_paused:
            instance.held.append(lambda: self.run_as(instance, work))
        elif not instance.is_killed:
            before, self.current = self.current, instance
            try:
                work()
            finally:
                self.current = before

    def kill(self, instance: Instance) -> None:
        instance.is_killed = True
        instance.is_paused = False
        instance.held.clear()
        for task in [task for task, owner in self._owners.items() if owner is instance]:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            asyncio.tasks._unregister_task(task)  # who ends the loop does not wait for it

    def pause(self, instance: Instance) -> None:
        instance.is_paused = not instance.is_killed

    def resume(self, instance: Instance) -> None:
        instance.is_paused = False
        held, instance.held = instance.held, []
        for work in held:
            super().call_soon(work)

    # -- what asyncio calls --------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callback, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        return super().call_soon(self._owned(callback), *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callback, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when, self._owned(callback), *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callback, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """There are no threads."""
        return self.call_soon(callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return NumberedFuture(loop=self)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Factory,
        host: str | None = None,
        port: int | None = None,
        *,
        sock: Any = None,
        **_options: object,
    ) -> MemoryListener:
        """`sock`: a MemorySocket."""
        network, node = self._place()
        socket = MemorySocket(host or node, port or 0) if sock is None else sock
        return MemoryListener(network, node, socket, protocol_factory)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Factory, host: str, port: int, **_options: object
    ) -> tuple[MemoryTransport, asyncio.BaseProtocol]:
        network, node = self._place()
        transport = await connect(network, node, f"{host}:{port}", protocol_factory)
        return transport, transport.get_protocol()

    def _place(self) -> tuple[Network, str]:
        assert self.network is not None, "there is a network"
        assert self.current is not None, "an instance asks"
        return self.network, self.current.name

    def run_in_executor(  # type: ignore[override]
        self, _executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  (as an executor does)
                done.set_exception(error)

        self.call_soon(work)
        return done

    def _task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], context: Context | None = None
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = NumberedTask(coro, owner=self.current, loop=loop, context=context)
        if self.current is not None:
            self._owners[task] = self.current
            task.add_done_callback(self._owners_forget)
        return task

    def _owners_forget(self, task: asyncio.Task[Any]) -> None:
        self._owners.pop(task, None)

    def _owned(self, callback: Callback) -> Callback:
        task = getattr(callback, "__self__", None)
        instance = self.current
        if isinstance(task, NumberedTask):
            instance = task.owner
        if instance is None:
            return callback
        owner = instance

        def run(*args: Any) -> None:
            self.run_as(owner, partial(callback, *args) if args else callback)

        return run


class SeededMachine:
    """Time of the loop, and chance from a seed, for `kafscale.storage.system`."""

    def __init__(self, loop: InstanceLoop, seed: int) -> None:
        self._loop = loop
        self._random = random.Random(seed)

    def monotonic_ns(self) -> int:
        return round(self._loop.time() * 1e9)

    def wall_ns(self) -> int:
        current = self._loop.current
        skew_ms = 0 if current is None else current.skew_ms
        return WALL_BEGINS_NS + self.monotonic_ns() + skew_ms * 1_000_000

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)
