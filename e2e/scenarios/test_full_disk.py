"""`kafscale up` on a disk that is too small, or becomes full: by its own records, or by something else.

Laws: one sentence names the disk. Records leave room for etcd, which goes on: producers get KAFKA_STORAGE_ERROR,
consumers read on, and a deletion makes room. If something else takes all the room, etcd ends, and `up` says why, once.
When there is room again everything goes on by itself, and nothing acknowledged is lost. `kafscale status` exits 1.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from kafscale.operations.disk import ETCD_PIECE_BYTES
from kafscale.runtime.ports import free_port
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch

from e2e.harness.cluster import KAFSCALE, Cluster
from e2e.harness.commands import Commands
from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import TOPIC, batch, create, send
from e2e.harness.services import until

DISK_MB: Final = 400
TINY_MB: Final = 40
PIECE: Final = 900_000
START_S: Final = 120

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts a disk of so many megabytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(megabytes: int) -> Path:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "kafscale-test", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
        return folder

    yield mount
    if os.path.ismount(folder):
        subprocess.run(["umount", folder], check=True)


@pytest.fixture
def cluster(disk: Callable[[int], Path]) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=disk(DISK_MB) / "data")
    try:
        cluster.start()
        with Raw.to(cluster.bootstrap) as raw:
            assert create(raw, TOPIC) == 0
        until("the topic takes records", lambda: sent(cluster) == ErrorCode.NONE)
        yield cluster
    finally:
        cluster.kill()


def sent(cluster: Cluster, records: bytes | None = None) -> int:
    """The error code of a Produce; -1 if the connection was closed."""
    try:
        with Raw.to(cluster.bootstrap) as raw:
            return send(raw, batch() if records is None else records)
    except (Closed, OSError):
        return -1


def free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def fill(filler: Path) -> None:
    """Until not a byte more fits."""
    block = bytes(1 << 16)
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(block):
            pass
    assert free_bytes(filler.parent) == 0


def test_a_first_start_on_a_disk_that_is_too_small_is_one_sentence(disk: Callable[[int], Path]) -> None:
    folder = disk(TINY_MB)
    done = subprocess.run(
        [*KAFSCALE, "up", "--port", str(free_port()), "--data-dir", str(folder / "data")],
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"the disk of {folder / 'data'} has too little room (39 of 40 MB free)" in line


def test_records_leave_room_for_etcd_and_a_deletion_makes_room(cluster: Cluster) -> None:
    commands = Commands(cluster.data_dir)
    commands.ok("produce words", stdin="one\ntwo\n")
    etcd = cluster.pids("etcd")
    large = build_batch([Record(timestamp=1_700_000_000_000, value=os.urandom(PIECE))])
    until("the disk is full", lambda: sent(cluster, large) == ErrorCode.KAFKA_STORAGE_ERROR)
    assert free_bytes(cluster.data_dir) > ETCD_PIECE_BYTES - (1 << 20)
    cluster.wait_for(f"the disk of {cluster.data_dir} is full")
    assert commands.ok("consume words --exit").splitlines() == ["one", "two"]
    status = commands.run("status")
    assert status.returncode == 1
    assert "MB are kept for etcd): records are refused" in " ".join(status.stdout.split())
    commands.ok(f"topics delete {TOPIC} --yes")
    cluster.wait_for("has room again")
    commands.ok("produce words", stdin="three\n")
    commands.ok("status")
    assert cluster.pids("etcd") == etcd, "it went on all the while"
    assert cluster.stop() == 0
    assert "clean" in cluster.fsck().stdout


def test_a_disk_that_something_else_fills_is_named_and_everything_goes_on_with_room(cluster: Cluster) -> None:
    commands = Commands(cluster.data_dir)
    commands.ok("produce words", stdin="one\ntwo\n")
    filler = cluster.data_dir.parent / "filler"
    fill(filler)
    cluster.wait_for(f"the disk of {cluster.data_dir} is full (0 of {DISK_MB} MB free)")
    cluster.signal("etcd", signal.SIGKILL)
    until("no etcd starts", lambda: cluster.pids("etcd") == [])
    refused = commands.run("status")
    assert refused.returncode == 1
    assert f"is full (0 of {DISK_MB} MB free)" in " ".join((refused.stdout + refused.stderr).split())
    before = len(cluster.output)
    filler.unlink()
    cluster.wait_for("has room again")
    said = [line for line in cluster.output[before:] if line.startswith("etcd ")]
    assert len(said) == 1, said
    assert f"is full (0 of {DISK_MB} MB free)" in said[0]
    until("records are taken", lambda: sent(cluster) == ErrorCode.NONE)
    assert commands.ok("consume words --exit").splitlines() == ["one", "two"]
    commands.ok("status")
    assert cluster.stop() == 0
    assert "clean" in cluster.fsck().stdout
