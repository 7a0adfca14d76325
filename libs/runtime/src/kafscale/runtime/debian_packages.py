"""Unpacks programs from Debian packages into a folder. This needs no root, and installs nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

FETCH_TIMEOUT_S = 120.0


class NotFetched(Exception):
    """The package could not be fetched."""


class FetchEnded(Exception):
    """Another thread ended the fetch."""


class Programs:
    """Runs the programs of a fetch, one at a time, each in a process group of its own.

    Ctrl-C in a terminal signals a whole group. A program that it ends would look like a download that failed. So only
    `end` ends these programs; it may be called from another thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: subprocess.Popen[str] | None = None
        self._ended = False

    def run(self, command: Sequence[str], folder: Path) -> str:
        """What the program printed on stdout.

        Raises NotFetched with the last line of its output, FetchEnded, OSError and subprocess.SubprocessError.
        """
        with self._lock:
            if self._ended:
                raise FetchEnded
            process = subprocess.Popen(  # noqa: S603 -- command lines of this module's callers only
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                process_group=0,
            )
            self._running = process
        try:
            out, err = process.communicate(timeout=FETCH_TIMEOUT_S)
        except BaseException:
            self._kill()
            process.wait()
            raise
        finally:
            self._running = None
        if self._ended:
            raise FetchEnded
        if process.returncode != 0:
            words = (err or out).strip().splitlines()
            raise NotFetched(f"{' '.join(command[:3])} failed: {words[-1] if words else process.returncode}")
        return out

    def end(self) -> None:
        """Kills the program that runs, and refuses the next one."""
        with self._lock:
            self._ended = True
            self._kill()

    def _kill(self) -> None:
        """Also what the program has started."""
        process = self._running
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):  # it ended a moment ago
                os.killpg(process.pid, signal.SIGKILL)


def unpacked(package: str, scratch: Path, programs: Programs | None = None) -> Path:
    """The package's files as a tree below `scratch`, an empty folder. Its dependencies are not included.

    Raises NotFetched, FetchEnded, OSError and subprocess.SubprocessError.
    """
    programs = programs or Programs()
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise NotFetched("apt-get or dpkg-deb is missing")
    programs.run(["apt-get", "download", package], scratch)
    found = next(scratch.glob(f"{package}_*.deb"), None)
    if found is None:
        raise NotFetched("apt-get downloaded nothing")
    programs.run(["dpkg-deb", "-x", str(found), "unpacked"], scratch)
    return scratch / "unpacked"


def keep(tree: Path, home: Path) -> None:
    """Renames `tree` to `home`, which then is whole. Several processes may do this at once: the first one's stays."""
    try:
        tree.rename(home)
    except OSError:
        if not home.is_dir():
            raise
