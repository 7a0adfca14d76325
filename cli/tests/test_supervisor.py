"""Children are restarted when they die, drained when asked, and never outlive the supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from kafscale.cli.supervisor import Child, ChildSpec, ChildState, Supervisor
from kafscale.cli.up import CannotStart, check_port_free

WAITS = "import signal, sys\nprint('up', flush=True)\nsignal.pause()\n"
DRAINS = (
    "import signal, sys\n"
    "signal.signal(signal.SIGTERM, lambda *_: (print('drained', flush=True), sys.exit(0)))\n"
    "print('up', flush=True)\n"
    "while True: signal.pause()\n"
)
STUBBORN = (
    "import signal\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('up', flush=True)\n"
    "while True: signal.pause()\n"
)


def spec(tmp_path: Path, script: str, **more: object) -> ChildSpec:
    fields = {
        "name": "c",
        "argv": [sys.executable, "-c", script],
        "env": {},
        "log": tmp_path / "c.log",
        **more,
    }
    return ChildSpec(**fields)  # type: ignore[arg-type]


async def until_logged(path: Path, text: str, times: int = 1) -> None:
    async with asyncio.timeout(10):
        while not path.exists() or path.read_text().count(text) < times:
            await asyncio.sleep(0.01)


async def test_a_child_that_dies_is_started_again_after_its_way_was_cleared(tmp_path: Path) -> None:
    cleared: list[int] = []

    async def clear() -> None:
        cleared.append(1)

    states: list[ChildState] = []
    async with asyncio.TaskGroup() as group:
        supervisor = Supervisor(group, lambda child: states.append(child.state))
        child = supervisor.start(spec(tmp_path, WAITS, after_death=clear))
        await until_logged(tmp_path / "c.log", "up")
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        await until_logged(tmp_path / "c.log", "up", times=2)
        assert (child.deaths, child.last_exit, cleared) == (1, -signal.SIGKILL, [1])
        await supervisor.stop("c")
    assert states == [ChildState.RESTARTING, ChildState.STOPPING, ChildState.STOPPED]


async def test_a_child_is_asked_to_drain_before_it_is_ended(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        supervisor = Supervisor(group, lambda child: None)
        child = supervisor.start(spec(tmp_path, DRAINS))
        await until_logged(tmp_path / "c.log", "up")
        await supervisor.stop("c")
    assert child.last_exit == 0
    assert "drained" in (tmp_path / "c.log").read_text()


async def test_a_child_that_does_not_end_is_killed_at_its_limit(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        supervisor = Supervisor(group, lambda child: None)
        child: Child = supervisor.start(spec(tmp_path, STUBBORN, stop_timeout_s=0.1))
        await until_logged(tmp_path / "c.log", "up")
        await supervisor.stop("c")
    assert child.last_exit == -signal.SIGKILL


async def test_ctrl_c_at_the_terminal_does_not_reach_a_child(tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        supervisor = Supervisor(group, lambda child: None)
        child = supervisor.start(spec(tmp_path, WAITS))
        await until_logged(tmp_path / "c.log", "up")
        assert child.pid is not None
        assert os.getpgid(child.pid) != os.getpgrp()
        await supervisor.stop("c")


def test_children_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    script = f"""
import asyncio, pathlib, sys
from kafscale.cli.supervisor import ChildSpec, Supervisor
async def main():
    async with asyncio.TaskGroup() as group:
        s = Supervisor(group, lambda child: None)
        argv = [sys.executable, '-c', 'import os, signal; print(os.getpid(), flush=True); signal.pause()']
        s.start(ChildSpec(name='c', argv=argv, env={{}}, log=pathlib.Path({str(tmp_path / "c.log")!r})))
asyncio.run(main())
"""
    parent = subprocess.Popen([sys.executable, "-c", script])
    asyncio.run(until_logged(tmp_path / "c.log", "\n"))
    child = int((tmp_path / "c.log").read_text())
    descriptor = os.pidfd_open(child)
    parent.kill()
    parent.wait(10)
    asyncio.run(_until_ended(descriptor))


async def _until_ended(descriptor: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, ended.set)
    await asyncio.wait_for(ended.wait(), 10)
    asyncio.get_running_loop().remove_reader(descriptor)
    os.close(descriptor)


def test_a_port_that_is_taken_is_named_with_what_to_do() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotStart, match=f"{port} is in use.*PORT={port + 1}"):
            check_port_free("127.0.0.1", port)
