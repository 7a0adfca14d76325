"""Which Python `tools/setup.sh` takes for a new environment.

The Pythons are scripts that answer what the script asks. It ends when it would install packages.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

SETUP: Final = Path(__file__).parents[2] / "tools" / "setup.sh"
PROGRAMS: Final = ("cat", "cksum", "cp", "dirname", "head", "mkdir", "readlink", "sed", "sh", "tr")
PYTHON: Final = """#!/bin/sh
case "$1 $2" in
    "-c import sys, venv"*) exit {cannot} ;;
    "-c import sys, sysconfig"*) exit {slow} ;;
    "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && echo "${{0##*/}}" > "$3/made-by" ;;
    *) exit 1 ;;
esac
"""
FAST, SLOW, NO_VENV = (
    PYTHON.format(cannot=0, slow=0),
    PYTHON.format(cannot=0, slow=1),
    PYTHON.format(cannot=1, slow=0),
)


def setup(folder: Path, pythons: dict[str, str], **env: str) -> tuple[str | None, str]:
    """The name of the Python that made the environment, if any, and what was said."""
    (folder / "bin").mkdir()
    for program in PROGRAMS:
        found = shutil.which(program)
        assert found is not None
        (folder / "bin" / program).symlink_to(found)
    for name, script in pythons.items():
        path = folder / "bin" / name
        path.write_text(script)
        path.chmod(0o755)
    for member in ("tools", "libs/wire", "services/one", "cli", "spark/lake"):
        (folder / member).mkdir(parents=True)
        (folder / member / "pyproject.toml").touch()
    (folder / "requirements.lock").write_text("# installer: uv==1\n")
    shutil.copy(SETUP, folder / "tools")
    done = subprocess.run(
        [folder / "tools" / "setup.sh", "run"],
        env={"PATH": str(folder / "bin"), **env},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 1
    made = folder / ".venv" / "made-by"
    return made.read_text().strip() if made.exists() else None, done.stderr


@pytest.mark.parametrize(
    ("pythons", "taken"),
    [
        ({"python3.13": SLOW, "python3.11": FAST}, "python3.11"),
        ({"python3.14": FAST, "python3.11": FAST}, "python3.14"),
        ({"python3.12": NO_VENV, "python3.11": SLOW, "python3": FAST}, "python3"),
    ],
)
def test_the_newest_python_with_profile_guided_optimisation_is_taken(
    tmp_path: Path, pythons: dict[str, str], taken: str
) -> None:
    made_by, said = setup(tmp_path, pythons)
    assert made_by == taken
    assert "profile-guided" not in said


def test_without_one_the_newest_is_taken_and_one_line_says_so(tmp_path: Path) -> None:
    made_by, said = setup(tmp_path, {"python3.12": SLOW, "python3.11": SLOW})
    assert made_by == "python3.12"
    (line,) = [line for line in said.splitlines() if "profile-guided" in line]
    assert line.startswith(
        f"setup: {tmp_path}/.venv/bin/python was built without profile-guided optimisation"
    )


def test_a_python_that_the_caller_names_is_taken(tmp_path: Path) -> None:
    named = tmp_path / "bin" / "mine"
    assert setup(tmp_path, {"python3.11": FAST, "mine": SLOW}, PYTHON=str(named))[0] == "mine"


def test_without_a_python_that_makes_environments_it_says_what_to_install(tmp_path: Path) -> None:
    made_by, said = setup(tmp_path, {"python3.11": NO_VENV})
    assert made_by is None
    assert said.splitlines()[-1].endswith("On Debian: apt-get install python3 python3-venv")
