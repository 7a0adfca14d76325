"""An event loop for many processes at once, in virtual time: each callback belongs to an instance, and an instance can
be killed, paused and resumed.

Who runs owns what it starts: a callback belongs to the instance during whose callback it was scheduled, and the step of
a task to the instance that created the task, whoever wakes it. Laws: no callback of a killed instance runs again, not
even a `finally`, as after a SIGKILL; those of a paused one run after it is resumed, in their order, as after a SIGCONT.
Work for threads is done on the loop, a turn after it is asked for, or later (`thread_s`).
Tasks and futures are hashed in the order in which they were made, so that sets of them have the same order in each run.
TCP connections are made in the network in memory, from and to the node with the name of the instance. So a run depends
on nothing but the program, its seeds, and the hash seed of Python.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, ClassVar, Final, TypeVar
from weakref import WeakKeyDictionary

from kafscale.testkit.clock import VirtualLoop
from kafscale.testkit.memory_grpc.network import Network
from kafscale.testkit.memory_tcp import Factory, MemoryListener, MemorySocket, MemoryTransport, connect

T = TypeVar("T")
WALL_BEGINS_NS: Final = 1_700_000_000 * 1_000_000_000
BEGINS_S: Final = 1_000.0
"""Time of the loop."""
CANCELLED_MIN: Final = 100
"""So many cancelled timers may stay in the heap."""
TASKS_MIN: Final = 100
Callback = Callable[..., object]


@dataclass(eq=False)
class Instance:
    """A process of the simulation."""

    name: str
    is_killed: bool = False
    is_paused: bool = False
    skew_ms: int = 0
    """By which its wall clock is ahead."""
    held: list[Handle] = field(default_factory=list)
    """What is to run after the pause."""
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)
    """That it has created; those that are done leave now and then."""
    _tasks_max: int = TASKS_MIN

    def add(self, task: asyncio.Task[Any]) -> None:
        self.tasks.append(task)
        if len(self.tasks) > self._tasks_max:
            self.tasks = [each for each in self.tasks if not each.done()]
            self._tasks_max = max(TASKS_MIN, 2 * len(self.tasks))


class Handle:
    """A callback that is due at once, or at its time. What asyncio's handles are, and its owner."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "loop", "owner", "when_s")

    def __init__(
        self,
        loop: InstanceLoop | None,
        owner: Instance | None,
        callback: Callback,
        args: tuple[Any, ...],
        context: Context,
        when_s: float = 0.0,
    ) -> None:
        """`loop`: of a timer."""
        self.loop, self.owner = loop, owner
        self.callback: Callback | None = callback
        self.args, self.context, self.when_s = args, context, when_s
        self.is_cancelled = False

    def cancel(self) -> None:
        if not self.is_cancelled:
            self.is_cancelled = True
            self.callback, self.args = None, ()
            if self.loop is not None:
                self.loop.timer_cancelled()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.when_s


class _Numbered:
    """Its hash is not its address: it is the number of those that were hashed before."""

    _count: ClassVar = itertools.count()
    _number: int | None = None

    def __hash__(self) -> int:
        if self._number is None:
            self._number = next(self._count)
        return self._number


class NumberedTask(_Numbered, asyncio.Task[T]):
    def __init__(self, coro: Coroutine[Any, Any, T], *, owner: Instance | None, **kwargs: Any) -> None:
        self.owner = owner  # its first step is scheduled by the next line
        super().__init__(coro, **kwargs)


class NumberedFuture(_Numbered, asyncio.Future[T]):
    pass


