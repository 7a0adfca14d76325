"""Where a run was measured: the machine, the commit, and the versions of what ran."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from kafscale.testkit.etcd import etcd_program
from kafscale.testkit.seaweed import find_weed

from e2e.harness.apache import kafka_version

ROOT = Path(__file__).parent.parent
NUMBER = re.compile(r"\d+(\.\d+)+")


def machine() -> dict[str, str | int | float]:
    """Also the load before the run: a busy machine changes every figure."""
    cpu = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    return {
        "cpu": cpu[1] if cpu else platform.machine(),
        "cores": os.cpu_count() or 0,
        "memory_gib": round(int(memory[1]) / (1 << 20)) if memory else 0,
        "system": f"{platform.system()} {platform.release()}",
        "load_before": round(os.getloadavg()[0], 2),
    }


def commit() -> str | None:
    """Of this repository, with `+` if files have changed since. None outside of one."""
    try:
        found = _output(["git", "rev-parse", "--short=8", "HEAD"])
        changed = _output(["git", "status", "--porcelain", "--untracked-files=no"])
    except (OSError, subprocess.CalledProcessError):
        return None
    return found + ("+" if changed else "")


def versions() -> dict[str, str]:
    """Of every program and library that the figures depend on."""
    return {
        "python": platform.python_version(),
        "grpcio": version("grpcio"),
        "uvloop": version("uvloop"),
        "apache-kafka": kafka_version(),
        "java": _number(["java", "-version"]),
        "go": _number(["go", "version"]),
        "etcd": _number([str(etcd_program()), "--version"]),
        "seaweedfs": _number([find_weed(), "version"]),
    }


def _number(command: Sequence[str]) -> str:
    """The first version number that the program prints."""
    found = NUMBER.search(_output(command))
    return found[0] if found else "unknown"


def _output(command: Sequence[str]) -> str:
    done = subprocess.run(
        command, cwd=ROOT, text=True, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60
    )
    return done.stdout.strip()
