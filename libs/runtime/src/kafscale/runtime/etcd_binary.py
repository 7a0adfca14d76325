"""Runs one member of etcd, without root and without containers. It ends with the process that started it.

The size of etcd's database levels off: etcd keeps at most the history of twice HISTORY, and reuses the pages of
compacted history. A commit of a head takes 4.1 KB, so the quota is enough for 5,000 commits/s with 40 % to spare.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafscale.runtime.ports import free_port

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.02
PROBE_TIMEOUT_S = 2.0
QUOTA_BYTES = 8 << 30
HISTORY = "2m"
"""History that auto-compaction keeps, and its period. So etcd holds up to twice as much."""
SNAPSHOT_ENTRIES = 10_000
"""Entries of the raft log in memory before a snapshot; the default of 3.6. An entry may be a megabyte."""
# etcd expects host:port after unix://, and creates a socket of that name in its working directory.
CLIENT_SOCKET, PEER_SOCKET = "client:0", "peer:0"
SOCKET_PATH_BYTES_MAX = 100
"""The kernel's limit is 107."""
# A single member elects itself after its election timeout, by default one to two seconds. There is no other member
# whose heartbeat could be late, so the timeout may be short.
ALONE = ("--heartbeat-interval=10", "--election-timeout=50")
LOG_TAIL_BYTES = 2_000

# What etcd logs if its minor version is older than that of the data.
_DOWNGRADE = re.compile(r'"msg":"invalid downgrade.*"determined-cluster-version":"(\d+)\.(\d+)"')


class EtcdFailed(Exception):
    """etcd was started but does not serve. `log`: what it has logged since, at most LOG_TAIL_BYTES."""

    def __init__(self, why: str, log_path: Path, log: str) -> None:
        super().__init__(f"etcd {why}; the end of {log_path}:\n{log or '(empty)'}")
        self.log_path = log_path
        newer = _DOWNGRADE.search(log)
        self.data_version = None if newer is None else (int(newer[1]), int(newer[2]), 0)
        """The version of etcd that the data needs at least, if this one is too old for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTls:
    """PEM files for etcd's client port. With `client_ca`, clients must present a certificate that it signed."""

    cert: Path
    key: Path
    client_ca: Path | None = None


@contextmanager
def socket_folder(wanted: Path) -> Iterator[Path]:
    """Creates `wanted` for this user only, or a temporary folder if its path is too long for sockets.

    The folder is removed afterwards.
    """
    if len(os.fsencode(wanted / CLIENT_SOCKET)) > SOCKET_PATH_BYTES_MAX:
        with tempfile.TemporaryDirectory(prefix="kafscale-") as folder:
            yield Path(folder)
        return
    wanted.mkdir(parents=True, exist_ok=True)
    wanted.chmod(0o700)
    try:
        yield wanted
    finally:
        shutil.rmtree(wanted, ignore_errors=True)


def leashed(argv: Sequence[str]) -> list[str]:
    """The command under util-linux's setpriv: the kernel kills the child when this process dies.

    Python code between fork and exec could ask the kernel, too. But it would run in a copy of this process without
    gRPC's threads, and gRPC's fork handlers would write warnings to the child's log, or hang.
    """
    setpriv = shutil.which("setpriv")
    return [*argv] if setpriv is None else [setpriv, "--pdeathsig", "KILL", *argv]


