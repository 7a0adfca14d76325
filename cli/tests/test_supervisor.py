"""Children are forked, restarted when they die, drained when asked, and outlive neither supervisor nor fork server.

The fork server runs in a process of its own, as under `kafscale up`; the supervisor runs in the test. A forked process
must differ in nothing from one that was started.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kafscale.cli.forked import ForkClient, ForkServerGone
from kafscale.cli.supervisor import Child, ChildSpec, ChildState, Supervisor
from kafscale.cli.up import CannotStart, check_port_free
from kafscale.runtime.memory_tuning import MALLOC_ENV

SERVER = """
import gc, socket, sys
gc.disable()
from kafscale.cli.fork_server import ForkServer, run_program
order = ForkServer(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:]).serve()
sys.exit(0 if order is None else run_program(order))
"""
PROGRAMS = {
    "waits": "signal.pause()",
    "drains": (
        "signal.signal(signal.SIGTERM, lambda *_: (print('drained', flush=True), sys.exit(0)))\n"
        "    while True: signal.pause()"
    ),
    "stubborn": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n    while True: signal.pause()",
    "ends": "return 7",
    "fails": "raise ValueError('what is wrong')",
    "shows": (
        "atexit.register(print, 'at exit', flush=True)\n"
        "    shown = {'threads': len(os.listdir('/proc/self/task')), 'argv': sys.argv[1:], 'loads': loads}\n"
        "    links = [os.readlink(f'/proc/self/fd/{n}') for n in range(64) if os.path.exists(f'/proc/self/fd/{n}')]\n"
        "    shown |= {'files': sorted(links), 'chance': random.random(), 'title': setproctitle.getproctitle()}\n"
        "    shown |= {'int': signal.getsignal(signal.SIGINT) is signal.default_int_handler}\n"
        "    shown |= {'collects': gc.isenabled(), 'frozen': gc.get_freeze_count() > 0}\n"
        "    shown |= {'term': signal.getsignal(signal.SIGTERM) is signal.SIG_DFL}\n"
        "    print(json.dumps(shown | {each: os.environ[each] for each in ('WANTED', 'GIVEN')}), flush=True)\n"
        "    return 0"
    ),
}
IMPORTS = "import atexit, gc, json, os, random, setproctitle, signal, sys\nloads = os.getpid()\n"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with the programs, each of which prints `up` first."""
    for name, body in PROGRAMS.items():
        code = f"{IMPORTS}\ndef main():\n    print('up', flush=True)\n    {body}\n"
        (tmp_path / f"{name}.py").write_text(code)
    return tmp_path


class Server:
    """A fork server that has imported every program."""

    def __init__(self, folder: Path) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(theirs.fileno()), *PROGRAMS],
            env={"REPLACED": "before", **os.environ, "PYTHONPATH": path, "GIVEN": "before"},
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self.client = ForkClient(self.channel)


@pytest.fixture
async def server(programs: Path) -> AsyncIterator[Server]:
    forks = Server(programs)
    reading = asyncio.create_task(forks.client.run())
    try:
        yield forks
    finally:
        reading.cancel()
        await asyncio.wait({reading})
        forks.channel.close()
        forks.process.wait(10)


def spec(folder: Path, program: str, **more: object) -> ChildSpec:
    fields = {"name": "c", "program": program, "env": {}, "log": folder / "c.log", **more}
    return ChildSpec(**fields)  # type: ignore[arg-type]


async def until_logged(path: Path, text: str, times: int = 1) -> None:
    async with asyncio.timeout(30):
        while not path.exists() or path.read_text().count(text) < times:
            await asyncio.sleep(0.01)


async def pid_of(child: Child) -> int:
    """Of a child that has logged `up`. The supervisor may hear of the fork later."""
    async with asyncio.timeout(30):
        await until_logged(child.spec.log, "up")
        while child.pid is None:
            await asyncio.sleep(0.01)
    return child.pid


