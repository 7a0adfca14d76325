"""The supervisor's side of the fork server: what it asks for, and the processes that it gets.

A message is one packet of a socket pair. The fork server (`fork_server.py`) answers each `Start` with `Started` or
`Refused`, and reports each end of a process with `Ended`. At most one process runs under a name.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final, assert_never

import msgspec

PACKET_BYTES_MAX: Final = 64 << 10


class Start(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Run `main()` of the module `program`. `env` is added to the environment, the output to the file `log`."""

    name: str
    program: str
    env: dict[str, str]
    log: str


class Signal(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Ignored if no process of that name runs."""

    name: str
    number: int


class Started(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    name: str
    pid: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The kernel refused to fork, for example for want of memory."""

    name: str
    why: str


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`code`: the exit code; the number of a signal is negative."""

    name: str
    code: int


Request = Start | Signal
Reply = Started | Refused | Ended


class ForkServerGone(Exception):
    """The fork server has ended, and with it every process that it has forked."""


class Forked:
    """A process of the fork server."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    def end(self, code: int) -> None:
        self.returncode = code
        self._ended.set()

    async def wait(self) -> int:
        """The exit code; the number of a signal is negative."""
        await self._ended.wait()
        assert self.returncode is not None, "it is set before the event"
        return self.returncode


class ForkClient:
    """Starts and signals processes. `run` must run meanwhile."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._starting: dict[str, asyncio.Future[Forked]] = {}
        self._running: dict[str, Forked] = {}

    async def run(self) -> None:
        """Reads the fork server's messages. Raises ForkServerGone."""
        while packet := await self._packet():
            self._heard(msgspec.json.decode(packet, type=Reply))
        raise ForkServerGone

    async def _packet(self) -> bytes:
        """Nothing: the fork server has closed the channel, or has ended with a message of ours unread."""
        try:
            return await asyncio.get_running_loop().sock_recv(self._channel, PACKET_BYTES_MAX)
        except ConnectionResetError:
            return b""

    def _heard(self, reply: Reply) -> None:
        match reply:
            case Started():
                process = self._running[reply.name] = Forked(reply.pid)
                self._starting.pop(reply.name).set_result(process)
            case Refused():
                self._starting.pop(reply.name).set_exception(OSError(reply.why))
            case Ended():
                self._running.pop(reply.name).end(reply.code)
            case _:
                assert_never(reply)

    async def start(self, name: str, program: str, env: Mapping[str, str], log: Path) -> Forked:
        """Returns when the process exists. Raises OSError if the kernel refused."""
        assert name not in self._running | self._starting, f"{name} is running already"
        started: asyncio.Future[Forked] = asyncio.get_running_loop().create_future()
        self._starting[name] = started
        await self._send(Start(name=name, program=program, env=dict(env), log=str(log)))
        return await started

    async def signal(self, name: str, number: signal.Signals) -> None:
        """Without effect on a process that has ended."""
        await self._send(Signal(name=name, number=number))

    async def _send(self, request: Request) -> None:
        await asyncio.get_running_loop().sock_sendall(self._channel, msgspec.json.encode(request))
