"""Another version of KafScale from this repository, run with the environment of this one.

Law: a process of the other version imports no module of this version. The folders of its sources are first on
PYTHONPATH, before those of the editable installs, and `kafscale` is a namespace of packages.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from e2e.harness.builds import build, built_once

HERE: Final = Path(__file__).parent.parent.parent
SOURCES: Final = ("cli", "console", "libs", "services", "spark")
MEMBERS: Final = (
    "cli/src",
    "console/src",
    "libs/*/src",
    "services/*/src",
    "spark/lake/src",
    "spark/upkeep/src",
)
PROBE_S: Final = 120.0
PROBE: Final = """
import importlib, importlib.util, pkgutil, sys

import kafscale.cli, kafscale.lake, kafscale.runtime, kafscale.storage, kafscale.wire

for role in sys.argv[1:]:
    importlib.import_module(f"kafscale.{role}")
for package in [module for name, module in sys.modules.items() if name.count(".") == 1 and name[:9] == "kafscale."]:
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
files = [module.__file__ for name, module in sys.modules.items() if name[:9] == "kafscale." and module.__file__]
print(*sorted(set(files)), sep="\\n")
"""


def checked_out(revision: str) -> Path:
    """The sources of a commit, which git knows by that name."""
    commit = build(["git", "rev-parse", "--verify", f"{revision}^{{commit}}"], HERE).strip()

    def make(folder: Path) -> None:
        archive = folder / "sources.tar"
        # git archive refuses the name of a folder that an older commit has not
        has = build(["git", "ls-tree", "--name-only", commit, *SOURCES], HERE).split()
        build(["git", "archive", "--output", str(archive), commit, *has], folder=HERE)
        build(["tar", "-xf", archive.name], folder)
        archive.unlink()

    return built_once(f"version-{commit}", make, of=[commit])


def version_env(tree: Path) -> dict[str, str]:
    """With it, a process runs the version in `tree`."""
    folders = [str(folder) for member in MEMBERS for folder in sorted(tree.glob(member))]
    return {"PYTHONPATH": os.pathsep.join(folders)}


def modules_of(env: dict[str, str], *roles: str) -> set[Path]:
    """The files of all modules of KafScale that a process with `env` can import: it has imported them."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *roles],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=PROBE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(map(Path, done.stdout.split()))
