"""A KafScale of real processes: `kafscale up` on a folder, started, stopped and killed as a user or a fault would."""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafscale.runtime.ports import free_port
from kafscale.storage.objects import ObjectStore
from kafscale.storage.objects.directory import DirectoryStore

from e2e.harness.inside import Inside
from e2e.harness.services import Service, dying_with_parent, until

READY_TIMEOUT_S = 180.0  # starting takes three seconds on an idle machine; many of these run on busy ones
FSCK_TIMEOUT_S = 1_800.0  # after fifty deaths there are a hundred thousand objects to read
STOP_TIMEOUT_S = 60.0
DEATH_TIMEOUT_S = 10.0
ROW_TRIES = 100
KAFSCALE = (sys.executable, "-m", "kafscale.cli")
SURPRISES = ("Exception in callback", "was never retrieved")
"""asyncio's log line for an unhandled exception: the work is lost, and the process continues."""


class NotReady(Exception):
    """`kafscale up` did not say that it is ready."""


@dataclass(slots=True)
class Cluster:
    """One data directory and the processes on it. `start` may be called again after `stop` or `kill`."""

    data_dir: Path
    scale: Mapping[str, int] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] = KAFSCALE
    options: Sequence[str] = ()  # where the store is: `up` and `fsck` have them in common
    port: int = 0
    output: list[str] = field(default_factory=list)
    _added: list[Service] = field(default_factory=list)
    _process: subprocess.Popen[str] | None = None
    _lines: queue.Queue[str | None] = field(default_factory=queue.Queue)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def doors(self) -> list[str]:
        """The address of each front door; `kafscale up` gives them neighbouring ports."""
        return [f"127.0.0.1:{self.port + n}" for n in range(self.scale.get("frontdoor", 1))]

    def start(self) -> None:
        """Returns when `kafscale up` says that clients can come."""
        self.launch()
        self.wait_for("KafScale is ready")

    def launch(self) -> None:
        self.port = self.port or free_row(self.scale.get("frontdoor", 1))
        scale = [part for role, count in self.scale.items() for part in ("--scale", f"{role}={count}")]
        self._lines = queue.Queue()
        self._process = subprocess.Popen(
            [
                *dying_with_parent(),
                *self.command,
                "up",
                "--port",
                str(self.port),
                "--data-dir",
                str(self.data_dir),
                *scale,
                *self.options,
            ],
            env={**os.environ, "KAFSCALE_CONSOLE": "0", **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        threading.Thread(target=self._read, args=(self._process, self._lines), daemon=True).start()

    def _read(self, process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                lines.put(line)
        lines.put(None)

    def wait_for(self, text: str, timeout_s: float = READY_TIMEOUT_S) -> str:
        """The first line from here on that holds `text`."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise NotReady(f"no line with {text!r} within {timeout_s} s:\n{self.story()}") from None
            if line is None:
                raise NotReady(f"kafscale up ended without a line with {text!r}:\n{self.story()}")
            self.output.append(line)
            if text in line:
                return line

    def story(self) -> str:
        """What was printed and logged, for a failing test's message."""
        logs = sorted((self.data_dir / "run" / "log").glob("*.log"))
        tails = [
            f"--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-15:])
            for log in logs
        ]
        return "".join(self.output[-30:]) + "\n".join(tails)

    def logged_errors(self) -> list[str]:
        """Lines of the services' logs that are errors, or no log lines at all."""
        logs = sorted((self.data_dir / "run" / "log").glob("*-1.log"))
        lines = ((log, line) for log in logs for line in log.read_text(errors="replace").splitlines())
        return [f"{log.name}: {line[:500]}" for log, line in lines if _is_error(line)]

    def surprises(self) -> list[str]:
        """What no scenario may leave in a log, whatever its faults were."""
        logs = sorted((self.data_dir / "run" / "log").glob("*.log"))
        lines = ((log, line) for log in logs for line in log.read_text(errors="replace").splitlines())
        return [f"{log.name}: {line}" for log, line in lines if any(each in line for each in SURPRISES)]

    def restart(self) -> float:
        """Stops and starts; seconds of the start."""
        self.stop()
        begin = time.monotonic()
        self.start()
        return time.monotonic() - begin

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Ctrl-C: drains and stops. The exit code."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGINT)
        return self._ended(timeout_s)

    def kill(self) -> None:
        """kill -9 of everything at once: the first process, supervisor, services and etcd."""
        while self._added:
            self._added.pop().kill()
        if self._process is None:
            return
        for pid in self.tree():
            _kill(pid)
        self._ended(10)

    def _ended(self, timeout_s: float) -> int:
        assert self._process is not None
        code = self._process.wait(timeout_s)
        self._process = None
        while (line := self._lines.get(timeout=timeout_s)) is not None:
            self.output.append(line)
        surprises = self.surprises()
        assert surprises == [], surprises
        return code

    def tree(self) -> list[int]:
        """Process ids of everything that runs, the first process first."""
        assert self._process is not None
        return family(self._process.pid)

    def pids(self, role: str) -> list[int]:
        """Process ids of a service's instances (or of etcd), workers not included, oldest first."""
        assert self._process is not None
        if role == "etcd":  # a child of the supervisor; in older versions, of the first process
            return [pid for pid in self.tree() if _command(pid).split(" ")[0].endswith("/etcd")]
        return [pid for pid in _children(self._process.pid) if f"kafscale.{role}" in _command(pid)]

    def signal(self, role: str, number: signal.Signals, index: int = 0) -> int:
        """Sends a signal to one instance of a service; its process id."""
        pid = self.pids(role)[index]
        _signal(pid, number)
        return pid

    def kill_one(self, role: str, index: int) -> None:
        """kill -9 of one instance; returns when the supervisor has started another."""
        pids = self.pids(role)
        killed = self.signal(role, signal.SIGKILL, index)

        def replaced() -> bool:
            now = self.pids(role)
            return len(now) == len(pids) and killed not in now

        until(f"another {role} runs", replaced)

    def inside(self) -> Inside:
        """Questions to its etcd; while it runs."""
        return Inside(json.loads((self.data_dir / "run" / "endpoints.json").read_text())["etcd"])

    def open_store(self) -> ObjectStore:
        """The bucket in its data directory."""
        return DirectoryStore(self.data_dir / "objects")

    def add(self, role: str) -> Service:
        """One more instance of a service, in addition to those of `kafscale up`. Returns when it is ready."""
        env = {
            **self.env,
            "KAFSCALE_ETCD_ENDPOINTS": self.inside().etcd,
            "KAFSCALE_OBJECT_STORE": "dir",
            "KAFSCALE_OBJECT_DIR": str(self.data_dir / "objects"),
        }
        name = f"{role}-added-{len(self._added)}.log"
        service = Service.start(role, env, self.data_dir / "run" / "log" / name)
        self._added.append(service)
        service.wait_ready()
        return service

    def fsck(self, *more: str) -> subprocess.CompletedProcess[str]:
        """`kafscale fsck` on the data directory, running or stopped."""
        return subprocess.run(
            [*self.command, "fsck", *more, "--data-dir", str(self.data_dir), *self.options],
            env={**os.environ, **self.env},
            capture_output=True,
            text=True,
            timeout=FSCK_TIMEOUT_S,
            check=False,
        )


def free_row(count: int) -> int:
    """The first of that many neighbouring ports, all of which were free a moment ago."""
    for _ in range(ROW_TRIES):
        first = free_port()
        if all(_is_free(first + n) for n in range(1, count)):
            return first
    raise OSError(f"{ROW_TRIES} times no {count} neighbouring ports were free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _is_error(line: str) -> bool:
    return not line.startswith("{") or bool(json.loads(line)["level"] == "error")


def _kill(pid: int) -> None:
    """kill -9, and wait until it has let go of its files."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return  # it died first
    try:
        _signal(pid, signal.SIGKILL)
        select.select([process], [], [], DEATH_TIMEOUT_S)
    finally:
        os.close(process)


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return  # it died first


def family(pid: int) -> list[int]:
    """Ids of a process and of all its descendants, a parent before its children."""
    found = [pid]
    for each in found:
        found += _children(each)
    return found


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(child) for child in text.split()]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):  # it has ended: before the file was opened, or after
        return ""
