"""The first process of `kafscale up`: imports the services once, and forks every process of theirs.

    kafscale up --+-- supervisor --- etcd
                  +-- produce-1, fetch-1, ...

Laws: this process has one thread, no event loop and no gRPC channel, because a child gets only the thread that forks,
and a copy of everything else. It passes SIGINT and SIGTERM to the supervisor, and ends with it. The kernel kills the
supervisor and every child when this process dies, for any reason.

An interpreter with the imports of a service costs a second of CPU; a fork costs milliseconds, and the processes share
the memory of what was imported. The standard library's fork server (multiprocessing) would run a second helper process,
import the command again in each child, and let children outlive it.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, assert_never

import msgspec
from kafscale.cli.forked import PACKET_BYTES_MAX, Ended, Refused, Reply, Request, Signal, Start, Started
from kafscale.runtime.memory_tuning import MALLOC_ENV, tune_allocator
from setproctitle import setproctitle

PR_SET_PDEATHSIG: Final = 1
PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM)
LOG_MODE: Final = 0o600
SHELL_SIGNAL_CODE: Final = 128
"""A shell adds it to the number of the signal that ended a program."""


def run_forked(supervise: Callable[[socket.socket], int], programs: Sequence[str], *, shared: str) -> int:
    """Forks the supervisor, and serves it until it ends.

    `programs`: modules to import, each with a function `main`. `shared`: a module that the supervisor uses and whose
    imports the programs also need, so it is imported before the supervisor is forked. The supervisor starts etcd while
    this process imports the programs.
    Returns once in each process: in this one, in the supervisor and in every child. The result is the exit code of
    what the process did. So the caller must do nothing but exit.
    """
    for name, value in MALLOC_ENV.items():  # here, as gRPC reads its variables when it is imported
        os.environ.setdefault(name, value)
    gc.disable()  # with `freeze` before each fork, as the documentation of gc says: a collector writes to shared memory
    with without_rich():
        importlib.import_module(shared)
    gc.freeze()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    parent = os.getpid()
    with blocked(PASSED_ON):  # until each of the two has its handlers
        supervisor = os.fork()
        if supervisor == 0:
            # Ctrl-C reaches both; only the parent's SIGTERM counts. Programs that the supervisor starts get no handler.
            signal.signal(signal.SIGINT, lambda *_: None)
        else:
            for number in PASSED_ON:
                signal.signal(number, lambda *_: os.kill(supervisor, signal.SIGTERM))
    if supervisor == 0:
        ours.close()
        gc.enable()
        die_with(parent)
        setproctitle("kafscale up (supervisor)")
        return supervise(theirs)
    theirs.close()
    order = ForkServer(ours, programs).serve()
    if order is not None:
        return run_program(order)
    for number in PASSED_ON:
        signal.signal(number, signal.SIG_IGN)  # after the wait, another process may get the supervisor's id
    code = os.waitstatus_to_exitcode(os.waitpid(supervisor, 0)[1])
    return code if code >= 0 else SHELL_SIGNAL_CODE - code


def run_program(order: Start) -> int:
    """In the child that `ForkServer.serve` returned to: the program's exit code."""
    return int(importlib.import_module(order.program).main())


class ForkServer:
    """Forks on request. `channel`: the socket to the supervisor, of the kind SOCK_SEQPACKET."""

    def __init__(self, channel: socket.socket, programs: Sequence[str]) -> None:
        self._channel = channel
        self._names: dict[int, str] = {}
        """pidfd -> the name of the process."""
        self._pids: dict[str, int] = {}
        self._events = select.poll()
        self._events.register(channel, select.POLLIN)
        for program in programs:
            importlib.import_module(program)
        gc.freeze()

    def serve(self) -> Start | None:
        """In this process: None, when the supervisor has ended and every child is dead. In a child: what to run."""
        while True:
            for descriptor, _ in self._events.poll():
                if descriptor in self._names:
                    self._reap(descriptor)
                    continue
                request = self._request()
                match request:
                    case Start():
                        if self._fork(request):
                            return request
                    case Signal():
                        self._signal(request)
                    case None:
                        self._end_all()
                        return None
                    case _:
                        assert_never(request)

    def _request(self) -> Request | None:
        """None if the supervisor has ended."""
        packet = self._channel.recv(PACKET_BYTES_MAX)
        if not packet:
            return None
        request: Request = msgspec.json.decode(packet, type=Request)
        return request

    def _reply(self, reply: Reply) -> None:
        try:
            self._channel.send(msgspec.json.encode(reply))
        except (BrokenPipeError, ConnectionResetError):
            return  # the supervisor has ended: the next request is None

    def _fork(self, order: Start) -> bool:
        """True in the child."""
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        with blocked(PASSED_ON):  # until the child has handlers of its own, or it would pass a signal on
            try:
                pid = os.fork()
            except OSError as error:
                self._reply(Refused(name=order.name, why=str(error)))
                return False
            if pid == 0:
                self._close()
                become(order, parent)
                return True
        descriptor = os.pidfd_open(pid)
        self._names[descriptor], self._pids[order.name] = order.name, pid
        self._events.register(descriptor, select.POLLIN)
        self._reply(Started(name=order.name, pid=pid))
        return False

    def _close(self) -> None:
        """In a child: what belongs to the fork server."""
        self._channel.close()
        for descriptor in self._names:
            os.close(descriptor)

    def _reap(self, descriptor: int) -> None:
        name = self._names.pop(descriptor)
        status = os.waitpid(self._pids.pop(name), 0)[1]
        self._events.unregister(descriptor)
        os.close(descriptor)
        self._reply(Ended(name=name, code=os.waitstatus_to_exitcode(status)))

    def _signal(self, wanted: Signal) -> None:
        if wanted.name in self._pids:
            os.kill(self._pids[wanted.name], wanted.number)

    def _end_all(self) -> None:
        for name in self._pids:
            self._signal(Signal(name=name, number=signal.SIGKILL))
        for descriptor in tuple(self._names):
            self._reap(descriptor)


@contextmanager
def blocked(numbers: Iterable[signal.Signals]) -> Iterator[None]:
    """Signals that come meanwhile are delivered at the end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


@contextmanager
def without_rich() -> Iterator[None]:
    """For the import of structlog, which imports rich if it is there. No service uses it; it costs 100 ms and 13 MB."""
    if "rich" in sys.modules:
        yield
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # documented: the import raises ModuleNotFoundError
    try:
        yield
    finally:
        del sys.modules["rich"]


def die_with(parent: int) -> None:
    """The kernel kills this process when its parent dies. Ends it if `parent` is dead already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def become(order: Start, parent: int) -> None:
    """Makes a forked copy of the fork server what a started program would be."""
    os.setpgid(0, 0)  # Ctrl-C in a terminal signals the whole process group
    die_with(parent)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _redirect(os.devnull, os.O_RDONLY, 0)
    _redirect(order.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 1, 2)
    # Before the environment changes: setproctitle finds its place by the variables with which this process started.
    setproctitle(f"{order.program.removesuffix('.__main__')} ({order.name})")
    os.environ.update(order.env)
    tune_allocator(os.environ)
    gc.enable()
    sys.argv = [order.program]


def _redirect(path: str, flags: int, *descriptors: int) -> None:
    opened = os.open(path, flags, LOG_MODE)
    for descriptor in descriptors:
        os.dup2(opened, descriptor)
    os.close(opened)
