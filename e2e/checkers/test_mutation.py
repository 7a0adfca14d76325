"""The lists of mutants, and the mutants that mutmut generates for a core: which tests run, and what is printed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tools import mutants, mutation

CHECKOUT: Final = Path(__file__).parents[2]
CORE: Final = (
    "def larger(a: int, b: int) -> int:\n    return a if a > b else b\n\ndef unused() -> int:\n    return 1\n"
)
TEST: Final = (
    "from kafscale.tiny.core import larger\n\n\ndef test_it() -> None:\n    assert larger(2, 1) == 2\n"
)
LIMIT_TESTS: Final = "services/produce/tests/log/test_put_limit.py"


def files_of(name: str) -> list[str]:
    return mutation.tests_of([mutation.cores()[name]])


def test_the_tests_of_a_core_are_those_that_import_it_by_cores_alone() -> None:
    assert LIMIT_TESTS in files_of("kafscale.produce.log.put_limit")
    assert LIMIT_TESTS not in files_of("kafscale.produce.log.producers")
    assert "services/produce/tests/log/test_writer.py" in files_of("kafscale.produce.log.producers")


def test_a_file_that_awaits_counts_only_for_a_core_without_other_tests() -> None:
    assert "services/produce/tests/test_pump.py" not in files_of("kafscale.produce.log.model")
    assert "libs/log/tests/test_claims.py" in files_of("kafscale.log.claims")


def test_shells_and_generated_code_are_no_cores() -> None:
    assert "kafscale.produce.server" not in mutation.cores()
    assert not any(name.startswith("kafscale.wire.schema.") for name in mutation.cores())


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout with one core of two functions, of which one has a test that misses the limit."""
    files = {
        ".importlinter": "[importlinter:contract:cores]\nsource_modules =\n    kafscale.tiny\n",
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n',
        "libs/tiny/src/kafscale/tiny/core.py": CORE,
        "libs/tiny/tests/test_core.py": TEST,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "tools").symlink_to(CHECKOUT / "tools")
    monkeypatch.setattr(mutation, "ROOT", tmp_path)
    for cached in (mutation.cores, mutation.imports, mutation.reached):
        cached.cache_clear()
    yield tmp_path
    for cached in (mutation.cores, mutation.imports, mutation.reached):
        cached.cache_clear()


@pytest.mark.timeout(400)  # mutmut starts some processes
@pytest.mark.usefixtures("tiny")
def test_survivors_are_shown_and_a_share_below_the_least_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mutation", "kafscale.tiny"])
    assert mutation.main() == 1
    printed = capsys.readouterr().out
    assert "+    return a if a >= b else b" in printed
    assert "no test executes kafscale.tiny.core.x_unused" in printed
    assert "kafscale.tiny.core: 1 of 4 caught, less than" in printed


def test_a_row_has_the_tests_of_its_file_or_its_own() -> None:
    listing = """
        [tests]
        "access/acl.py" = "test_acl.py"
        ["a law"]
        file = "access/acl.py"
        before = "a"
        after = "b"
        ["another law"]
        file = "access/acl.py"
        before = "a"
        after = "b"
        tests = "test_rules.py::test_one"
        attack = "tokens: a client"
        also = [{ before = "c", after = "d" }, { file = "access/rules.py", before = "e", after = "f" }]
    """
    one, other = mutants.listed("mutants_laws.toml", listing)
    assert (one.name, one.tests, one.attack) == ("a law", "test_acl.py", "")
    assert (other.test_files, other.attack) == (["test_rules.py"], "tokens: a client")
    assert one.paths == ["libs/access/src/kafscale/access/acl.py"]
    assert [(each.file, each.before, each.after) for each in other.edits] == [
        ("access/acl.py", "a", "b"),
        ("access/acl.py", "c", "d"),
        ("access/rules.py", "e", "f"),
    ]
