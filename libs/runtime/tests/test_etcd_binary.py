"""Running an etcd that dies with us."""

from __future__ import annotations

import http.client
import os
import select
import shutil
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from kafscale.runtime.etcd_binary import EtcdFailed, EtcdProcess, socket_folder
from kafscale.storage.etcd.client import EtcdClient
from kafscale.testkit.etcd import etcd_program, start_etcd


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


async def test_data_and_endpoint_outlive_kills_and_a_new_supervisor(tmp_path: Path) -> None:
    with start_etcd(tmp_path) as first:
        client = EtcdClient.connect([first.endpoint])
        await client.put(b"a", b"1")
        first.kill()
        assert await first.wait() == -9
        endpoint = first.endpoint
        await first.start()
        assert first.endpoint == endpoint
        assert await client.get(b"a", timeout_s=10) is not None
        await client.close()
        await first.stop()
        assert not first.is_running
    with start_etcd(tmp_path) as second:
        client = EtcdClient.connect([second.endpoint])
        assert await client.get(b"a") is not None, "other ports, same data"
        await client.close()


def test_only_a_member_that_is_alone_does_not_wait_for_others_heartbeats(tmp_path: Path) -> None:
    """Of several, each must give a slow leader the time that etcd's own defaults give it."""
    alone = EtcdProcess(Path("etcd"), tmp_path / "d", log_path=tmp_path / "log")
    cluster = f"n0={alone.peer_url},n1=http://127.0.0.1:1"
    one_of_two = EtcdProcess(Path("etcd"), tmp_path / "d", log_path=tmp_path / "log", initial_cluster=cluster)
    assert any("--election-timeout" in flag for flag in alone.command())
    assert not any("--election-timeout" in flag for flag in one_of_two.command())


async def test_an_etcd_with_sockets_serves_nobody_else_and_takes_up_the_data_of_one_with_ports(
    tmp_path: Path,
) -> None:
    with start_etcd(tmp_path) as before:
        client = EtcdClient.connect([before.endpoint])
        await client.put(b"a", b"1")
        await client.close()
        await before.stop()
    with socket_folder(tmp_path / "run") as folder:
        server = EtcdProcess(etcd_program(), tmp_path / "data", log_path=tmp_path / "log", sockets=folder)
        assert await server.start() == ()
        try:
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
            assert listening_ports(server.pid) == set()
            client = EtcdClient.connect([server.endpoint])
            kv = await client.get(b"a")
            assert kv is not None
            assert kv.value == b"1"
            server.kill()
            await server.start()
            assert await client.get(b"a", timeout_s=10) is not None, "its old socket is in nobody's way"
            await client.close()
        finally:
            server.kill()
    assert not folder.exists()


def listening_ports(pid: int | None) -> set[str]:
    """Inodes of the sockets in state LISTEN that the process holds."""
    held = {os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    tables = [Path(f"/proc/{pid}/net/{kind}").read_text() for kind in ("tcp", "tcp6")]
    rows = [line.split() for table in tables for line in table.splitlines()]
    return {row[9] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in held}


async def test_a_folder_whose_path_is_too_long_for_a_socket_is_replaced(tmp_path: Path) -> None:
    with socket_folder(tmp_path / ("long" * 25)) as folder:
        assert not folder.is_relative_to(tmp_path)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        server = EtcdProcess(etcd_program(), tmp_path / "data", log_path=tmp_path / "log", sockets=folder)
        try:
            await server.start()
        finally:
            server.kill()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("headers", "status", "allowed"),
    [({}, 200, None), ({"Origin": "http://evil.example"}, 200, None), ({"Host": "evil.example"}, 421, None)],
)
def test_a_web_page_neither_reads_etcd_nor_reaches_it_by_a_name_of_its_own(
    etcd_server: EtcdProcess, headers: dict[str, str], status: int, allowed: str | None
) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", etcd_server.client_port, timeout=10)) as connection:
        connection.request("POST", "/v3/kv/range", body=b'{"key":"YQ=="}', headers=headers)
        answer = connection.getresponse()
        answer.read()
    assert (answer.status, answer.headers.get("Access-Control-Allow-Origin")) == (status, allowed)


async def test_an_etcd_that_does_not_start_says_why_in_its_own_words(tmp_path: Path) -> None:
    process = EtcdProcess(etcd_program(), tmp_path / "d", log_path=tmp_path / "log", extra=["--no-such-flag"])
    with pytest.raises(EtcdFailed, match=r"ended with code 2(?s:.*)-no-such-flag"):
        await process.start()
    assert not process.is_running


def test_an_etcd_that_hangs_is_given_up_on(tmp_path: Path) -> None:
    program = script(tmp_path / "etcd", "#!/bin/sh\nexec tail -f /dev/null\n")
    process = EtcdProcess(program, tmp_path / "d", log_path=tmp_path / "log")
    process.launch()
    try:
        with pytest.raises(EtcdFailed, match="does not serve http://127.0.0.1"):
            process.wait_until_healthy(timeout_s=0.2)
    finally:
        process.kill()


def test_variables_that_would_change_etcd_are_not_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCD_LISTEN_CLIENT_URLS", "http://0.0.0.0:1")
    with start_etcd(tmp_path) as server:
        assert server.is_running


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is missing")
def test_etcd_dies_with_whoever_started_it(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from kafscale.runtime.etcd_binary import EtcdProcess\n"
        f"home = Path({str(tmp_path)!r})\n"
        f"p = EtcdProcess(Path({str(etcd_program())!r}), home / 'd', log_path=home / 'log')\n"
        "p.launch(); p.wait_until_healthy(); print(p.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    starter = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    assert starter.returncode == -9
    pid = int(starter.stdout)
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(5_000), "etcd outlived its starter"
    os.close(descriptor)