async def test_a_child_that_dies_is_started_again_after_its_way_was_cleared(
    server: Server, tmp_path: Path
) -> None:
    cleared: list[int] = []

    async def clear() -> None:
        cleared.append(1)

    states: list[ChildState] = []
    async with asyncio.TaskGroup() as group:
        supervisor = Supervisor(group, server.client, lambda child: states.append(child.state))
        child = supervisor.start(spec(tmp_path, "waits", after_death=clear))
        os.kill(await pid_of(child), signal.SIGKILL)
        await until_logged(tmp_path / "c.log", "up", times=2)
        assert (child.deaths, child.last_exit, cleared) == (1, -signal.SIGKILL, [1])
        await supervisor.stop("c")
    assert states == [ChildState.RESTARTING, ChildState.STOPPING, ChildState.STOPPED]


@pytest.mark.parametrize(
    ("program", "code", "said"), [("ends", 7, "up"), ("fails", 1, "ValueError: what is wrong")]
)
async def test_a_child_that_ends_at_once_is_started_again_and_says_why(
    server: Server, tmp_path: Path, program: str, code: int, said: str
) -> None:
    codes: list[int | None] = []
    twice = asyncio.Event()

    def changed(child: Child) -> None:
        if child.state is ChildState.RESTARTING:
            codes.append(child.last_exit)
        if len(codes) == 2:
            twice.set()

    async with asyncio.TaskGroup() as group:
        supervisor = Supervisor(group, server.client, changed)
        supervisor.start(spec(tmp_path, program))
        async with asyncio.timeout(30):
            await twice.wait()
        await supervisor.stop("c")
    assert codes == [code, code]
    assert (tmp_path / "c.log").read_text().count(said) == 2


