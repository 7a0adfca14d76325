"""Ctrl-C at the start of a command."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from kafscale.cli import entry

INTERRUPTED_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.{handler})
class Interrupting:
    def find_spec(self, name, *_):
        if name == "{module}":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise ImportError("a library that hides the interrupt")
sys.meta_path.insert(0, Interrupting())
sys.argv = ["kafscale", "--version"]
from kafscale.cli.entry import main
main()
"""


def interrupted(module: str, handler: str) -> subprocess.CompletedProcess[str]:
    """`kafscale --version`, with Ctrl-C while it imports the module."""
    program = INTERRUPTED_IMPORT.format(module=module, handler=handler)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["kafscale.cli.__main__", "typer"])
def test_ctrl_c_during_the_imports_ends_a_command_in_silence_with_130(module: str) -> None:
    done = interrupted(module, "default_int_handler")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_an_interrupt_that_the_caller_ignores_stays_ignored() -> None:
    done = interrupted("typer", "SIG_IGN")
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "kafscale", "")


def test_ctrl_c_later_ends_it_with_130_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def command() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kafscale.cli.__main__.main", command)
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 130


def test_the_command_begins_here_and_nothing_is_imported_before_it_listens() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"kafscale": "kafscale.cli.entry:main"}
    program = (
        "import sys; before = set(sys.modules); import kafscale.cli.entry; print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"kafscale", "kafscale.cli", "kafscale.cli.entry"}
