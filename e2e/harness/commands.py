"""`kafscale …` as a person or a script runs it."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.harness.cluster import KAFSCALE

COMMAND_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Commands:
    """`kafscale …` on one data directory."""

    data_dir: Path

    def environment(self, **env: str) -> dict[str, str]:
        """Without the width of a terminal, which a process of parallel tests inherits."""
        around = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        return {**around, "KAFSCALE_DATA_DIR": str(self.data_dir), **env}

    def run(self, line: str, *, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*KAFSCALE, *line.split()],
            env=self.environment(**env),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )

    def ok(self, line: str, *, stdin: str = "") -> str:
        done = self.run(line, stdin=stdin)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        return done.stdout

    def rows(self, line: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.ok(f"{line} --output json"))
        return rows

    def refused(self, line: str, code: int = 1) -> str:
        """The sentence."""
        done = self.run(line)
        assert (done.returncode, done.stdout) == (code, ""), (line, done.stdout, done.stderr)
        return done.stderr.removeprefix("kafscale: ").strip()
