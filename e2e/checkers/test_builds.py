"""A build is made once for all callers, and again if its sources have changed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from e2e.harness import builds


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.setattr(builds, "BUILT", tmp_path / "out")
    return []


def test_who_comes_while_it_is_built_waits_and_builds_nothing(tmp_path: Path, made: list[Path]) -> None:
    source = tmp_path / "source"
    source.write_text("1")
    together = Barrier(4)

    def ask(_: int) -> str:
        together.wait(20)
        return (builds.built_once("it", make, of=[source]) / "program").read_text()

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "program").write_text(source.read_text())

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(4))) == ["1"] * 4
    assert len(made) == 1


def test_what_has_changed_is_built_again_and_what_failed_too(tmp_path: Path, made: list[Path]) -> None:
    source = tmp_path / "sources" / "a"
    source.parent.mkdir()
    source.write_text("1")
    (source.parent / "target").mkdir()

    def ask() -> int:
        builds.built_once("it", made.append, of=[source.parent, "v1"])
        return len(made)

    def fails(_: Path) -> None:
        raise AssertionError("the compiler says no")

    assert (ask(), ask()) == (1, 1)
    (source.parent / "target" / "by-a-tool").write_text("")
    assert ask() == 1
    source.write_text("2")
    with pytest.raises(AssertionError, match="says no"):
        builds.built_once("it", fails, of=[source.parent, "v1"])
    assert ask() == 2
    builds.built_once("it", made.append, of=[source.parent, "v2"])
    assert len(made) == 3
