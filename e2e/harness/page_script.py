"""The shell blocks under one heading of a page, as one script: what a reader types, in one shell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path


def script_of(page: Path, heading: str) -> str:
    """All blocks ```sh between the heading and the next one of its rank, in order."""
    _, _, rest = page.read_text().partition(f"\n{heading}\n")
    assert rest, f"{page.name} has no {heading}"
    rank = heading.partition(" ")[0]
    section = re.split(rf"^{rank} ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return "".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL))


def follow(script: str, folder: Path, env: Mapping[str, str], timeout_s: float) -> str:
    """What the script prints, errors included. It must end with 0. Nothing that it started is left."""
    with subprocess.Popen(
        ["/bin/sh", "-e", "-c", script],
        cwd=folder,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as shell:
        try:
            said, _ = shell.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            said, _ = shell.communicate()
            raise AssertionError(f"the script does not end:\n{said}") from None
        if shell.returncode != 0:
            kill_group(shell.pid)
    assert shell.returncode == 0, f"ended with {shell.returncode}:\n{said}"
    return said


def kill_group(pid: int) -> None:
    """What a failed script has left in the background."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
