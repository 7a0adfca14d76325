"""The messages of `kafscale up` on the terminal."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from kafscale.access.protocol import SecurityProtocol
from kafscale.cli import up
from kafscale.cli.__main__ import app
from kafscale.cli.forked import ForkClient
from kafscale.cli.supervisor import (
    RESTART_DELAY_MAX_MS,
    RESTART_DELAY_MIN_MS,
    Child,
    ChildSpec,
    Supervisor,
)
from kafscale.cli.up_plan import UpPlan
from kafscale.frontdoor.listeners import listener_security, listeners
from kafscale.operations.datadir import DataDir
from kafscale.operations.disk import KEPT_BYTES_MAX, Disk, Use
from kafscale.operations.services import ROLES
from kafscale.operations.target import StoreKind
from kafscale.runtime.etcd_binary import EtcdFailed
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.membership.members import Instance, InstanceState
from typer.testing import CliRunner


@pytest.fixture
def processes() -> Iterator[ForkClient]:
    """No test here starts a service."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ForkClient(ours)


class Slow:
    """A role's live view in which the instance becomes ready when the test says so."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.state = InstanceState.STARTING
        self._changed: list[Callable[[], None]] = []

    def subscribe(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    async def loaded(self) -> None:
        return

    def instances(self) -> tuple[Instance, ...]:
        return (Instance(role=self.role, node_id=1, boot_id="b", state=self.state),)

    def become_ready(self) -> None:
        self.state = InstanceState.READY
        for changed in self._changed:
            changed()


class Children:
    """Enough of a supervisor to be asked what it waits for."""

    def __init__(self, logs: Path) -> None:
        self.children = {
            f"{role}-1": Child(ChildSpec(name=f"{role}-1", program="", env={}, log=logs / f"{role}-1.log"))
            for role in ROLES
        }

    def mark_running(self, _child: object) -> None:
        return


WARNING = '{"event": "few files", "level": "warning"}\n'
NO_KEYS = '{"event": "dependency unavailable", "need": "bucket x", "why": "no S3 credentials", "level": "warning"}\n'


@pytest.mark.parametrize(
    ("log", "at", "said"),
    [
        (NO_KEYS + WARNING, 1, "produce-1: dependency unavailable: bucket x: no S3 credentials"),
        (WARNING, up.LOOKS_PER_REPORT, "produce-1: few files\n{rest}: starting"),
    ],
    ids=["at the first look, with a reason", "later, without one"],
)
async def test_what_is_waited_for_is_said_once_and_ready_even_long_after_it(
    tmp_path: Path, processes: ForkClient, monkeypatch: pytest.MonkeyPatch, log: str, at: int, said: str
) -> None:
    async def answered(_host: str, _port: int) -> None:
        return

    silent: list[int] = []
    look = up.Up._say_not_ready

    def looked(self: up.Up, supervisor: Supervisor, looks: int, before: frozenset[str]) -> frozenset[str]:
        lines_before = len(lines)
        found = look(self, supervisor, looks, before)
        if len(lines) == lines_before:
            silent.append(looks)
        if looks == up.LOOKS_PER_REPORT:
            late.set()
        return found

    monkeypatch.setattr(up, "LOOK_S", 0.01)
    monkeypatch.setattr(up, "wait_for_brokers", answered)
    monkeypatch.setattr(up.Up, "_say_not_ready", looked)
    lines: list[str] = []
    late = asyncio.Event()
    data = DataDir(tmp_path)
    data.acquire()
    (data.logs / "produce-1.log").write_text(log)
    views = {role: Slow(role) for role in ROLES}
    system = up.Up(UpPlan(data_dir=tmp_path, port=1234), processes, lines.append)
    async with asyncio.TaskGroup() as group:
        group.create_task(system._announce(Children(data.logs), views, "http://etcd"))  # type: ignore[arg-type]
        await late.wait()
        for view in views.values():
            view.become_ready()
    rest = ", ".join(f"{role}-1" for role in ROLES if role != "produce")
    _, *told = lines[0].splitlines()
    assert sorted(told) == sorted(said.format(rest=rest).splitlines())
    early = range(1, up.LOOKS_PER_REPORT)
    assert [each for each in silent if each in early] == [each for each in early if each != at]
    assert lines[-2:] == [
        "KafScale is ready: bootstrap.servers=127.0.0.1:1234",
        f"commands reach it so: kafscale status --data-dir {tmp_path}",
    ]
    assert data.running() is not None
    data.release()


@pytest.mark.parametrize(
    ("host", "opened"), [("0.0.0.0", "0.0.0.0:1234"), ("::", "[::]:1234"), ("127.0.0.1", "127.0.0.1:1234")]
)
async def test_the_warning_of_an_open_port_names_the_address_that_listens(
    tmp_path: Path, processes: ForkClient, monkeypatch: pytest.MonkeyPatch, host: str, opened: str
) -> None:
    async def serving(*_: object) -> None:
        return

    monkeypatch.setattr(up.Up, "_serving", serving)
    lines: list[str] = []
    plan = UpPlan(data_dir=tmp_path, host=host, port=1234, advertised_host="127.0.0.1")
    system = up.Up(plan, processes, lines.append)
    system._data.acquire()
    await system._announce(Children(tmp_path), {}, "http://etcd")  # type: ignore[arg-type]
    system._data.release()
    assert lines[:2] == [
        f"{opened} is open: no encryption and no logins; docs/security.md closes it",
        "KafScale is ready: bootstrap.servers=127.0.0.1:1234",
    ]


@pytest.mark.parametrize(
    ("protocol", "said"),
    [
        (SecurityProtocol.PLAINTEXT, "no console: 127.0.0.1:{port} is in use by another program"),
        (SecurityProtocol.SASL_SSL, "no console: clients need TLS here"),
    ],
)
async def test_a_console_that_cannot_start_is_said_and_the_cluster_runs(
    tmp_path: Path,
    processes: ForkClient,
    monkeypatch: pytest.MonkeyPatch,
    protocol: SecurityProtocol,
    said: str,
) -> None:
    async def serving(*_: object) -> None:
        return

    monkeypatch.setattr(up.Up, "_serving", serving)
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        plan = UpPlan(data_dir=tmp_path, protocol=protocol, console_port=port)
        system = up.Up(plan, processes, lines.append)
        system._data.acquire()
        await system._announce(Children(tmp_path), {}, "http://etcd")  # type: ignore[arg-type]
    assert lines[-1].startswith(said.format(port=port))
    assert system._data.running() is not None
    system._data.release()


class Reluctant:
    """An etcd that died, does not start `failures` times, and then runs."""

    def __init__(self, log: Path, failures: int) -> None:
        self._log = log
        self._failures = failures
        self.starts = 0
        self.runs = asyncio.Event()
        self._died = False

    async def wait(self) -> int:
        if self._died:
            await asyncio.Event().wait()
        self._died = True
        return -9

    async def start(self) -> None:
        self.starts += 1
        if self.starts <= self._failures:
            raise EtcdFailed("does not serve after 30 s", self._log, "")
        self.runs.set()


@dataclass
class Room:
    free: int = 1 << 40

    def disk(self) -> Disk:
        return Disk(Path("data"), Use.BOTH, self.free, 1 << 40)


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    """What the disk has."""
    room = Room()
    monkeypatch.setattr(DataDir, "disk", lambda *_, **__: room.disk())
    return room


@asynccontextmanager
async def kept(
    system: up.Up, server: Reluctant, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """Until it runs. `pauses`: what is waited before each start."""

    async def pause(pause_s: float) -> None:
        pauses.append(pause_s)

    monkeypatch.setattr(system, "_pause", pause)
    keeping = asyncio.create_task(system._keep_etcd(server))  # type: ignore[arg-type]
    await asyncio.wait_for(server.runs.wait(), 10)
    yield
    keeping.cancel()


async def test_an_etcd_that_does_not_start_is_tried_again_after_growing_pauses(
    tmp_path: Path, processes: ForkClient, monkeypatch: pytest.MonkeyPatch, room: Room
) -> None:
    lines: list[str] = []
    pauses: list[float] = []
    system = up.Up(UpPlan(data_dir=tmp_path), processes, lines.append)
    async with kept(system, Reluctant(tmp_path / "etcd.log", 9), pauses, monkeypatch):
        assert [line.splitlines()[0] for line in lines] == [
            f"etcd ended with code -9; starting it again: its log {system._data.logs}/etcd.log has no warning",
            *[f"etcd does not start; etcd does not serve after 30 s; the end of {tmp_path / 'etcd.log'}:"]
            * 9,
        ]
        assert pauses[0] <= RESTART_DELAY_MIN_MS / 1000
        assert all(pause >= RESTART_DELAY_MAX_MS / 2000 for pause in pauses[-3:])


async def test_a_full_disk_is_the_reason_that_is_said_and_once(
    tmp_path: Path, processes: ForkClient, monkeypatch: pytest.MonkeyPatch, room: Room
) -> None:
    """etcd's log is on the same disk, and empty."""
    lines: list[str] = []
    system = up.Up(UpPlan(data_dir=tmp_path), processes, lines.append)
    room.free = 0
    async with kept(system, Reluctant(tmp_path / "etcd.log", 9), [], monkeypatch):
        (line,) = lines
        assert line.startswith("etcd ended with code -9: the disk of data is full (0 of 1048576 MB free)")


