"""Programs that several processes fetch at the same time."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kafscale.runtime.debian_packages import FetchEnded, Programs, keep


def tree(path: Path, text: str) -> Path:
    path.mkdir()
    (path / "program").write_text(text)
    return path


def test_the_tree_of_the_first_process_stays_and_the_second_one_uses_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in ("first", "second"):
        keep(tree(tmp_path / name, name), home)
    assert (home / "program").read_text() == "first"


def test_a_rename_that_fails_for_another_reason_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="home"):
        keep(tree(tmp_path / "one", "x"), tmp_path / "missing" / "home")


def test_a_program_that_fetches_gets_no_signal_of_the_terminal_and_ends_when_asked(tmp_path: Path) -> None:
    """Ctrl-C must not look like a download that failed."""
    ready = tmp_path / "ready"
    never = tmp_path / "never"
    os.mkfifo(ready)
    os.mkfifo(never)
    script = f"import os\nassert os.getpgid(0) == os.getpid()\nopen({str(ready)!r}, 'w').close()\nopen({str(never)!r})"
    programs = Programs()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(programs.run, [sys.executable, "-c", script], tmp_path)
        with ready.open() as opened:  # when the program opens it, too
            opened.read()
        programs.end()
        with pytest.raises(FetchEnded):
            running.result(timeout=30)
    with pytest.raises(FetchEnded):
        programs.run([sys.executable, "--version"], tmp_path)
