"""Single services, started separately: to join a running cluster, or without `kafscale up`."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError

from kafscale.runtime.ports import free_port
from kafscale.runtime.process import MALLOC_ENV

from e2e.harness.inside import get

READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.1


class NotYet(Exception):
    """A condition did not come true in time."""


def until(
    what: str, condition: Callable[[], bool], timeout_s: float = READY_TIMEOUT_S, every_s: float = POLL_S
) -> None:
    """Waits for a condition. `what` completes the sentence of the failure: "after 9 s still not: ..."."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise NotYet(f"after {timeout_s:.0f} s still not: {what}")
        time.sleep(every_s)


def dying_with_parent() -> list[str]:
    """A prefix of commands: the kernel kills the process when the test run dies."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


def readiness(http: str) -> tuple[int, str]:
    """Status and text of /readyz at host:port; 0 without an answer."""
    try:
        return get(http, "/readyz")
    except (URLError, OSError):
        return 0, ""


@dataclass(slots=True)
class Service:
    """One process of a role. What it logs is in `log`."""

    role: str
    http: str
    log: Path
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, role: str, env: Mapping[str, str], log: Path, launcher: str | None = None) -> Service:
        """Its HTTP page is where `env` says, else at a port that was free. `launcher`: a module that runs it."""
        http = env.get("KAFSCALE_HTTP_LISTEN") or f"127.0.0.1:{free_port()}"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [
                    *dying_with_parent(),
                    sys.executable,
                    "-m",
                    *([launcher] if launcher else []),
                    f"kafscale.{role}",
                ],
                env={**os.environ, **MALLOC_ENV, **env, "KAFSCALE_HTTP_LISTEN": http},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return cls(role, http, log, process)

    def readiness(self) -> tuple[int, str]:
        """Status and text of /readyz; 0 without an answer."""
        return readiness(self.http)

    @property
    def is_ready(self) -> bool:
        assert self.process.poll() is None, f"{self.role} ended:\n{self.story()}"
        return self.readiness()[0] == 200

    def wait_ready(self) -> None:
        until(f"{self.role} is ready; it said:\n{self.story()}", lambda: self.is_ready)

    def story(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])

    def stop(self) -> int:
        """SIGTERM: it drains. The exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
