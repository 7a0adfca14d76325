"""Takes the etcd of a running `kafscale up` back in its history, below the processes, which go on."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.harness.cluster import Cluster
from e2e.harness.services import until


@contextmanager
def _suspended(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def keep_state(cluster: Cluster, folder: Path) -> None:
    """Copies what etcd has on its disk at one moment, as a snapshot of a volume does. `folder` must not exist."""
    (etcd,) = cluster.pids("etcd")
    with _suspended(etcd):
        shutil.copytree(cluster.data_dir / "etcd", folder)


def replace_state(cluster: Cluster, state: Path | None) -> None:
    """etcd dies, and begins again with that state (None: with nothing). No other process is restarted."""
    (etcd,) = cluster.pids("etcd")
    with _suspended(_parent(etcd)):  # it must not start etcd while the files are exchanged
        os.kill(etcd, signal.SIGKILL)
        until("etcd has ended", lambda: _has_ended(etcd))
        put_state(cluster, state)
    until("etcd runs again", lambda: cluster.pids("etcd") not in ([], [etcd]))


def put_state(cluster: Cluster, state: Path | None) -> None:
    """Exchanges the files of an etcd that does not run."""
    data = cluster.data_dir / "etcd"
    shutil.rmtree(data)
    if state is None:
        data.mkdir(mode=0o700)
    else:
        shutil.copytree(state, data)


def _has_ended(pid: int) -> bool:
    """Its parent, which is suspended, has not noticed yet."""
    return _stat(pid)[0] == "Z"


def _parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    """State, parent and more: what follows the name in brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
