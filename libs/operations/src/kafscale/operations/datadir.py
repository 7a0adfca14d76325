"""The data directory of `kafscale up`: one folder with all state, for one process at a time.

Only the user that runs `kafscale up` can read it.

etcd/                the metadata server's own files
etcd.json            the program of etcd that ran them last, and its version; an older one cannot run them
objects/             the bucket: segments, indexes, manifests
run/lock             held by the supervisor while it runs
run/etcd/            etcd's sockets while it runs; they are elsewhere if this path is too long for a socket
run/endpoints.json   where everything listens, for the other commands; gone after a clean stop
run/log/*.log        what each process printed
tools/               programs that were fetched because the machine had none
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from kafscale.operations.disk import Disk, Use
from kafscale.operations.sentences import Trouble
from kafscale.runtime.debian_packages import Programs
from kafscale.runtime.etcd_binary import QUOTA_BYTES, EtcdFailed, EtcdProcess, socket_folder
from kafscale.runtime.etcd_program import Ran, Report, find_etcd, read_ran, version_of, write_ran
from kafscale.storage.objects.disk_files import NO_ROOM

PRIVATE_FOLDER: Final = 0o700
PRIVATE_FILE: Final = 0o600


class DataDirBusy(Trouble):
    """Another process uses the directory. `holder` is what it wrote into the lock."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(
            f"{path} is in use by {holder or 'another process'}; stop it first, or use another --data-dir"
        )


class DataDirUnusable(Trouble):
    """The directory cannot be used as it is. The text says what is wrong and what to do."""