class _OverSocket(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class EtcdProcess:
    """One etcd member on loopback. It keeps its ports and its data directory over restarts.

    With `sockets`, a folder that only this user may enter, it has no ports: no other user of the machine and no web
    page in a browser can reach it.
    """

    def __init__(
        self,
        binary: Path,
        data_dir: Path,
        *,
        log_path: Path,
        name: str = "n0",
        client_port: int | None = None,
        peer_port: int | None = None,
        initial_cluster: str | None = None,
        quota_bytes: int = QUOTA_BYTES,
        tls: MemberTls | None = None,
        extra: Sequence[str] = (),
        sockets: Path | None = None,
    ) -> None:
        self.binary = binary
        self.data_dir = data_dir.absolute()
        self._sockets = None if sockets is None else sockets.absolute()
        self.log_path = log_path
        self.name = name
        self.client_port = client_port or free_port()
        self.peer_port = peer_port or free_port()
        self._initial_cluster = initial_cluster
        self._quota_bytes = quota_bytes
        self._tls = tls
        self._extra = tuple(extra)
        self._metrics_port = self.client_port if tls is None else free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0
        """The size of the log file at the last launch."""

    @property
    def endpoint(self) -> str:
        if self._sockets is not None:
            return f"unix://{self._sockets / CLIENT_SOCKET}"
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.client_port}"

    @property
    def peer_url(self) -> str:
        if self._sockets is not None:
            return f"unix://{PEER_SOCKET}"
        return f"http://127.0.0.1:{self.peer_port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self.is_running and self._process is not None else None

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def command(self) -> list[str]:
        client_url = self.endpoint if self._sockets is None else f"unix://{CLIENT_SOCKET}"
        flags = [
            f"--name={self.name}",
            f"--data-dir={self.data_dir}",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={self.peer_url}",
            f"--initial-advertise-peer-urls={self.peer_url}",
            f"--initial-cluster={self._initial_cluster or f'{self.name}={self.peer_url}'}",
            "--auto-compaction-mode=periodic",
            f"--auto-compaction-retention={HISTORY}",
            f"--quota-backend-bytes={self._quota_bytes}",
            f"--snapshot-count={SNAPSHOT_ENTRIES}",
            "--host-whitelist=127.0.0.1,localhost",  # rejects names that a web page has pointed to 127.0.0.1
            "--cors=http://127.0.0.1:1",  # the default allows every web page; no page has the origin port 1
            "--logger=zap",
            "--log-level=error",
        ]
        if self._initial_cluster is None:
            flags += ALONE
        if self._tls is not None:
            flags += [f"--cert-file={self._tls.cert}", f"--key-file={self._tls.key}"]
            flags += [f"--listen-metrics-urls=http://127.0.0.1:{self._metrics_port}"]
            if self._tls.client_ca is not None:
                flags += ["--client-cert-auth", f"--trusted-ca-file={self._tls.client_ca}"]
        return leashed([str(self.binary), *flags, *self._extra])

    def launch(self) -> None:
        """Starts the process and does not wait. Call it from the main thread: etcd dies with the calling thread."""
        assert not self.is_running, "etcd is running already"
        self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        if self._sockets is not None:  # etcd does not replace the sockets of a killed etcd
            (self._sockets / CLIENT_SOCKET).unlink(missing_ok=True)
            (self._sockets / PEER_SOCKET).unlink(missing_ok=True)
        env = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
        if platform.machine() == "aarch64":
            env["ETCD_UNSUPPORTED_ARCH"] = "arm64"  # 3.4 asks for it
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            # A separate process group: Ctrl-C in a terminal must not end etcd before its clients have drained.
            self._process = subprocess.Popen(  # noqa: S603 -- built above
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                process_group=0,
                cwd=self._sockets,
            )

    def wait_until_healthy(self, timeout_s: float = START_TIMEOUT_S) -> tuple[str, ...]:
        """Blocks until etcd has a leader and serves. Returns the raised alarms. Raises `EtcdFailed`."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            if self._process is None or self._process.poll() is not None:
                code = None if self._process is None else self._process.returncode
                raise self._failed(f"ended with code {code} while starting")
            alarms = self._alarms()
            if alarms is not None:
                return alarms
            if time.monotonic() > deadline_s:
                raise self._failed(f"does not serve {self.endpoint} after {timeout_s:.0f} s")
            time.sleep(POLL_S)

    async def start(self, timeout_s: float = START_TIMEOUT_S) -> tuple[str, ...]:
        """Launches etcd and waits until it is healthy. On failure it kills etcd."""
        self.launch()
        try:
            return await asyncio.to_thread(self.wait_until_healthy, timeout_s)
        except BaseException:
            self.kill()
            raise

    async def wait(self) -> int:
        """Waits until etcd has ended; its exit code. The number of a signal is negative."""
        assert self._process is not None, "etcd was not started"
        if self._process.poll() is None:
            ended = asyncio.Event()
            loop = asyncio.get_running_loop()
            descriptor = os.pidfd_open(self._process.pid)
            loop.add_reader(descriptor, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(descriptor)
                os.close(descriptor)
        return self._process.wait()

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Sends SIGTERM, and SIGKILL after `timeout_s`."""
        if not self.is_running or self._process is None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(timeout_s):
                await self.wait()
        except TimeoutError:
            self.kill()

    def kill(self) -> None:
        """Sends SIGKILL, and waits until the process has ended."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "etcd was not started"
        self._process.send_signal(number)

    def _alarms(self) -> tuple[str, ...] | None:
        """The raised alarms; None while etcd does not serve. While an alarm is raised, /health is not true."""
        try:
            healthy = self._ask("GET", "/health", self._metrics_port)
            if healthy.get("health") == "true":
                return ()
            if self._tls is not None:
                return None
            raised = self._ask("POST", "/v3/maintenance/alarm", self.client_port).get("alarms") or []
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            return None
        return tuple(str(alarm["alarm"]) for alarm in raised) or None

    def _ask(self, verb: str, path: str, port: int) -> dict[str, Any]:
        if self._sockets is None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PROBE_TIMEOUT_S)
        else:
            connection = _OverSocket(self._sockets / CLIENT_SOCKET, PROBE_TIMEOUT_S)
        try:
            connection.request(verb, path, body=b'{"action":"GET"}' if verb == "POST" else None)
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer
        finally:
            connection.close()

    def _failed(self, why: str) -> EtcdFailed:
        return EtcdFailed(why, self.log_path, _tail(self.log_path, self._log_start))


def _tail(path: Path, start: int) -> str:
    """The end of the file from byte `start` on."""
    try:
        with path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(start, log.tell() - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip()
    except OSError as error:
        return f"({error})"
