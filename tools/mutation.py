"""Generates mutants of the cores with mutmut, and prints those that no test catches: `make mutation`.

The cores are the modules of the contract `cores` in .importlinter: they do no I/O, so their tests are quick. mutmut
changes one operator, constant or argument at a time, in a copy below a temporary folder; the checkout does not change.
Mistakes that a person thought of are in tools/mutants_*.toml.

    python -m tools.mutation --since main                 the cores that differ from a commit
    python -m tools.mutation kafscale.produce.log.intake  a core, or every core below a package
    python -m tools.mutation --every 5 kafscale.produce   a fifth of the mutants of each function

Some survivors mean the same as the code. So a run fails only below the share in tools/mutation.toml, a sample never.
"""

from __future__ import annotations

import argparse
import ast
import configparser
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from shutil import copytree
from typing import Final

from tools.module_sizes import GENERATED, PRODUCT

ROOT: Final = Path(__file__).resolve().parent.parent
SURVIVED: Final = 0
UNTESTED: Final = (5, 33)
"""mutmut's exit codes of mutants whose function no test executes. A test caught those with any other code."""
NUMBERS: Final = range(1, 1_000)  # mutmut numbers the mutants of each function
NOTHING: Final = "could not find any test case for any mutant"
CONFIG: Final = """
[tool.mutmut]
source_paths = ["src"]
only_mutate = {files}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-p", "no:cacheprovider", "-p", "unshrunk", "-p", "no:unraisableexception", "-m", "not deep"]
process_isolation = "forkserver"
timeout_multiplier = 3.0
timeout_constant = 5.0
track_dependencies = false
use_git_change_detection = false
"""
# A mutant may take (its tests + 5 s) * 3. `unraisableexception` takes two thirds of the time of a short run of pytest.


@dataclass(frozen=True, slots=True)
class Core:
    name: str
    member: Path  # with its `src` and `tests`
    file: str  # from there


@cache
def cores() -> dict[str, Core]:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    pure = contracts["importlinter:contract:cores"]["source_modules"].split()
    found: dict[str, Core] = {}
    for source in (source for pattern in PRODUCT for source in sorted(ROOT.glob(pattern))):
        for path in sorted(source.rglob("*.py")):
            name = ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
            if is_below(name, pure) and not any(mark in str(path) for mark in GENERATED):
                found[name] = Core(name, source.parent, str(path.relative_to(source.parent)))
    return found


def is_below(name: str, packages: Iterable[str]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


@cache
def imports(path: Path) -> frozenset[str]:
    """The modules that a file imports; `from a import b` counts as `a` and as `a.b`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


@cache
def reached(test: Path, tests: Path) -> frozenset[str]:
    """The cores that a test file imports, itself or by the cores and the modules of `tests` that it imports."""
    helpers = {path.stem: path for path in tests.rglob("*.py")}
    todo, seen, found = [test], {test}, set[str]()
    while todo:
        for name in imports(todo.pop()):
            core = cores().get(name)
            found.update([name] if core else [])
            path = core.member / core.file if core else helpers.get(name)
            if path and path not in seen:
                seen.add(path)
                todo.append(path)
    return frozenset(found)


def tests_of(chosen: Iterable[Core]) -> list[str]:
    """The test files of the cores' member that reach them; mutmut finds which test executes what. A core never awaits,
    so a file that awaits tests a shell, and counts only for a core without other tests."""
    found: set[Path] = set()
    for core in chosen:
        tests = core.member / "tests"
        files = [path for path in tests.rglob("test_*.py") if core.name in reached(path, tests)]
        found.update([path for path in files if "async def" not in path.read_text()] or files)
    return sorted(str(path.relative_to(ROOT)) for path in found)


def run(member: Path, chosen: list[Core], every: int) -> dict[str, list[int]]:
    """The exit codes of each core's mutants. mutmut needs `src` in its folder, and runs pytest in its folder `mutants`,
    where the rest of the checkout is linked."""
    with tempfile.TemporaryDirectory(prefix="kafscale-mutation-") as name:
        folder = Path(name)
        copytree(member / "src", folder / "src")
        (folder / "mutants" / "src").mkdir(parents=True)
        for entry in ROOT.iterdir():
            if entry.name not in (".git", "pyproject.toml"):
                (folder / "mutants" / entry.name).symlink_to(entry)
        files, tests = [core.file for core in chosen], tests_of(chosen)
        config = CONFIG.format(files=json.dumps(files), tests=json.dumps(tests))
        (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + config)
        done = mutmut(folder, "run", *(f"*__mutmut_{number}" for number in NUMBERS[::every] if every > 1))
        if done.returncode and NOTHING not in done.stdout:
            raise SystemExit(done.stdout[-4_000:] + done.stderr)
        return {core.name: _codes(core, folder) for core in chosen}


def mutmut(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder / "mutants" / "src"), str(ROOT / "tools")])
    command = [str(Path(sys.executable).parent / "mutmut"), *words]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _codes(core: Core, folder: Path) -> list[int]:
    """Prints the survivors as diffs."""
    meta = folder / "mutants" / f"{core.file}.meta"
    codes: dict[str, int | None] = json.loads(meta.read_text())["exit_code_by_key"] if meta.exists() else {}
    for key in (key for key, code in codes.items() if code == SURVIVED):
        print(f"\n{mutmut(folder, 'show', key).stdout.strip()}")
    for function in dict.fromkeys(
        key.partition("__mutmut")[0] for key, code in codes.items() if code in UNTESTED
    ):
        print(f"no test executes {function}")
    return [code for code in codes.values() if code is not None]


def chosen_by(options: argparse.Namespace) -> list[Core]:
    if not options.since:
        return [core for core in cores().values() if is_below(core.name, options.modules)]
    words = ["git", "diff", "--name-only", options.since]
    changed = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    paths = {ROOT / line for line in changed.splitlines()}
    return [core for core in cores().values() if core.member / core.file in paths]


def main() -> int:
    options = _options()
    shares = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    failed = False
    chosen = chosen_by(options)
    for core in (core for core in chosen if not tests_of([core])):
        print(f"{core.name}: only tests of shells reach it", flush=True)
    for member in sorted({core.member for core in chosen}):
        own = [core for core in chosen if core.member == member and tests_of([core])]
        for name, codes in run(member, own, options.every).items() if own else ():
            caught = sum(code not in (SURVIVED, *UNTESTED) for code in codes)
            least = shares["cores"].get(name, shares["share"])
            below = options.every == 1 and caught < least * len(codes)
            failed |= below
            print(
                f"{name}: {caught} of {len(codes)} caught{f', less than {least}' if below else ''}",
                flush=True,
            )
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--since", metavar="COMMIT")
    parser.add_argument("--every", metavar="N", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
