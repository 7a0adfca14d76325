"""Plants known bugs, one at a time, and checks that the tests catch each: `make mutants`.

A mutant is a replacement in one source file, listed in a mutants_*.toml. It is planted in a copy of its package, which
shadows the real one for the mutant's tests; the checkout does not change. If a mutant survives, no test checks its law:
improve the test, or delete the unneeded line. The ablations of the model-checked protocol are not replacements but
complete variants (services/produce/tests/log/writer_flaws.py), and run first.

    tools/mutants.py            all of them
    tools/mutants.py producers  those whose name or file holds the word
    tools/mutants.py --attacks  those that take out the defence against an attack; docs/attacks.md lists them
    tools/mutants.py --fit      only whether each can still be planted; part of `make check`
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ABLATIONS = "services/produce/tests/log/test_writer_ablations.py"
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Mutant:
    """`before` occurs exactly once in `file`, which is below `source` ({source}/{package}/…).

    `attack`: `group: what the attacker does`, if the mutant takes out the defence against it.
    """

    name: str
    file: str
    before: str
    after: str
    tests: str
    source: str
    package: str
    attack: str = ""

    @property
    def path(self) -> str:
        return f"{self.package}/{self.file}"


def listed(path: Path) -> list[Mutant]:
    """Those of a file: `laws` are caught by the file's law tests alone, others by the tests they name, or by
    any of the file's."""
    table = tomllib.loads(path.read_text())
    return [
        Mutant(
            name=row["name"],
            file=row["file"],
            before=row["before"],
            after=row["after"],
            tests=row.get("tests") or table["laws" if row.get("laws") else "tests"],
            source=row.get("source", table["source"]),
            package=row.get("package", table["package"]),
            attack=row.get("attack", ""),
        )
        for row in table["mutant"]
    ]


def misfit(mutant: Mutant) -> str | None:
    """Why the mutant does not fit the code any more; empty if it fits."""
    if gone := [test for test in mutant.tests.partition(" -k ")[0].split() if not exists(test)]:
        return f"{mutant.name}: there is no {' '.join(gone)}"
    found = (ROOT / mutant.source / mutant.path).read_text().count(mutant.before)
    if found == 1:
        return None
    return f"{mutant.name}: {mutant.before!r} occurs {found} times in {mutant.path}, not once"


def exists(test: str) -> bool:
    """`file`, or `file::test`."""
    file, _, name = test.partition("::")
    path = ROOT / file
    return path.exists() and (not name or f"def {name}(" in path.read_text())


def everything() -> list[Mutant]:
    return [
        mutant for path in sorted(Path(__file__).parent.glob("mutants_*.toml")) for mutant in listed(path)
    ]


def chosen_by(words: list[str], known: list[Mutant]) -> list[Mutant]:
    if words == ["--attacks"]:
        return [mutant for mutant in known if mutant.attack]
    return [m for m in known if not words or any(word in f"{m.name} {m.file}" for word in words)]


def plant(mutant: Mutant, folder: Path) -> None:
    """A copy of the package under `folder`, with the mistake in it."""
    shutil.copytree(ROOT / mutant.source / mutant.package, folder / mutant.package)
    target = folder / mutant.path
    target.write_text(target.read_text().replace(mutant.before, mutant.after))


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


def main(words: list[str]) -> int:
    known = everything()
    misfits = [why for mutant in known if (why := misfit(mutant)) is not None]
    print("".join(f"{why}\n" for why in misfits), end="")
    if misfits or words == ["--fit"]:
        return 1 if misfits else 0
    chosen = chosen_by(words, known)
    if not chosen:
        print(f"no mutant has {' or '.join(words)} in its name or file")
        return 2
    if not words:
        print("the ablations of the protocol …", flush=True)
        if not run_tests(ABLATIONS):
            print(f"SURVIVED: see {ABLATIONS}")
            return 1
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        caught = list(pool.map(is_caught, chosen))
    survivors = caught.count(False)
    print(f"{len(chosen) - survivors} of {len(chosen)} caught")
    return 1 if survivors else 0


def is_caught(mutant: Mutant) -> bool:
    with tempfile.TemporaryDirectory(prefix="kafscale-mutant-") as folder:
        plant(mutant, Path(folder))
        caught = not run_tests(mutant.tests, Path(folder))
    print(f"{'caught  ' if caught else 'SURVIVED'}  {mutant.file}: {mutant.name}", flush=True)
    return caught


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
