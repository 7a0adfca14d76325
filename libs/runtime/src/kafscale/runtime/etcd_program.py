"""Finds the program of etcd, or downloads it. This needs no root.

Of new data: the program on PATH; else Debian's package, unpacked into a folder. apt compares the package with the hash
in its signed index.

Law: data is never given to an etcd that is older than the one that ran it last, because etcd then ends with "invalid
downgrade". So `Ran` is written beside the data, and the program that ran the data runs it again. Only a program on PATH
that is newer, by at most one minor version as etcd allows, takes the data over: a user has installed it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafscale.runtime.debian_packages import NotFetched, Programs, unpacked

Report = Callable[[str], None]
Version = tuple[int, int, int]
VERSION_TIMEOUT_S: Final = 10.0
_PRINTED: Final = re.compile(r"^etcd Version: (\d+)\.(\d+)\.(\d+)", re.MULTILINE)
_STORED: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


class EtcdMissing(Exception):
    """This machine has no etcd that can be used, and none could be downloaded."""

    def __init__(self, attempts: Sequence[str], ran: Ran | None) -> None:
        tried = f" Tried: {'; '.join(attempts)}"
        if ran is None:
            super().__init__(
                "etcd is not on PATH and could not be fetched; install etcd 3.4 or newer, but not 3.5.0 to 3.5.2, "
                f"and put it on PATH (on Debian and Ubuntu: apt-get install etcd-server).{tried}"
            )
        else:
            super().__init__(
                f"the data was last run by etcd {shown(ran.version)}, and this machine has no etcd that can read it: "
                f"put etcd {ran.version[0]}.{ran.version[1]} on PATH, or the next minor version.{tried}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A program of etcd, and its version: what a data directory remembers of the one that ran it last."""

    program: Path
    version: Version

    def may_run_data_of(self, last: Ran) -> bool:
        """etcd refuses data of a newer minor version, and takes over that of the minor version before its own."""
        return self.version[0] == last.version[0] and self.version[1] - last.version[1] in (0, 1)


def shown(version: Version) -> str:
    return ".".join(map(str, version))


def read_ran(path: Path) -> Ran | None:
    """None if the file is absent or damaged. If the choice is then wrong, etcd itself says which version it needs."""
    try:
        stored = json.loads(path.read_text())
        found = _STORED.fullmatch(stored["version"])
        program = Path(stored["program"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None if found is None else Ran(program=program, version=_numbers(found))


def write_ran(path: Path, ran: Ran) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps({"version": shown(ran.version), "program": str(ran.program)}) + "\n")
    temporary.replace(path)


def version_of(program: Path) -> Ran | None:
    """None if the program does not exist, does not start or does not print a version as etcd does."""
    try:
        done = subprocess.run(  # noqa: S603 -- the program that is about to get the data
            [program, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _PRINTED.search(done.stdout)
    return None if found is None else Ran(program=program, version=_numbers(found))


def _numbers(found: re.Match[str]) -> Version:
    major, minor, patch = found.groups()
    return int(major), int(minor), int(patch)


def find_etcd(
    tools: Path, report: Report, last: Ran | None = None, *, programs: Programs | None = None
) -> Path:
    """The path of the program, downloaded into `tools` if needed. `report` gets a line for each download.

    `last`: what ran the data; None for new data. `programs`: to end a download from another thread.
    Raises EtcdMissing and FetchEnded.
    """
    on_path = shutil.which("etcd")
    if last is None:
        if on_path is not None:
            return Path(on_path)
        return _from_tools(tools, report, None, [], programs or Programs())
    newcomer = None if on_path is None else version_of(Path(on_path))
    if newcomer is not None and newcomer.may_run_data_of(last) and newcomer.version > last.version:
        report(
            f"etcd {shown(newcomer.version)} ({on_path}) takes over the data of etcd {shown(last.version)}"
        )
        return newcomer.program
    refused = []
    for one in (version_of(last.program), newcomer):
        if one is not None and one.may_run_data_of(last):
            return one.program
        if one is not None:
            refused.append(f"{one.program}: it is {shown(one.version)}")
    return _from_tools(tools, report, last, refused, programs or Programs())


def _from_tools(
    tools: Path, report: Report, last: Ran | None, attempts: list[str], programs: Programs
) -> Path:
    """Debian's program, fetched before or now. Data also finds one that an earlier KafScale fetched from elsewhere."""
    home = tools / "etcd-debian"
    program = home / "etcd"
    if last is not None:
        for fetched in sorted(tools.glob("etcd-*/etcd")):
            found = version_of(fetched)
            if found is not None and found.may_run_data_of(last):
                return fetched
    if not program.is_file():
        why = "etcd is not on PATH" if last is None else f"the data needs etcd {shown(last.version)}"
        try:
            report(f"{why}; fetching Debian's into {home}")
            _install(home, programs)
        except (NotFetched, OSError, subprocess.SubprocessError) as error:
            raise EtcdMissing([*attempts, f"Debian's package: {error}"], last) from error
    if last is not None:
        found = version_of(program)
        if found is None or not found.may_run_data_of(last):
            version = shown(found.version) if found else "no etcd"
            raise EtcdMissing([*attempts, f"{program}: it is {version}"], last)
    return program


def _install(home: Path, programs: Programs) -> None:
    """Downloads into a folder next to the destination and renames the program, so that it is never incomplete."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".fetch-") as folder:
        scratch = Path(folder)
        program = unpacked("etcd-server", scratch, programs) / "usr/bin/etcd"
        program.chmod(0o755)
        programs.run([str(program), "--version"], scratch)
        home.mkdir(exist_ok=True)
        program.rename(home / "etcd")
