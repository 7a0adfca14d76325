"""Each member's wheel has all of its packages, and the member depends on what it imports.

The tests use the sources where they are. An image has only what the wheels have, and only the wheels that its service
depends on: a package that no wheel has stops every container.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).parents[2]
MEMBERS: Final = sorted(
    path.parent
    for pattern in ("libs/*", "services/*", "console", "cli", "spark/lake", "spark/upkeep")
    for path in ROOT.glob(f"{pattern}/pyproject.toml")
)
EXCUSED: Final = {
    "kafscale",
    "_typeshed",  # only a type checker has it
    "botocore",  # aiobotocore's own, in the version that it needs
    "re2",  # mapping rules are for the front door, which declares it
}
IMPORTED: Final = re.compile(r"^\s*(?:from|import) kafscale\.(\w+)", re.MULTILINE)


def described(member: Path) -> Mapping[str, Any]:
    return tomllib.loads((member / "pyproject.toml").read_text())


def packages(member: Path) -> set[str]:
    return {path.name for path in (member / "src" / "kafscale").iterdir() if (path / "__init__.py").exists()}


def in_wheel(member: Path) -> set[str]:
    names = described(member)["tool"]["uv"]["build-backend"]["module-name"]
    return {name.removeprefix("kafscale.") for name in ([names] if isinstance(names, str) else names)}


def with_dependencies(name: str, known: Mapping[str, Path]) -> Iterator[Path]:
    """The member of this name, and those that it depends on, directly or indirectly."""
    yield known[name]
    for text in described(known[name])["project"]["dependencies"]:
        if (found := re.match(r"kafscale-[\w-]+", text)) is not None:
            yield from with_dependencies(found[0], known)


def ids(member: Path) -> str:
    return str(member.relative_to(ROOT))


@pytest.mark.parametrize("member", MEMBERS, ids=ids)
def test_a_wheel_has_every_package_of_its_member(member: Path) -> None:
    assert in_wheel(member) == packages(member)


@pytest.mark.parametrize("member", MEMBERS, ids=ids)
def test_a_member_depends_on_what_it_imports(member: Path) -> None:
    known = {described(each)["project"]["name"]: each for each in MEMBERS}
    here = {
        package
        for each in with_dependencies(described(member)["project"]["name"], known)
        for package in in_wheel(each)
    }
    sources = (member / "src").rglob("*.py")
    imported = {name for path in sources for name in IMPORTED.findall(path.read_text())}
    assert imported <= here


def plain(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def of_others(member: Path) -> Iterator[str]:
    """Full names of the modules of other authors that it imports, also inside functions."""
    for path in (member / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                yield from (each.name for each in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                yield node.module


@pytest.mark.parametrize("member", MEMBERS, ids=ids)
def test_a_member_depends_on_the_packages_that_it_imports(member: Path) -> None:
    """Itself, or a member that it depends on: what is only in the environment of the tests is in no image."""
    known = {described(each)["project"]["name"]: each for each in MEMBERS}
    declared = {
        plain(found[0])
        for each in with_dependencies(described(member)["project"]["name"], known)
        for text in described(each)["project"]["dependencies"]
        if (found := re.match(r"[\w.-]+", text)) is not None
    }
    installed = packages_distributions()
    missing = set()
    for name in of_others(member):
        top = name.partition(".")[0]
        if top in sys.stdlib_module_names or top in EXCUSED:
            continue
        if not {plain(each) for each in installed[top]} & declared:
            missing.add(name)
    assert not missing
