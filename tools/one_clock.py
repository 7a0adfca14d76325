"""Fails if a service, or a library below the services, asks the machine for time or randomness by itself.

All of it comes from `kafscale.storage.system`, so that a simulation can replace it. Names count, not imports: a type
like `random.Random` may be imported, and may not be constructed.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

CHECKED: Final = (
    *(f"libs/{name}/src" for name in ("wire", "access", "storage", "log", "runtime")),
    "services/*/src",
    "spark/lake/src",
    "spark/upkeep/src",
)
ASKED: Final = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"},
    "os": {"urandom", "getrandom"},
    "uuid": {"uuid1", "uuid4"},
    "secrets": {"token_bytes", "token_hex", "token_urlsafe", "randbits", "randbelow", "choice"},
    "random": {
        "Random",
        "SystemRandom",
        "random",
        "randrange",
        "randint",
        "choice",
        "choices",
        "sample",
        "shuffle",
        "uniform",
    },
}
EXCEPT: Final = {
    "storage/system.py": "is the place",
    "storage/objects/locks.py": "waits in a thread for a lock of a file system",
    "runtime/etcd_binary.py": "starts real programs",
    "runtime/ports.py": "draws real ports",
    "runtime/log_writer.py": "waits in its thread for a real terminal or pipe",
    "runtime/log_storms.py": "counts the lines of a real log",
}


def complaints(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ASKED:
            asked = [alias.name for alias in node.names if alias.name in ASKED[node.module]]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            asked = [node.attr] if node.attr in ASKED.get(node.value.id, ()) else []
            if asked == ["Random"] and not _is_called(tree, node):
                continue
        else:
            continue
        for name in asked:
            yield f"{path}:{node.lineno}: {name} comes from kafscale.storage.system, or from a Clock"


def _is_called(tree: ast.AST, function: ast.Attribute) -> bool:
    return any(isinstance(node, ast.Call) and node.func is function for node in ast.walk(tree))


def main() -> int:
    roots = [root for folder in CHECKED for root in Path().glob(folder)]
    paths = [path for root in roots for path in sorted(root.rglob("*.py")) if not path.stem.endswith("_pb2")]
    found = [
        line
        for path in paths
        if not any(path.as_posix().endswith(f"kafscale/{name}") for name in EXCEPT)
        for line in complaints(path)
    ]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