class InstanceLoop(VirtualLoop):
    def __init__(self, network: Network | None = None) -> None:
        """`network`: of TCP connections."""
        self.network = network
        self.current: Instance | None = None
        """Whose callback runs; None: the simulation's own."""
        self._now_s = BEGINS_S
        self._due: deque[Handle] = deque()
        self._timers: list[tuple[float, int, Handle]] = []
        """A heap, those of one time in the order in which they were made."""
        self._timers_made = self._timers_cancelled = 0
        self.turn_s: Callable[[], float] | None = None
        """How long a turn takes. If turns take no time, what happens later never comes between two of them."""
        self.thread_s: Callable[[], float] = lambda: 0.0
        """How long a thread takes for the next work."""
        self._threads_until_s: WeakKeyDictionary[object, float] = WeakKeyDictionary()
        """An executor does its works in their order."""
        self._killed: list[Instance] = []
        """They stay, because a task that is freed runs code."""
        super().__init__()
        self.set_task_factory(self._task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._now_s

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
            instance.held.append(Handle(None, instance, work, (), copy_context()))
        elif not instance.is_killed:
            before, self.current = self.current, instance
            try:
                work()
            finally:
                self.current = before

    def kill(self, instance: Instance) -> None:
        if not instance.is_killed:
            self._killed.append(instance)
        instance.is_killed = True
        instance.is_paused = False
        instance.held.clear()
        for task in instance.tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                asyncio.tasks._unregister_task(task)  # who ends the loop does not wait for it

    def pause(self, instance: Instance) -> None:
        instance.is_paused = not instance.is_killed

    def resume(self, instance: Instance) -> None:
        instance.is_paused = False
        self._due.extend(instance.held)
        instance.held.clear()

    # -- turns of the loop -----------------------------------------------------------------------------

    def _run_once(self) -> None:
        """One turn, as asyncio's: what is due now, and not what that makes due. There are no sockets and no threads, so
        time goes to the next timer if nothing is due."""
        due, timers = self._due, self._timers
        if not due and not self._stopping:  # type: ignore[attr-defined]
            self._jump()
        while timers and timers[0][0] <= self._now_s:
            handle = heappop(timers)[2]
            handle.loop = None
            if not handle.is_cancelled:
                due.append(handle)
            else:
                self._timers_cancelled -= 1
        for _ in range(len(due)):
            self._run(due.popleft())
        if self.turn_s is not None:
            self._now_s += self.turn_s()

    def _jump(self) -> None:
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heappop(timers)
            self._timers_cancelled -= 1
        if not timers:
            raise RuntimeError("nothing will ever happen: no callback is ready and no timer is set")
        self._now_s = max(self._now_s, timers[0][0])

    def _run(self, handle: Handle) -> None:
        callback, owner = handle.callback, handle.owner
        if callback is None:
            return
        if owner is not None:
            if owner.is_paused:
                owner.held.append(handle)
                return
            if owner.is_killed:
                return
        self.current = owner
        try:
            handle.context.run(callback, *handle.args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001  (as asyncio's loop does)
            name = getattr(callback, "__qualname__", type(callback).__name__)
            self.call_exception_handler({"message": f"Exception in callback {name}", "exception": error})
        finally:
            self.current = None

    def timer_cancelled(self) -> None:
        self._timers_cancelled += 1
        if self._timers_cancelled > max(CANCELLED_MIN, len(self._timers) // 2):
            kept = [each for each in self._timers if not each[2].is_cancelled]
            self._timers[:] = kept
            heapify(self._timers)
            self._timers_cancelled = 0

    # -- what asyncio calls --------------------------------------------------------------------------

    def call_soon(  # type: ignore[override]
        self, callback: Callback, *args: Any, context: Context | None = None
    ) -> Handle:
        task = getattr(callback, "__self__", None)
        owner = task.owner if isinstance(task, NumberedTask) else self.current
        handle = Handle(None, owner, callback, args, copy_context() if context is None else context)
        self._due.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callback, *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle(
            self, self.current, callback, args, copy_context() if context is None else context, when
        )
        self._timers_made += 1
        heappush(self._timers, (when, self._timers_made, handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callback, *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callback, *args: Any, context: Context | None = None
    ) -> Handle:
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
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        done: asyncio.Future[T] = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                done.set_result(func(*args))
            except Exception as error:  # noqa: BLE001  (as an executor does)
                done.set_exception(error)

        due_s = self._now_s + self.thread_s()
        if executor is not None:
            due_s = self._threads_until_s[executor] = max(due_s, self._threads_until_s.get(executor, 0.0))
        if due_s > self._now_s:
            self.call_at(due_s, work)
        else:
            self.call_soon(work)
        return done

    def _task(
        self, loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, T], context: Context | None = None
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = NumberedTask(coro, owner=self.current, loop=loop, context=context)
        if self.current is not None:
            self.current.add(task)
        return task


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
