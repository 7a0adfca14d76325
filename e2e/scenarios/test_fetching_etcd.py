"""The first start on a machine without etcd, which fetches one.

Law: Ctrl-C during the download ends the start and the download, and leaves nothing behind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness.cluster import Cluster
from e2e.harness.services import until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """On a PATH without etcd, with an apt-get that begins and never ends."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("setpriv", "dpkg-deb", "tail"):
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is missing")
        (folder / name).symlink_to(found)
    apt = folder / "apt-get"
    apt.write_text(f"#!/bin/sh\n: > {tmp_path}/begun\nexec tail -f /dev/null\n")
    apt.chmod(0o755)
    cluster = Cluster(data_dir=tmp_path / "data", env={"PATH": str(folder)})
    yield cluster
    cluster.kill()


def test_ctrl_c_during_the_download_ends_the_start(cluster: Cluster, tmp_path: Path) -> None:
    cluster.launch()
    until("the download has begun", (tmp_path / "begun").exists)
    downloads = cluster.tree()
    assert cluster.stop() == 0
    assert "could not be fetched" not in "".join(cluster.output)
    assert list((cluster.data_dir / "tools").iterdir()) == []
    assert not [pid for pid in downloads if os.path.exists(f"/proc/{pid}")], "the download has ended, too"
