"""Unpacks programs from Debian packages into a folder. This needs no root, and installs nothing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

FETCH_TIMEOUT_S = 120.0


class NotFetched(Exception):
    """One way of fetching failed; the caller may try another."""


def unpacked(package: str, scratch: Path) -> Path:
    """The package's files as a tree below `scratch`, an empty folder. Its dependencies are not included.

    Raises NotFetched, OSError and subprocess.SubprocessError.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NotFetched("apt-get or dpkg-deb is missing")
    run(["apt-get", "download", package], scratch)
    found = next(scratch.glob(f"{package}_*.deb"), None)
    if found is None:
        raise NotFetched("apt-get downloaded nothing")
    run(["dpkg-deb", "-x", str(found), "unpacked"], scratch)
    return scratch / "unpacked"


def keep(tree: Path, home: Path) -> None:
    """Renames `tree` to `home`, which then is whole. Several processes may do this at once: the first one's stays."""
    try:
        tree.rename(home)
    except OSError:
        if not home.is_dir():
            raise


def run(command: Sequence[str], folder: Path) -> None:
    """Raises NotFetched with the last line of the program's output, OSError and subprocess.SubprocessError."""
    done = subprocess.run(  # noqa: S603 -- command lines of this module's callers only
        command, cwd=folder, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise NotFetched(f"{' '.join(command[:3])} failed: {words[-1] if words else done.returncode}")
