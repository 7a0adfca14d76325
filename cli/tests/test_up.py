"""The messages of `kafscale up` on the terminal."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kafscale.cli import up
from kafscale.cli.__main__ import app
from kafscale.cli.datadir import DataDir
from kafscale.cli.forked import ForkClient
from kafscale.cli.options import ROLES, SecurityProtocol
from kafscale.cli.up_plan import UpPlan
from kafscale.frontdoor.listeners import listener_security
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

    def __init__(self) -> None:
        self.children = dict.fromkeys((f"{role}-1" for role in ROLES), None)

    def mark_running(self, _child: object) -> None:
        return


async def test_ready_is_said_even_long_after_it_was_said_that_it_is_not(
    tmp_path: Path, processes: ForkClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answered(_host: str, _port: int) -> None:
        return

    monkeypatch.setattr(up, "READY_TIMEOUT_S", 0.01)
    monkeypatch.setattr(up, "wait_for_brokers", answered)
    monkeypatch.setattr(up.Up, "_not_ready", lambda *_: "not ready")
    lines: list[str] = []
    late = asyncio.Event()

    def report(line: str) -> None:
        lines.append(line)
        if lines.count("not ready") == 2:
            late.set()

    data = DataDir(tmp_path)
    data.acquire()
    views = {role: Slow(role) for role in ROLES}
    system = up.Up(UpPlan(data_dir=tmp_path, port=1234), processes, report)
    async with asyncio.TaskGroup() as group:
        group.create_task(system._announce(Children(), views, "http://etcd"))  # type: ignore[arg-type]
        await late.wait()
        for view in views.values():
            view.become_ready()
    assert lines[-2:] == [
        "KafScale is ready: bootstrap.servers=127.0.0.1:1234",
        f"commands reach it so: kafscale status --data-dir {tmp_path}",
    ]
    assert data.running() is not None
    data.release()


class Reluctant:
    """An etcd that died, does not start at the first try, and then runs."""

    def __init__(self, log: Path) -> None:
        self._log = log
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
        if self.starts == 1:
            raise EtcdFailed("does not serve after 30 s", self._log, "")
        self.runs.set()


async def test_an_etcd_that_does_not_start_again_at_once_is_tried_once_more(
    tmp_path: Path, processes: ForkClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "ETCD_RESTART_DELAY_S", 0.0)
    lines: list[str] = []
    system = up.Up(UpPlan(data_dir=tmp_path), processes, lines.append)
    server = Reluctant(tmp_path / "etcd.log")
    keeping = asyncio.create_task(system._keep_etcd(server))  # type: ignore[arg-type]
    await asyncio.wait_for(server.runs.wait(), 10)
    keeping.cancel()
    assert [line.splitlines()[0] for line in lines] == [
        "etcd ended with code -9; starting it again",
        f"etcd does not serve after 30 s; the end of {tmp_path / 'etcd.log'}:",
    ]


def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str) -> UpPlan:
    """What `kafscale up` would run."""
    plans: list[UpPlan] = []
    monkeypatch.setattr("kafscale.cli.__main__._run", plans.append)
    result = CliRunner().invoke(app, ["up", "--data-dir", str(tmp_path), *words])
    assert result.exit_code == 0, result.output
    (plan,) = plans
    return plan


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
