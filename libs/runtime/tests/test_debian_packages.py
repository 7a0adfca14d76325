"""Programs that several processes fetch at the same time."""

from pathlib import Path

import pytest
from kafscale.runtime.debian_packages import keep


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
