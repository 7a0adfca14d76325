"""Prints the size of the product: its source lines, files, small modules and import lines, for each member.

    .venv/bin/python -m tools.house [FOLDER]

FOLDER is the root of a checkout, by default the current folder, so that another commit can be measured from a worktree.
Product source is every hand-written Python file below libs/*/src, services/*/src, cli/src and spark/*/src. Generated
code does not count. How many modules one Produce crosses is measured by e2e/scenarios/test_house.py.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from pathlib import Path

from tools.module_sizes import GENERATED

PRODUCT = ("libs/*/src", "services/*/src", "cli/src", "spark/*/src")
SMALL, SMALLEST = 60, 30


@dataclass(frozen=True, slots=True)
class Module:
    member: str
    lines: int
    import_lines: int

    @classmethod
    def read(cls, path: Path, member: str) -> Module:
        source = path.read_text()
        imports = (
            node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)
        )
        return cls(
            member,
            source.count("\n"),
            sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports),
        )


def product(root: Path) -> list[Module]:
    """Every hand-written module of the product, member by member. An empty `__init__.py` counts as a file."""
    return [
        Module.read(path, str(folder.parent.relative_to(root)))
        for pattern in PRODUCT
        for folder in sorted(root.glob(pattern))
        for path in sorted(folder.rglob("*.py"))
        if not any(mark in f"/{path.relative_to(root)}" for mark in GENERATED)
    ]


def row(name: str, modules: list[Module]) -> str:
    counts = (
        len(modules),
        sum(module.lines for module in modules),
        sum(module.lines < SMALL for module in modules),
        sum(module.lines < SMALLEST for module in modules),
        sum(module.import_lines for module in modules),
    )
    return f"{name:22}" + "".join(f"{count:>10}" for count in counts)


def main() -> None:
    modules = product(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    heads = ("files", "lines", f"below {SMALL}", f"below {SMALLEST}", "imports")
    print(f"{'member':22}" + "".join(f"{head:>10}" for head in heads))
    for member in sorted({module.member for module in modules}):
        print(row(member, [module for module in modules if module.member == member]))
    print(row("all", modules))


if __name__ == "__main__":
    main()
