"""Prints the circles of import among the modules of the product, and fails if there is one.

    .venv/bin/python -m tools.import_circles [FOLDER]

FOLDER is the root of a checkout, by default the current folder. Each import in the source counts: at the top of a
module, below TYPE_CHECKING, and inside a function. The packages that a module lies in do not count, although Python
imports them too. Generated code does not count.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tools.module_sizes import GENERATED, PRODUCT

Imports = Mapping[str, frozenset[str]]
KNOWN: Final[tuple[list[str], ...]] = ()
"""Circles that are not opened yet. No other may come."""


def product_imports(root: Path) -> Imports:
    """For each module of the product, the modules of the product that it imports."""
    sources = {
        _name(path.relative_to(folder)): path
        for pattern in PRODUCT
        for folder in sorted(root.glob(pattern))
        for path in sorted(folder.rglob("*.py"))
        if not any(mark in f"/{path.relative_to(root)}" for mark in GENERATED)
    }
    modules = frozenset(sources)
    return {name: frozenset(_imported(path, modules)) - {name} for name, path in sources.items()}


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, modules: frozenset[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert not node.level, f"{path}: imports are absolute"
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                if submodule in modules:
                    yield submodule
                elif node.module in modules:
                    yield node.module


def circles(imports: Imports) -> list[list[str]]:
    """The modules of each circle, sorted. Two circles that share a module are one."""
    reached = {name: _reached(imports, name) for name in imports}
    found = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in imports
        if name in reached[name]
    }
    return sorted(map(sorted, found))


def _reached(imports: Imports, start: str) -> set[str]:
    """What `start` imports, over any number of modules; `start` itself only if it lies in a circle."""
    found: set[str] = set()
    left = [start]
    while left:
        new = imports[left.pop()] - found
        found |= new
        left.extend(new)
    return found


def main() -> int:
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    found = [circle for circle in circles(product_imports(root)) if circle not in KNOWN]
    for modules in found:
        print("a circle of imports:", *modules, sep="\n  ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
