"""Keeps child processes running: starts them, restarts them when they die, stops them in order.

The fork server (`fork_server.py`) is their parent. A child never outlives the fork server or the supervisor.
Ctrl-C signals the whole process group of a terminal, so each child has a separate group.
The supervisor sends SIGTERM to drain a child. It stops the front door first.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from kafscale.cli.forked import ForkClient, Forked
from kafscale.storage.backoff import Backoff

RESTART_DELAY_MIN_MS = 200
RESTART_DELAY_MAX_MS = 10_000
STEADY_AFTER_S = 30.0


class ChildState(Enum):
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """What to run: `main()` of the module `program`.

    `after_death` removes what would delay the next start (registrations of the dead process).
    """

    name: str
    program: str
    env: Mapping[str, str]
    log: Path
    stop_timeout_s: float = 30.0
    after_death: Callable[[], Awaitable[None]] | None = None


@dataclass(slots=True)
class Child:
    spec: ChildSpec
    state: ChildState = ChildState.STARTING
    process: Forked | None = None
    deaths: int = 0
    last_exit: int | None = None
    started_at: float = 0.0
    stop_requested: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.returncode is None else None


class Supervisor:
    """Runs children inside the caller's task group until `stop`."""

    def __init__(
        self, group: asyncio.TaskGroup, processes: ForkClient, on_change: Callable[[Child], None]
    ) -> None:
        self._group = group
        self._processes = processes
        self._on_change = on_change
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.children: dict[str, Child] = {}

    def start(self, spec: ChildSpec) -> Child:
        child = Child(spec)
        self.children[spec.name] = child
        self._tasks[spec.name] = self._group.create_task(self._keep(child), name=f"child {spec.name}")
        return child

    def mark_running(self, child: Child) -> None:
        """To be called when the child has registered as ready."""
        if child.state in (ChildState.STARTING, ChildState.RESTARTING):
            self._set(child, ChildState.RUNNING)

    async def stop(self, name: str) -> None:
        """SIGTERM, then SIGKILL after the child's `stop_timeout_s`."""
        child = self.children[name]
        child.stop_requested.set()
        await self._terminate(child)
        task = self._tasks[name]
        done, _ = await asyncio.wait({task}, timeout=child.spec.stop_timeout_s)
        if not done:
            await self._processes.signal(name, signal.SIGKILL)
        await asyncio.wait({task})

    async def _terminate(self, child: Child) -> None:
        if child.pid is not None:
            self._set(child, ChildState.STOPPING)
            await self._processes.signal(child.spec.name, signal.SIGTERM)

    async def _keep(self, child: Child) -> None:
        backoff = restart_backoff()
        while not child.stop_requested.is_set():
            await self._run_once(child)
            if child.stop_requested.is_set():
                break
            child.deaths += 1
            self._set(child, ChildState.RESTARTING)
            if time.monotonic() - child.started_at > STEADY_AFTER_S:
                backoff.reset()
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_s()):
                    await child.stop_requested.wait()
            if child.spec.after_death is not None:
                await child.spec.after_death()
        self._set(child, ChildState.STOPPED)

    async def _run_once(self, child: Child) -> None:
        spec = child.spec
        child.process = await self._processes.start(spec.name, spec.program, spec.env, spec.log)
        child.started_at = time.monotonic()
        if child.stop_requested.is_set():  # while the fork server was busy
            await self._terminate(child)
        child.last_exit = await child.process.wait()

    def _set(self, child: Child, state: ChildState) -> None:
        child.state = state
        self._on_change(child)


def restart_backoff() -> Backoff:
    """The pauses between the restarts of a process that dies again and again."""
    return Backoff(first_ms=RESTART_DELAY_MIN_MS, cap_ms=RESTART_DELAY_MAX_MS)
