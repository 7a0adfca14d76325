"""A data directory has one user at a time."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from kafscale.operations.datadir import DataDir, DataDirBusy, DataDirUnusable, Endpoints
from kafscale.operations.disk import Disk, Use

ENDPOINTS = Endpoints(
    bootstrap_servers="127.0.0.1:1", etcd="http://127.0.0.1:2", namespace="n", object_dir="o", pid=os.getpid()
)


def test_a_second_user_is_refused_with_the_first_ones_process(tmp_path: Path) -> None:
    first, second = DataDir(tmp_path), DataDir(tmp_path)
    first.acquire()
    with pytest.raises(DataDirBusy, match=rf"a `kafscale` command that reads it \(process {os.getpid()}\)"):
        second.acquire()
    first.release()
    second.acquire(pid_of_up=7)
    with pytest.raises(DataDirBusy, match=r"another `kafscale up` \(process 7\)"):
        first.acquire()
    second.release()


def test_the_lock_goes_with_a_process_that_is_killed(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, signal\n"
        "from kafscale.operations.datadir import DataDir\n"
        f"DataDir(pathlib.Path({str(tmp_path)!r})).acquire()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=False, timeout=30)
    data = DataDir(tmp_path)
    data.acquire()
    data.release()


def test_endpoints_are_found_while_it_runs_and_gone_after(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    assert data.running() is None
    data.acquire()
    data.publish(ENDPOINTS)
    assert DataDir(tmp_path).running() == ENDPOINTS
    data.release()
    assert data.running() is None


def test_endpoints_left_by_a_killed_supervisor_are_not_believed(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    data.acquire()
    data.publish(ENDPOINTS)
    data.abandon()
    assert DataDir(tmp_path).running() is None


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_nobody_else_may_look_into_a_data_directory(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "new")
    data.acquire()
    data.publish(ENDPOINTS)
    folders = (data.root, data.etcd, data.objects, data.logs, data.root / "run")
    assert [mode(folder) for folder in folders] == [0o700] * len(folders)
    assert mode(data.root / "run" / "lock") == 0o600
    data.release()


def test_what_an_earlier_version_made_for_all_to_read_is_shut(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    for folder in (data.logs, data.objects / "ns", data.tools):
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    log = data.logs / "produce-1.log"
    for path in (log, data.root / "run" / "endpoints.json", data.root / "run" / "lock"):
        path.touch(0o644)
        path.chmod(0o644)
    theirs = tmp_path / "notes.txt"
    theirs.touch(0o644)
    tmp_path.chmod(0o755)
    data.acquire()
    assert [mode(each) for each in (data.logs, data.objects, data.tools, data.root / "run")] == [0o700] * 4
    assert {mode(path) for path in (log, *(data.root / "run").glob("*.json"))} == {0o600}
    assert (mode(tmp_path), mode(theirs)) == (0o755, mode(theirs)), (
        "the root may hold other things of its user's"
    )
    data.release()


def test_a_file_in_its_place_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(DataDirUnusable, match=f"^{path} cannot be a folder: a file is at that place"):
            DataDir(path).acquire()


def test_a_place_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, whom no permission stops."""

    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DataDirUnusable, match="data: permission denied; make .*/data writable for this user"):
        DataDir(tmp_path / "data").acquire()


def test_a_full_disk_is_named_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.write", refuse)
    monkeypatch.setattr(DataDir, "disk", lambda data: Disk(data.root, Use.ETCD, 0, 260 << 20))
    with pytest.raises(DataDirUnusable, match=r"^the disk of .* is full \(0 of 260 MB free\); make room"):
        DataDir(tmp_path).acquire()
