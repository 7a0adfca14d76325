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

RESTORE_S: Final = 120.0
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


def restore_etcd(snapshot: Path, data_dir: Path, member: str = MEMBER) -> None:
    """Makes the data directory of an etcd with this only member."""
    name, _, url = member.partition("=")
    line = [etcdctl(), "snapshot", "restore", str(snapshot), "--data-dir", str(data_dir), "--name", name]
    line += ["--initial-cluster", member, "--initial-advertise-peer-urls", url]
    done = subprocess.run(
        line,
        env={**os.environ, "ETCDCTL_API": "3"},
        capture_output=True,
        text=True,
        timeout=RESTORE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    data_dir.chmod(0o700)
