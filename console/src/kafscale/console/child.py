"""A child process of the console: its start and its end, and the messages between the two.

A message is its length in four bytes and then its bytes, in both directions.

Laws:
- A child has no module of the folder in which the console was started. Ctrl-C is for the console, which ends the child.
- A child ends when its input ends, so it does not outlive the console.
- A message has a bound. One that is longer is refused before it is read.
"""

from __future__ import annotations

import asyncio
import os
import resource
import struct
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import IO, Final

IDLE_S: Final = 300.0
NICE: Final = 10
"""Services of the same machine come before the children."""
_LENGTH: Final = struct.Struct(">I")


class TooLong(Exception):
    """A message is longer than its bound."""


class Child:
    """`bytes_max`: of a message that it sends."""

    def __init__(self, process: Process, bytes_max: int) -> None:
        self._process, self._bytes_max = process, bytes_max

    @classmethod
    async def start(
        cls, module: str, bytes_max: int, *, quiet: bool, env: Mapping[str, str] | None = None
    ) -> Child:
        """`python -m module`. `quiet`: what it writes to standard error is dropped. Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            module,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL if quiet else None,
            env={**os.environ, **(env or {})},
            start_new_session=True,
        )
        return cls(process, bytes_max)

    @property
    def has_ended(self) -> bool:
        return self._process.returncode is not None

    async def send(self, message: bytes) -> None:
        """Raises ConnectionError if it has ended."""
        assert self._process.stdin is not None
        self._process.stdin.write(_LENGTH.pack(len(message)) + message)
        await self._process.stdin.drain()

    async def receive(self) -> bytes | None:
        """None if it has ended. Raises TooLong."""
        assert self._process.stdout is not None
        return await received(self._process.stdout, self._bytes_max)

    def end_input(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def kill(self) -> None:
        if not self.has_ended:
            self._process.kill()

    async def exit_code(self) -> int:
        """When it has ended by itself."""
        return await self._process.wait()

    async def gone(self) -> None:
        """Kills it if it still runs, and closes the pipes. Nobody else may receive meanwhile."""
        self.kill()
        await self._process.communicate()


class Kept:
    """One child for many uses. It starts at the first one, and its input ends IDLE_S after the last one.

    `first`: its first message.
    """

    def __init__(self, module: str, bytes_max: int, *, quiet: bool, first: bytes | None = None) -> None:
        self._module, self._bytes_max, self._quiet, self._first = module, bytes_max, quiet, first
        self._child: Child | None = None
        self._starting = asyncio.Lock()
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Child]:
        """Raises OSError."""
        self._users += 1
        self._stay()
        try:
            async with self._starting:
                if self._child is None or self._child.has_ended:
                    self._child = await Child.start(self._module, self._bytes_max, quiet=self._quiet)
                    if self._first is not None:
                        await self._child.send(self._first)
            yield self._child
        finally:
            self._users -= 1
            if self._users == 0:
                self._stay()
                self._idle = asyncio.get_running_loop().call_later(IDLE_S, self._end_input)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()

    async def end(self) -> None:
        """At once. The next use starts another one. Nobody may receive meanwhile."""
        child, self._child = self._child, None
        if child is not None:
            await child.gone()

    async def close(self) -> None:
        self._stay()
        await self.end()

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_input(self) -> None:
        if self._child is not None:
            self._child.end_input()
            self._child = None


async def received(source: asyncio.StreamReader, bytes_max: int) -> bytes | None:
    """The next message; None if the other side has ended. Raises TooLong."""
    try:
        (length,) = _LENGTH.unpack(await source.readexactly(_LENGTH.size))
        if length > bytes_max:
            raise TooLong
        return await source.readexactly(length)
    except asyncio.IncompleteReadError:
        return None


def take(source: IO[bytes]) -> bytes | None:
    """In the child: the next message; None if the console has ended."""
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    message = source.read(length)
    return message if len(message) == length else None


def give(into: IO[bytes], message: bytes) -> None:
    """In the child. It waits until the pipe has room."""
    into.write(_LENGTH.pack(len(message)) + message)
    into.flush()


def limit_self(memory_bytes: int, *, cpu_s: int | None = None, writes: bool) -> None:
    """In the child: address space, processor time, whether it may write files. There is never a core dump. It gets a
    lower priority (NICE)."""
    os.nice(NICE)
    limits = [(resource.RLIMIT_AS, memory_bytes, memory_bytes), (resource.RLIMIT_CORE, 0, 0)]
    if cpu_s is not None:  # at the first the kernel says why it ends the process
        limits.append((resource.RLIMIT_CPU, cpu_s, cpu_s + 1))
    if not writes:
        limits.append((resource.RLIMIT_FSIZE, 0, 0))
    for kind, soft, hard in limits:
        _, most = resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(kind, (soft, hard))
