"""Prints the size of the product: its source lines, files, small modules and import lines, for each member.

    .venv/bin/python -m tools.house [FOLDER]

FOLDER is the root of a checkout, by default the current folder, so that another commit can be measured from a worktree.
Product source is every hand-written Python file below libs/*/src, services/*/src, cli/src and spark/*/src. Generated
code does not count. How many modules one Produce crosses is measured by e2e/scenarios/test_house.py.

"one user" counts modules below 60 lines that exactly one other module imports: a candidate to become part of that
module. A circle is a set of modules that import each other, also for types only or inside a function.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.import_circles import Imports, circles, product_imports
from tools.module_sizes import GENERATED, PRODUCT

SMALL, SMALLEST = 60, 30


@dataclass(frozen=True, slots=True)
class Module:
    member: str
    name: str
    """As others import it: `kafscale.fetch.plan`. A package's is `kafscale.fetch.__init__`."""
    lines: int
    import_lines: int

    @classmethod
    def read(cls, path: Path, member: str, name: str) -> Module:
        source = path.read_text()
        imports = (
            node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)
        )
        return cls(
            member,
            name,
            source.count("\n"),
            sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports),
        )


def product(root: Path) -> list[Module]:
    """Every hand-written module of the product, member by member. An empty `__init__.py` counts as a file."""
    return [
        Module.read(
            path,
            str(folder.parent.relative_to(root)),
            ".".join(path.relative_to(folder).with_suffix("").parts),
        )
        for pattern in PRODUCT
        for folder in sorted(root.glob(pattern))
        for path in sorted(folder.rglob("*.py"))
        if not any(mark in f"/{path.relative_to(root)}" for mark in GENERATED)
    ]


def with_one_user(modules: Sequence[Module], imports: Imports) -> list[Module]:
    """Modules below SMALL lines that exactly one other module imports. A package is no module here."""
    users = Counter(name for imported in imports.values() for name in imported)
    return [each for each in modules if each.lines < SMALL and users[each.name] == 1]


def row(name: str, modules: Sequence[Module], alone: Collection[Module]) -> str:
    counts = (
        len(modules),
        sum(module.lines for module in modules),
        sum(module.lines < SMALL for module in modules),
        sum(module.lines < SMALLEST for module in modules),
        sum(module in alone for module in modules),
        sum(module.import_lines for module in modules),
    )
    return f"{name:22}" + "".join(f"{count:>10}" for count in counts)


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    modules, imports = product(root), product_imports(root)
    alone = with_one_user(modules, imports)
    heads = ("files", "lines", f"below {SMALL}", f"below {SMALLEST}", "one user", "imports")
    print(f"{'member':22}" + "".join(f"{head:>10}" for head in heads))
    for member in sorted({module.member for module in modules}):
        print(row(member, [module for module in modules if module.member == member], alone))
    print(row("all", modules, alone))
    print(f"below {SMALL} lines with one user: {', '.join(each.name for each in alone)}")
    found = circles(imports)
    print(f"circles of imports: {len(found)}", *(f"  {', '.join(each)}" for each in found), sep="\n")


if __name__ == "__main__":
    main()
