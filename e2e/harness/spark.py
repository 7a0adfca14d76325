"""Spark's environment, which is separate from that of these tests. Programs run there as separate processes."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from e2e.harness.clients import require

ROOT = Path(__file__).parent.parent.parent
SETUP_TIMEOUT_S = 1_800
"""Spark comes as a source of 450 MB, which pip's like makes a wheel of; once on a machine."""


@cache
def spark_python() -> Path:
    """The Python that has Spark and the data source `kafscale`; makes its environment if there is none."""
    require("Spark", "java")
    done = subprocess.run(
        [ROOT / "tools" / "setup.sh", "spark"],
        capture_output=True,
        text=True,
        timeout=SETUP_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"tools/setup.sh spark:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return ROOT / "spark" / "engine" / ".venv" / "bin" / "python"