async def test_a_disk_without_room_for_records_is_no_reason_for_the_end_of_etcd(
    tmp_path: Path, processes: ForkClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(Disk, "of", lambda path, use: Disk(path, use, KEPT_BYTES_MAX, 1 << 40))
    system = up.Up(UpPlan(data_dir=tmp_path), processes, lines.append)
    assert [each.is_full() for each in system._disks()] == [True]
    async with kept(system, Reluctant(tmp_path / "etcd.log", 0), [], monkeypatch):
        assert lines[0].startswith("etcd ended with code -9; starting it again")


async def test_a_pause_for_a_full_disk_ends_when_there_is_room(
    tmp_path: Path, processes: ForkClient, monkeypatch: pytest.MonkeyPatch, room: Room
) -> None:
    monkeypatch.setattr(up, "ROOM_POLL_S", 0.001)
    system = up.Up(UpPlan(data_dir=tmp_path), processes, print)
    room.free = 0
    pausing = asyncio.create_task(system._pause(3_600))
    await asyncio.wait({pausing}, timeout=0.05)
    assert not pausing.done()
    room.free = 1 << 40
    await asyncio.wait_for(pausing, 10)


@pytest.mark.parametrize("store", StoreKind)
async def test_only_the_records_leave_room_on_the_disk(
    tmp_path: Path, processes: ForkClient, store: StoreKind, room: Room
) -> None:
    """What upkeep and admin write makes room."""
    etcd = EtcdClient.connect(["http://127.0.0.1:1"])
    system = up.Up(UpPlan(data_dir=tmp_path, store=store), processes, print)
    name = "KAFSCALE_OBJECT_DIR_KEPT_BYTES"
    given = {role: system._spec(role, 1, "http://127.0.0.1:1", etcd).env.get(name) for role in ROLES}
    await etcd.close()
    kept = str(room.disk().kept) if store is StoreKind.DIR else None
    assert given == dict.fromkeys(ROLES) | {"produce": kept}


@pytest.mark.parametrize(("given", "passed"), [(None, "0"), ("500", None)])
async def test_a_developers_group_starts_without_waiting_for_members(
    tmp_path: Path,
    processes: ForkClient,
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    passed: str | None,
) -> None:
    """A variable of the environment reaches the services by itself."""
    monkeypatch.delenv(up.DELAY_VARIABLE, raising=False)
    if given is not None:
        monkeypatch.setenv(up.DELAY_VARIABLE, given)
    etcd = EtcdClient.connect(["http://127.0.0.1:1"])
    env = (
        up.Up(UpPlan(data_dir=tmp_path), processes, print)
        ._spec("coordinator", 1, "http://127.0.0.1:1", etcd)
        .env
    )
    await etcd.close()
    assert env.get(up.DELAY_VARIABLE) == passed


async def test_a_child_that_dies_while_etcd_is_away_is_started_again(
    tmp_path: Path, processes: ForkClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its registration stays until its lease ends. The error must not end `up`."""
    etcd = EtcdClient.connect(["http://127.0.0.1:1"])
    after_death = (
        up.Up(UpPlan(data_dir=tmp_path), processes, print)
        ._spec("produce", 1, "http://127.0.0.1:1", etcd)
        .after_death
    )
    assert after_death is not None
    await after_death()
    await etcd.close()


def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str) -> UpPlan:
    """What `kafscale up` would run."""
    plans: list[UpPlan] = []
    monkeypatch.setattr("kafscale.cli.__main__._run", plans.append)
    result = CliRunner().invoke(app, ["up", "--data-dir", str(tmp_path), *words])
    assert result.exit_code == 0, result.output
    (plan,) = plans
    return plan


@pytest.mark.parametrize("port", ["0", "65536", "-1"])
def test_a_port_that_no_client_could_reach_is_refused(tmp_path: Path, port: str) -> None:
    done = CliRunner().invoke(app, ["up", "--data-dir", str(tmp_path / "data"), "--port", port])
    assert done.exit_code == 2
    assert "--port" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("every", ["0.0.0.0", "::", "[::]", ""])
def test_every_address_is_listened_on_only_with_a_host_for_clients(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, every: str
) -> None:
    for words in (["--listen", every], ["--advertise", every], ["--listen", every, "--advertise", every]):
        done = CliRunner().invoke(app, ["up", "--data-dir", str(tmp_path / "data"), *words])
        assert done.exit_code == 2
        assert "--advertise" in done.stderr
        assert not (tmp_path / "data").exists()
    assert planned(monkeypatch, tmp_path, "--listen", every, "--advertise", "h").bootstrap == "h:9092"


@pytest.mark.parametrize("host", ["::1", "[::1]"])
async def test_an_ipv6_address_is_written_as_in_urls(
    tmp_path: Path, processes: ForkClient, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    plan = planned(monkeypatch, tmp_path, "--listen", host, "--port", "1234")
    assert (plan.host, plan.bootstrap) == ("::1", "[::1]:1234")
    etcd = EtcdClient.connect(["http://127.0.0.1:1"])
    env = up.Up(plan, processes, print)._spec("frontdoor", 1, "http://127.0.0.1:1", etcd).env
    await etcd.close()
    for name in ("KAFSCALE_LISTENERS", "KAFSCALE_ADVERTISED_LISTENERS"):
        (listener,) = listeners.parse(env[name], setting=name)
        assert (listener.host, listener.port) == ("::1", 1234)


@pytest.mark.parametrize(
    ("authorizer", "words", "expected"),
    [
        (None, [], False),
        ("none", [], False),
        ("acl", [], True),
        ("acl", ["--no-internal-tls"], False),
        (None, ["--internal-tls"], True),
    ],
)
def test_with_an_authorizer_only_front_doors_can_speak_for_clients(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, authorizer: str | None, words: list[str], expected: bool
) -> None:
    if authorizer is None:
        monkeypatch.delenv("KAFSCALE_AUTHORIZER", raising=False)
    else:
        monkeypatch.setenv("KAFSCALE_AUTHORIZER", authorizer)
    assert planned(monkeypatch, tmp_path, *words).internal_tls is expected


@pytest.mark.parametrize("protocol", SecurityProtocol)
async def test_the_port_for_clients_has_the_wanted_protocol(
    tmp_path: Path, processes: ForkClient, protocol: SecurityProtocol
) -> None:
    plan = UpPlan(data_dir=tmp_path, port=1234, advertised_host="kafka.example.com", protocol=protocol)
    etcd = EtcdClient.connect(["http://127.0.0.1:1"])
    env = up.Up(plan, processes, print)._spec("frontdoor", 2, "http://127.0.0.1:1", etcd).env
    await etcd.close()
    assert env["KAFSCALE_LISTENERS"] == f"{protocol}://127.0.0.1:1235"
    assert env["KAFSCALE_ADVERTISED_LISTENERS"] == f"{protocol}://kafka.example.com:1235"


def test_the_protocols_are_those_of_the_front_door() -> None:
    assert [each.value for each in SecurityProtocol] == [
        each.value for each in listener_security.SecurityProtocol
    ]
