"""A real redis for tests, on a free loopback port; it keeps nothing on disk.

The program is the one on PATH, or Debian's packages unpacked into a folder.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from kafscale.runtime.debian_packages import NotFetched, keep, unpacked
from kafscale.runtime.ports import free_port
from kafscale.testkit.seaweed import dying_with_parent
from redis import Redis
from redis.exceptions import RedisError

PACKAGES: Final = ("redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
READY_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.02


def find_redis() -> Path:
    """The program, downloaded once per user if needed. Without it the test is skipped, or fails if CI is set."""
    found = shutil.which("redis-server")
    if found is not None:
        return Path(found)
    home = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "kafscale" / "tools" / "redis"
    if not home.is_dir():
        logging.getLogger(__name__).warning("redis-server is not on PATH; unpacking Debian's into %s", home)
        try:
            _unpack(home)
        except (NotFetched, OSError, subprocess.SubprocessError) as error:
            sentence = (
                f"no redis-server, and none was fetched ({error}). On Debian: apt-get install redis-server"
            )
            if os.environ.get("CI"):
                pytest.fail(sentence)
            pytest.skip(sentence)
    return home / "usr/bin/redis-server"


def _unpack(home: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".fetch-") as scratch:
        for package in PACKAGES:
            tree = unpacked(package, Path(scratch))
        (tree / "usr/bin/redis-server").symlink_to(
            "redis-check-rdb"
        )  # what the package redis-server consists of
        keep(tree, home)


class RedisServer:
    """`start`, `kill`, `start` again: empty, on the same port."""

    def __init__(self, folder: Path, extra: Sequence[str] = ()) -> None:
        self._folder = folder
        self._extra = extra
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.client = Redis(port=self.port)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when the server answers."""
        assert self._process is None, "started already"
        self._folder.mkdir(parents=True, exist_ok=True)
        program = find_redis()
        libraries = program.parent.parent / "lib" / f"{os.uname().machine}-linux-gnu"
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*dying_with_parent(), str(program), *self._arguments()],
                cwd=self._folder,
                env={**os.environ, "LD_LIBRARY_PATH": str(libraries)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, self._story()
            assert time.monotonic() < deadline, self._story()
            time.sleep(_POLL_S)

    def _arguments(self) -> list[str]:
        address = ["--bind", "127.0.0.1", "--port", str(self.port)]
        return [*address, "--save", "", "--appendonly", "no", *self._extra]

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except RedisError:
            return False

    def _story(self) -> str:
        return (self._folder / "redis.log").read_text(errors="replace")[-2_000:]

    def kill(self) -> None:
        """Sends SIGKILL, and waits until the process has ended."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Until the block ends, the server accepts connections but answers nothing."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """An empty server for one test."""
    server = RedisServer(tmp_path / "redis")
    server.start()
    yield server
    server.client.close()
    server.kill()
