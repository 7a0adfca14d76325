"""The Java that Spark runs on: that of JAVA_HOME or PATH, else Debian's package, unpacked without root.

It is downloaded only if the caller names a folder for it, as `--data-dir` of `kafscale … --engine spark` does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kafscale.runtime.debian_packages import NotFetched, unpacked

MIN: Final = 17
PACKAGES: Final = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
"""For this Debian release or the next. A machine with Python has their dependencies; Spark needs no fonts or sound."""
TOOLS: Final = "KAFSCALE_TOOLS_DIR"
"""Environment: the folder for fetched programs."""
VERSION_TIMEOUT_S: Final = 30.0

Report = Callable[[str], None]


class NoJava(Exception):
    """This machine has no Java that Spark can use."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"Spark needs Java {MIN} or newer, and {found}: install it (on Debian: apt-get install "
            f"{PACKAGES[0]}) or name it in JAVA_HOME"
        )


def ensure_java(report: Report) -> None:
    """Sets JAVA_HOME if a Java had to be fetched, or was earlier. `report` gets a line then. Raises NoJava."""
    why = _missing()
    if why is None:
        return
    tools = os.environ.get(TOOLS)
    if tools is None or "JAVA_HOME" in os.environ:
        raise NoJava(why)
    os.environ["JAVA_HOME"] = str(_fetched(Path(tools) / "java-debian", why, report))


def _missing() -> str | None:
    """Why the installed Java cannot be used; None if it can."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    if program is None:
        return f"JAVA_HOME={home} has none" if home else "there is none on PATH"
    return _too_old(program)


def _too_old(program: str) -> str | None:
    done = subprocess.run(  # noqa: S603 - the program that was just found
        [program, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
    )
    found = re.search(r'version "(\d+)', done.stderr)
    if found is not None and int(found[1]) >= MIN:
        return None
    return f"{program} is {found[1] if found else 'of no known version'}"


def _fetched(home: Path, why: str, report: Report) -> Path:
    if home.is_dir():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        report(f"{why}; fetching Debian's {package} into {home}")
        try:
            with tempfile.TemporaryDirectory(dir=home.parent, prefix=".fetch-") as scratch:
                whole_home(unpacked(package, Path(scratch))).rename(home)
            return home
        except (NotFetched, OSError, subprocess.SubprocessError) as trouble:
            why = f"{why}; {package}: {trouble}"
    raise NoJava(why)


def whole_home(tree: Path) -> Path:
    """The Java home in a package's tree, with its links into /etc replaced by their targets.

    Raises NotFetched if it does not run.
    """
    home = next((tree / "usr" / "lib" / "jvm").glob("java-[0-9][0-9]-openjdk*"), None)
    if home is None:
        raise NotFetched("the package has no Java home")
    for link in [path for path in home.rglob("*") if path.is_symlink() and path.readlink().is_absolute()]:
        meant = tree / link.readlink().relative_to("/")
        link.unlink()
        if meant.is_file():
            shutil.copyfile(meant, link)
    wrong = _too_old(str(home / "bin" / "java"))
    if wrong is not None:
        raise NotFetched(wrong)
    return home