class NotRunning(Trouble):
    """No cluster runs on the directory, or it is not ready yet."""

    def __init__(self, path: Path, *, locked: bool) -> None:
        super().__init__(
            f"the cluster on {path} is not ready yet; wait until `kafscale up` says that it is"
            if locked
            else f"no cluster runs on {path}; start it with `kafscale up --data-dir {shlex.quote(str(path))}`"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The content of `run/endpoints.json`. Other commands find a running cluster with it.

    `object_dir` is empty if the records are in S3.
    """

    bootstrap_servers: str
    etcd: str
    namespace: str
    object_dir: str
    pid: int


class DataDir:
    def __init__(self, root: Path) -> None:
        self._given = root
        self.root = root.absolute()
        self.etcd = self.root / "etcd"
        self.objects = self.root / "objects"
        self.sockets = self.root / "run" / "etcd"
        self.logs = self.root / "run" / "log"
        self.tls = self.root / "run" / "tls"
        self.tools = self.root / "tools"
        self._etcd_ran = self.root / "etcd.json"
        self._lock_path = self.root / "run" / "lock"
        self._endpoints = self.root / "run" / "endpoints.json"
        self._lock: int | None = None

    def acquire(self, *, pid_of_up: int | None = None) -> None:
        """Creates the folders and takes the lock, or raises DataDirBusy or DataDirUnusable.

        `pid_of_up`: the process of `kafscale up` that a user sees and can stop. Without it, the holder is this process,
        a command that reads a stopped cluster.
        """
        up = pid_of_up is not None
        with self._usable():
            self._acquire(
                f"another `kafscale up` (process {pid_of_up})"
                if up
                else f"a `kafscale` command that reads it (process {os.getpid()})"
            )

    def disk(self, *, with_records: bool = False) -> Disk:
        """The one that etcd is on. `with_records`: records are in this directory, not in S3."""
        both = with_records and not self._records_elsewhere()
        return Disk.of(self.root, Use.BOTH if both else Use.ETCD)

    def disks(self, *, with_records: bool) -> list[Disk]:
        """The bucket's folder may be a mount of its own."""
        first = self.disk(with_records=with_records)
        if not with_records or first.use is Use.BOTH:
            return [first]
        return [first, Disk.of(self.objects, Use.RECORDS)]

    def _records_elsewhere(self) -> bool:
        return self.objects.is_dir() and self.objects.stat().st_dev != self.root.stat().st_dev

    @contextmanager
    def _usable(self) -> Iterator[None]:
        """Raises DataDirUnusable for an error of the operating system."""
        try:
            yield
        except (FileExistsError, NotADirectoryError) as error:
            raise DataDirUnusable(
                f"{error.filename} cannot be a folder: a file is at that place, or above it; use another --data-dir"
            ) from error
        except PermissionError as error:
            raise DataDirUnusable(
                f"{error.filename}: permission denied; make {self._given} writable for this user, or use another "
                "--data-dir"
            ) from error
        except OSError as error:
            if error.errno in NO_ROOM and (full := self.disk().full()) is not None:
                raise DataDirUnusable(f"{full}; make room, and start again") from error
            raise DataDirUnusable(f"{error.filename or self._given}: {error.strerror}") from error

    def _acquire(self, holder: str) -> None:
        self._make_private()
        lock = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise DataDirBusy(self.root, self._lock_path.read_text().strip()) from None
        os.ftruncate(lock, 0)
        os.write(lock, f"{holder}\n".encode())
        self._lock = lock

    def _make_private(self) -> None:
        """Also folders that an earlier version created readable for all. Files in a private folder are private, too.

        The mode of an existing root does not change: the user may keep other files there.
        """
        self.root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
        for folder in (self.root / "run", self.logs, self.etcd, self.objects, self.tools):
            if folder != self.tools:
                folder.mkdir(parents=True, exist_ok=True)
            if folder.is_dir():
                folder.chmod(PRIVATE_FOLDER)
        for path in (*(self.root / "run").iterdir(), *self.logs.iterdir()):
            if path.is_file():
                path.chmod(PRIVATE_FILE)

    def publish(self, endpoints: Endpoints) -> None:
        """Raises DataDirUnusable."""
        with self._usable():
            self._publish(endpoints)

    def _publish(self, endpoints: Endpoints) -> None:
        temporary = self._endpoints.with_suffix(".tmp")
        temporary.write_text(json.dumps(asdict(endpoints), indent=2) + "\n")
        temporary.replace(self._endpoints)

    def running(self) -> Endpoints | None:
        """The cluster that runs on this directory now, or None. The file of a dead supervisor is ignored.

        Raises DataDirUnusable if this user may not look.
        """
        with self._usable():
            if not self._is_locked():
                return None
            try:
                return Endpoints(**json.loads(self._endpoints.read_text()))
            except FileNotFoundError:
                return None

    def must_run(self) -> Endpoints:
        """The cluster that runs on this directory now. Raises NotRunning and DataDirUnusable."""
        running = self.running()
        if running is None:
            raise NotRunning(self._given, locked=self._is_locked())
        return running

    def _is_locked(self) -> bool:
        try:
            lock = os.open(self._lock_path, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def etcd_ran(self) -> Ran | None:
        """What ran the data of etcd last; None for new data, and for data of a version that did not write it down."""
        return read_ran(self._etcd_ran) if (self.etcd / "member").is_dir() else None

    def remember_etcd(self, program: Path) -> None:
        """To be called when this program serves the data: from now on no older one can. Raises DataDirUnusable."""
        ran = version_of(program)
        if ran is not None and ran != read_ran(self._etcd_ran):
            with self._usable():
                write_ran(self._etcd_ran, ran)

    def release(self) -> None:
        """Removes the endpoints and gives up the lock."""
        self._endpoints.unlink(missing_ok=True)
        self.abandon()

    def abandon(self) -> None:
        """Gives up the lock and changes nothing else, like a kill."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def full_disk(root: Path | None) -> str | None:
    """A sentence, if a cluster runs on this directory and a disk of it is full."""
    if root is None or (running := DataDir(root).running()) is None:
        return None
    disks = DataDir(root).disks(with_records=bool(running.object_dir))
    return next((full for disk in disks if (full := disk.full()) is not None), None)


@asynccontextmanager
async def started_etcd(
    data: DataDir, report: Report, quota_bytes: int = QUOTA_BYTES
) -> AsyncIterator[EtcdProcess]:
    """The etcd of a directory that the caller has acquired; stopped at the end.

    Raises EtcdMissing, EtcdFailed and DataDirUnusable.
    """
    if not (data.etcd / "member").is_dir() and (small := data.disk().too_small()) is not None:
        raise DataDirUnusable(small)
    with socket_folder(data.sockets) as sockets:
        server = await _serving(data, report, quota_bytes, sockets)
        try:
            yield server
        finally:
            await server.stop()


async def _serving(data: DataDir, report: Report, quota_bytes: int, sockets: Path) -> EtcdProcess:
    """If etcd says that it is older than the data, the search begins again for one that is not."""
    last, asked = data.etcd_ran(), False
    while True:
        program = await _found(data.tools, report, last)
        log_path = data.logs / "etcd.log"
        server = EtcdProcess(program, data.etcd, log_path=log_path, quota_bytes=quota_bytes, sockets=sockets)
        try:
            await server.start()
        except EtcdFailed as failed:
            if failed.data_version is None or asked:
                if (full := data.disk().full()) is not None:
                    raise DataDirUnusable(
                        f"etcd cannot start: {full}; make room, and start again"
                    ) from failed
                raise
            last, asked = Ran(program=program, version=failed.data_version), True
            continue
        try:
            await asyncio.to_thread(data.remember_etcd, program)
        except BaseException:
            server.kill()
            raise
        return server


async def _found(tools: Path, report: Report, last: Ran | None) -> Path:
    """A cancellation ends the download."""
    programs = Programs()
    try:
        return await asyncio.to_thread(find_etcd, tools, report, last, programs=programs)
    except asyncio.CancelledError:
        programs.end()
        raise
