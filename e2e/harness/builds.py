"""Builds for tests: once for all processes of a run, and again only after a change of their sources."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

BUILT = Path(__file__).parent.parent.parent / "out" / "e2e"
BUILD_TIMEOUT_S = 600
BY_TOOLS = {"node_modules", "target", "__pycache__"}
SHORT_LIVED = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Of a JVM: its start is most of its work, so it uses the first compiler only."""


def built_once(name: str, make: Callable[[Path], object], *, of: Sequence[Path | str]) -> Path:
    """The folder that `make` fills from these files, folders and words, here or in another process.

    Other processes wait for the build. If the sources have changed, `make` fills the same folder again.
    """
    folder, stamp = BUILT / name, BUILT / f"{name}.made"
    BUILT.mkdir(parents=True, exist_ok=True)
    wanted = _digest(of)
    with (BUILT / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder.is_dir() and stamp.exists() and stamp.read_text() == wanted):
            stamp.unlink(missing_ok=True)
            folder.mkdir(exist_ok=True)
            make(folder)
            stamp.write_text(wanted)
    return folder


def build(command: Sequence[str], folder: Path) -> str:
    """What it prints."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={"MAVEN_OPTS": " ".join(SHORT_LIVED), **os.environ},
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def _digest(of: Sequence[Path | str]) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for one in of:
        if isinstance(one, str):
            digest.update(one.encode())
            continue
        for path in _files(one):
            digest.update(f"{path}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def _files(place: Path) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    for path in sorted(place.rglob("*")):
        if path.is_file() and not BY_TOOLS & {*path.relative_to(place).parts}:
            yield path
