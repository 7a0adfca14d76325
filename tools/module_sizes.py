"""Fails if a module has more than 600 lines or a function more than 60. Unit tests are exempt."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
PRODUCT = ("libs/*/src", "services/*/src", "console/src", "cli/src", "spark/*/src")
CHECKED = (*PRODUCT, "tools", "bench", "e2e")
GENERATED = ("_pb2", "/schema/", "/.venv/", "/node_modules/", "/.git/")


def complaints(path: Path) -> Iterator[str]:
    source = path.read_text()
    lines = source.count("\n")
    if lines > MODULE_LINES_MAX:
        yield f"{path}: {lines} lines, {MODULE_LINES_MAX} at most"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
            length = node.end_lineno - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{path}:{node.lineno}: {node.name} has {length} lines, {FUNCTION_LINES_MAX} at most"


def main() -> int:
    found_in = (path for folder in CHECKED for root in Path().glob(folder) for path in root.rglob("*.py"))
    paths = [path for path in sorted(found_in) if not any(mark in f"/{path}" for mark in GENERATED)]
    found = [line for path in paths for line in complaints(path)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