async def test_a_child_is_asked_to_drain_before_it_is_ended(server: Server, tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        supervisor = Supervisor(group, server.client, lambda child: None)
        child = supervisor.start(spec(tmp_path, "drains"))
        await until_logged(tmp_path / "c.log", "up")
        await supervisor.stop("c")
    assert child.last_exit == 0
    assert "drained" in (tmp_path / "c.log").read_text()


async def test_a_child_that_does_not_end_is_killed_at_its_limit(server: Server, tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        supervisor = Supervisor(group, server.client, lambda child: None)
        child: Child = supervisor.start(spec(tmp_path, "stubborn", stop_timeout_s=0.1))
        await until_logged(tmp_path / "c.log", "up")
        async with asyncio.timeout(30):
            await supervisor.stop("c")
    assert child.last_exit == -signal.SIGKILL


async def test_a_stop_before_the_fork_server_is_ready_is_not_lost(server: Server, tmp_path: Path) -> None:
    server.process.send_signal(signal.SIGSTOP)  # as while it imports
    async with asyncio.TaskGroup() as group:
        supervisor = Supervisor(group, server.client, lambda child: None)
        child = supervisor.start(spec(tmp_path, "waits"))
        await asyncio.sleep(0)  # the request is sent
        stopping = asyncio.create_task(supervisor.stop("c"))
        await asyncio.sleep(0)
        server.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(20):  # less than the 30 s after which a child is killed
            await stopping
    assert (child.deaths, child.last_exit) == (0, -signal.SIGTERM)


async def test_ctrl_c_at_the_terminal_does_not_reach_a_child(server: Server, tmp_path: Path) -> None:
    async with asyncio.TaskGroup() as group:
        supervisor = Supervisor(group, server.client, lambda child: None)
        child = supervisor.start(spec(tmp_path, "waits"))
        assert os.getpgid(await pid_of(child)) not in (os.getpgrp(), os.getpgid(server.process.pid))
        await supervisor.stop("c")


async def test_a_forked_process_is_what_a_started_one_would_be(server: Server, tmp_path: Path) -> None:
    for name in ("one", "two"):
        env = {
            "WANTED": name,
            "REPLACED": name,
        }  # setproctitle once failed if the first variable was replaced
        process = await server.client.start(name, "shows", env, tmp_path / name)
        assert await process.wait() == 0
    shown = {name: (tmp_path / name).read_text().splitlines() for name in ("one", "two")}
    assert [(lines[0], lines[2:]) for lines in shown.values()] == [("up", ["at exit"])] * 2
    one, two = (json.loads(lines[1]) for lines in shown.values())
    assert one.pop("chance") != two.pop("chance"), "each has its own random numbers"
    for name, found in (("one", one), ("two", two)):
        assert found == {
            "threads": 1,
            "argv": [],
            "loads": server.process.pid,
            "files": sorted(["/dev/null", str(tmp_path / name), str(tmp_path / name)]),
            "title": f"shows ({name})",
            "collects": True,
            "frozen": True,
            "int": True,
            "term": True,
            "WANTED": name,
            "GIVEN": "before",
        }


async def test_a_signal_for_a_process_that_has_ended_is_dropped(server: Server, tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        process = await server.client.start("c", "ends", {}, tmp_path / "log")
        assert await process.wait() == 7
        await server.client.signal("c", signal.SIGKILL)
        again = await server.client.start("c", "ends", {}, tmp_path / "log")
        assert await again.wait() == 7


async def test_children_die_with_a_fork_server_that_is_killed(server: Server, tmp_path: Path) -> None:
    process = await server.client.start("c", "waits", {}, tmp_path / "log")
    child = os.pidfd_open(process.pid)
    server.process.kill()
    await _until_ended(child)


async def test_the_supervisor_notices_that_the_fork_server_is_gone(programs: Path) -> None:
    server = Server(programs)
    server.process.kill()
    server.process.wait(10)
    with pytest.raises(ForkServerGone):
        await asyncio.wait_for(server.client.run(), 10)
    server.channel.close()


async def test_children_die_with_a_supervisor_that_is_killed(programs: Path) -> None:
    """The end of the supervisor's socket is what the fork server sees of it."""
    server = Server(programs)
    reading = asyncio.create_task(server.client.run())
    process = await server.client.start("c", "stubborn", {}, programs / "log")
    await until_logged(programs / "log", "up")
    child = os.pidfd_open(process.pid)
    reading.cancel()
    await asyncio.wait({reading})
    server.channel.close()
    await _until_ended(child)
    assert await asyncio.to_thread(server.process.wait, 10) == 0


RUNS = """
import os, signal, sys, time
from kafscale.cli.fork_server import run_forked
def supervise(channel):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
    print(os.getpid(), flush=True)
    while True: signal.pause()
sys.exit(run_forked(supervise, ["json"], shared="signal"))
"""


IMPORTED = """
import os, sys
from kafscale.cli.fork_server import run_forked
run_forked(lambda channel: 0, ["imported"], shared="signal")
"""


async def test_programs_are_imported_with_the_variables_that_grpc_reads_only_then(tmp_path: Path) -> None:
    """What the user has set stays."""
    (tmp_path / "imported.py").write_text(
        "import json, os\nprint(json.dumps(dict(os.environ)), flush=True)\n"
    )
    given = {name: value for name, value in os.environ.items() if name not in MALLOC_ENV}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        IMPORTED,
        env={**given, "PYTHONPATH": str(tmp_path), "GRPC_VERBOSITY": "INFO"},
        stdout=asyncio.subprocess.PIPE,
    )
    shown, _ = await asyncio.wait_for(process.communicate(), 30)
    found = json.loads(shown)
    assert {name: found.get(name) for name in MALLOC_ENV} == {**MALLOC_ENV, "GRPC_VERBOSITY": "INFO"}


async def running() -> tuple[asyncio.subprocess.Process, int]:
    """The first process of a `kafscale up`, and the pidfd of its supervisor."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUNS, stdout=asyncio.subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    return process, os.pidfd_open(int(await process.stdout.readline()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_first_process_passes_a_signal_on_and_has_the_exit_code_of_the_supervisor(
    number: signal.Signals,
) -> None:
    process, supervisor = await running()
    os.killpg(process.pid, number) if number is signal.SIGINT else process.send_signal(number)
    assert await asyncio.wait_for(process.wait(), 30) == 3
    await _until_ended(supervisor)


async def test_a_supervisor_that_is_killed_ends_the_first_process(tmp_path: Path) -> None:
    process, supervisor = await running()
    signal.pidfd_send_signal(supervisor, signal.SIGKILL)
    assert await asyncio.wait_for(process.wait(), 30) == 128 + signal.SIGKILL
    os.close(supervisor)


async def test_the_supervisor_dies_with_the_first_process() -> None:
    process, supervisor = await running()
    process.kill()
    await process.wait()
    await _until_ended(supervisor)


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
