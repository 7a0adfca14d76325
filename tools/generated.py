"""Writes or checks the generated files that are checked in; every generator calls it.

python -m tools.gen_wire            writes what differs; `make gen` runs all generators
python -m tools.gen_wire --check    writes nothing, and ends with 1 if a file is not current
"""

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent


def write_or_check(files: Mapping[Path, str], there: Iterable[Path] = ()) -> int:
    """Updates the files, or with --check prints the outdated ones. Returns the exit code.

    A file that is in `there` but not in `files` has lost its source, and is removed.
    """
    parser = argparse.ArgumentParser(description="Writes files that are made from others and checked in.")
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when a file is not current")
    check = parser.parse_args().check
    changed = [path for path, text in files.items() if not path.is_file() or path.read_text() != text]
    left = [path for path in there if path not in files]
    if check:
        for path in sorted((*changed, *left)):
            what = "is not current" if path in files else "is made from nothing any more"
            print(f"{path.relative_to(ROOT)} {what}: run `make gen`", file=sys.stderr)
        return 1 if changed or left else 0
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path])
        print(f"wrote {path.relative_to(ROOT)}")
    for path in left:
        path.unlink()
        print(f"removed {path.relative_to(ROOT)}")
    return 0
