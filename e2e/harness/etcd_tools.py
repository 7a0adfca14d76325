"""etcd's own tool for snapshots, which restores them: unpacked from Debian's package, installed nowhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
from kafscale.runtime.debian_packages import NotFetched, unpacked

from e2e.harness.builds import built_once

RUN_S: Final = 120.0
MEMBER: Final = "n0=unix://peer:0"
"""The only member of the etcd of `kafscale up`."""


def etcdctl() -> str:
    """The program; skips the test if this machine cannot fetch it."""
    found = shutil.which("etcdctl")
    if found is not None:
        return found

    def make(folder: Path) -> None:
        shutil.copy(unpacked("etcd-client", folder) / "usr/bin/etcdctl", folder / "etcdctl")

    try:
        return str(built_once("etcdctl", make, of=[]) / "etcdctl")
    except NotFetched as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))


def restore_etcd(snapshot: Path, data_dir: Path, member: str = MEMBER, cluster: str = "") -> None:
    """Makes the data directory of a member. `cluster`: all members, if it is not the only one."""
    name, _, url = member.partition("=")
    places = ["--data-dir", str(data_dir), "--name", name]
    peers = ["--initial-cluster", cluster or member, "--initial-advertise-peer-urls", url]
    _run("snapshot", "restore", str(snapshot), *places, *peers)
    data_dir.chmod(0o700)


def save_etcd(endpoint: str, snapshot: Path) -> None:
    """Takes a snapshot of the member that answers there."""
    _run("--endpoints", endpoint, "snapshot", "save", str(snapshot))


def _run(*words: str) -> None:
    done = subprocess.run(
        [etcdctl(), *words],
        env={**os.environ, "ETCDCTL_API": "3"},
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
