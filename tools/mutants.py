"""Plants known bugs, one at a time, and checks that the tests catch each: `make mutants`.

A mutant is a replacement in one source file. The lists, mutants_*.toml, hold attacks, and mistakes in the laws of
acknowledgement, claims, bundles, deletion, history, groups, reads, transactions, connections and authorization;
mutation.py generates others.
A mutant is planted in a copy of its package, which shadows the real one for the mutant's tests; the checkout does not
change. If a mutant survives, no test checks its law: improve the test, or delete the unneeded line. The ablations of
the model-checked protocol are not replacements but complete variants (services/produce/tests/log/writer_flaws.py), and
run first.

A row's key is the mistake. `file` begins with the package below kafscale. The table `tests` names the tests of each
file, and a row may name others. A mistake for which more than one line must go has further replacements in `also`,
in the same file or in others of its package.

    tools/mutants.py               all of them
    tools/mutants.py producers     those whose name, file or list holds one of the words
    tools/mutants.py --since main  those whose code or tests have changed since a commit, and those listed since then
    tools/mutants.py --attacks     those that take out the defence against an attack; docs/attacks.md lists them
    tools/mutants.py --fit         only whether each can still be planted; part of `make check`
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ABLATIONS = "services/produce/tests/log/test_writer_ablations.py"
TIMEOUT_S = 300


class Edit(NamedTuple):
    file: str
    before: str
    after: str

    @property
    def package(self) -> str:
        return f"kafscale/{self.file.partition('/')[0]}"

    @property
    def path(self) -> str:
        return f"{source_of(self.package)}/kafscale/{self.file}"


@dataclass(frozen=True, slots=True)
class Mutant:
    """`before` occurs exactly once in `file`. `also`: (file, before, after) of further replacements. `listing`: the
    name of its list.

    `attack`: `group: what the attacker does`, if the mutant takes out the defence against it.
    """

    name: str
    file: str
    before: str
    after: str
    tests: str
    listing: str
    attack: str = ""
    also: tuple[Edit, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        return Edit(self.file, self.before, self.after), *self.also

    @property
    def package(self) -> str:
        return self.edits[0].package

    @property
    def paths(self) -> list[str]:
        return [each.path for each in self.edits]

    @property
    def test_files(self) -> list[str]:
        return [test.partition("::")[0] for test in self.tests.partition(" -k ")[0].split()]


@cache
def source_of(package: str) -> str:
    """The folder `src` that holds a package; `src` if none does."""
    found = [path for pattern in ("*/src", "*/*/src") for path in ROOT.glob(f"{pattern}/{package}")]
    return str(found[0].parent.parent.relative_to(ROOT)) if found else "src"


def listed(listing: str, text: str) -> list[Mutant]:
    table = tomllib.loads(text)
    tests = table.pop("tests", {})
    return [
        Mutant(
            name=name,
            file=row["file"],
            before=row["before"],
            after=row["after"],
            tests=row.get("tests") or tests[row["file"]],
            listing=listing,
            attack=row.get("attack", ""),
            also=tuple(
                Edit(each.get("file", row["file"]), each["before"], each["after"])
                for each in row.get("also", ())
            ),
        )
        for name, row in table.items()
        if isinstance(row, dict)
    ]


def misfit(mutant: Mutant) -> str | None:
    """Why the mutant does not fit the code any more; empty if it fits."""
    if gone := [test for test in mutant.tests.partition(" -k ")[0].split() if not exists(test)]:
        return f"{mutant.name}: there is no {' '.join(gone)}"
    for edit in mutant.edits:
        if not (ROOT / edit.path).exists():
            return f"{mutant.name}: there is no {edit.path}"
        found = (ROOT / edit.path).read_text().count(edit.before)
        if found != 1:
            return f"{mutant.name}: {edit.before!r} occurs {found} times in {edit.path}, not once"
        if edit.package != mutant.package:
            return f"{mutant.name}: {edit.file} is in another package than {mutant.file}"
    return None


def exists(test: str) -> bool:
    """`file`, or `file::test`."""
    file, _, name = test.partition("::")
    path = ROOT / file
    return path.exists() and (not name or f"def {name}(" in path.read_text())


def everything() -> list[Mutant]:
    paths = sorted(Path(__file__).parent.glob("mutants_*.toml"))
    return [mutant for path in paths for mutant in listed(path.name, path.read_text())]


def touched_since(commit: str, known: list[Mutant]) -> list[Mutant]:
    """Those whose file or tests differ from `commit`, and those that its lists do not have."""
    changed = set(_git("diff", "--name-only", commit).splitlines())
    old: set[Mutant] = set()
    for path in _git("ls-tree", "--name-only", commit, "tools/").splitlines():
        name = Path(path).name
        if name.startswith("mutants_") and name.endswith(".toml"):
            old.update(listed(name, _git("show", f"{commit}:{path}")))
    return [
        mutant
        for mutant in known
        if mutant not in old or not changed.isdisjoint([*mutant.paths, *mutant.test_files])
    ]


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {words[0]} failed; its message is above")
    return done.stdout


def chosen_by(options: argparse.Namespace, known: list[Mutant]) -> list[Mutant]:
    if options.since:
        known = touched_since(options.since, known)
    if options.attacks:
        known = [mutant for mutant in known if mutant.attack]
    words = options.words
    return [m for m in known if not words or any(word in f"{m.name} {m.file} {m.listing}" for word in words)]


def plant(mutant: Mutant, folder: Path) -> None:
    """A copy of the package under `folder`, with the mistake in it."""
    shutil.copytree(ROOT / source_of(mutant.package) / mutant.package, folder / mutant.package)
    for edit in mutant.edits:
        target = folder / "kafscale" / edit.file
        target.write_text(target.read_text().replace(edit.before, edit.after))


def run_tests(tests: str, folder: Path | None = None) -> bool:
    """Whether they pass, and end."""
    shadows = [ROOT / "tools"] if folder is None else [folder, ROOT / "tools"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, shadows))}
    target, _, chosen = tests.partition(" -k ")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "unshrunk",
        "-m",
        "not deep",
        *target.split(),
    ]
    command += ["-k", chosen] if chosen else []
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):
        raise SystemExit(done.stdout.decode() + done.stderr.decode())
    return done.returncode == 0


def main() -> int:
    options = _options()
    known = everything()
    misfits = [why for mutant in known if (why := misfit(mutant)) is not None]
    print("".join(f"{why}\n" for why in misfits), end="")
    if misfits or options.fit:
        return 1 if misfits else 0
    chosen = chosen_by(options, known)
    if not chosen:
        print("no mutant is chosen by these words")
        return 2
    if chosen == known:
        print("the ablations of the protocol …", flush=True)
        if not run_tests(ABLATIONS):
            print(f"SURVIVED: see {ABLATIONS}")
            return 1
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        caught = list(pool.map(is_caught, chosen))
    survivors = caught.count(False)
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    return 1 if survivors else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("words", nargs="*")
    parser.add_argument("--since", metavar="COMMIT")
    parser.add_argument("--attacks", action="store_true")
    parser.add_argument("--fit", action="store_true")
    return parser.parse_args()


def is_caught(mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory(prefix="kafscale-mutant-") as folder:
        plant(mutant, Path(folder))
        caught = not run_tests(mutant.tests, Path(folder))
    print(f"{'caught  ' if caught else 'SURVIVED'}  {mutant.file}: {mutant.name}", flush=True)
    return caught


if __name__ == "__main__":
    raise SystemExit(main())
