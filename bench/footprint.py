"""`python -m bench.footprint`: the cost of a service before its first request.

First each service starts alone with a separate etcd and store: the median time from the process's start to /readyz
200. Then all of them run together and idle: memory after a minute, CPU over the next minute. RSS counts shared pages
once per process; PSS divides them. The CPU seconds of a start end at /readyz 200, and hardly depend on other load of
the machine. Goals: 2 s, 150 MB, 1 % of a core.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.spent import cpu_seconds
from bench.systems import resident
from e2e.harness.deployment import ROLES, Deployment
from e2e.harness.services import Service

SERVICES: Final = (*ROLES, "upkeep")
MB: Final = 1_000_000
POLL_S: Final = 0.02
START_TIMEOUT_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Wall time and CPU time from the process's start until it is ready, in seconds."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Bytes, and the share of a core."""

    rss: int
    pss: int
    core: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=("dir", "s3"), default="s3")
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--idle-s", type=float, default=60.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafscale-footprint-") as folder:
        system = Deployment(Path(folder), 1)
        try:
            env = begun(system, options.store)
            starts = {role: [start(system, role, env) for _ in range(options.starts)] for role in SERVICES}
            print(table(starts, idle(system, env, options.idle_s)))
        finally:
            system.kill()


def begun(system: Deployment, store: str) -> Mapping[str, str]:
    """The settings of services for the started etcd and store."""
    system.start_etcd()
    if store == "s3":
        system.start_s3()
        return system.env
    objects = {"KAFSCALE_OBJECT_STORE": "dir", "KAFSCALE_OBJECT_DIR": str(system.folder / "objects")}
    return {**system.env, **objects}


def start(system: Deployment, role: str, env: Mapping[str, str]) -> Start:
    """Starts the service once, alone, and stops it."""
    began = time.monotonic()
    service = Service.start(role, env, system.folder / "log" / f"{role}.log")
    try:
        until_ready(role, lambda: service.is_ready, service.story)
        found = Start(wall_s=time.monotonic() - began, cpu_s=cpu_seconds(service.process.pid))
        service.stop()
    finally:
        service.kill()
    return found


def until_ready(role: str, is_ready: Callable[[], bool], story: Callable[[], str]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not is_ready():
        if time.monotonic() > deadline:
            raise SystemExit(f"{role} is not ready after {START_TIMEOUT_S:.0f} s:\n{story()}")
        time.sleep(POLL_S)


def idle(system: Deployment, env: Mapping[str, str], idle_s: float) -> Mapping[str, Idle]:
    """Starts all services at once, so that each has peers to watch."""
    running = {role: Service.start(role, env, system.folder / "log" / f"{role}.log") for role in SERVICES}
    system.services.update(running)
    for service in running.values():
        service.wait_ready()
    return at_rest({role: each.process.pid for role, each in running.items()}, idle_s)


def at_rest(pids: Mapping[str, int], idle_s: float) -> Mapping[str, Idle]:
    """Memory after `idle_s` seconds, CPU over the same time again."""
    time.sleep(idle_s)
    memory = {role: (resident(pid), shared_out(pid)) for role, pid in pids.items()}
    before = {role: cpu_seconds(pid) for role, pid in pids.items()}
    time.sleep(idle_s)
    return {
        role: Idle(rss=rss, pss=pss, core=(cpu_seconds(pids[role]) - before[role]) / idle_s)
        for role, (rss, pss) in memory.items()
    }


def shared_out(pid: int) -> int:
    """The PSS of a process in bytes: each page is divided by the number of processes that share it."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def table(starts: Mapping[str, Sequence[Start]], idles: Mapping[str, Idle]) -> str:
    """The table in Markdown, with the medians of the starts."""
    lines = [
        "| service | ready after, s | CPU until ready, s | RSS, MB | PSS, MB | CPU when idle |",
        "|---|---|---|---|---|---|",
    ]
    for role, found in starts.items():
        wall = statistics.median(each.wall_s for each in found)
        cpu = statistics.median(each.cpu_s for each in found)
        rest = idles[role]
        lines.append(
            f"| {role} | {wall:.2f} | {cpu:.2f} | {rest.rss / MB:.0f} | {rest.pss / MB:.0f} | {rest.core:.1%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
