"""The counts of `tools.house`, on a small tree: one test for each that a member's row and the last lines show."""

from __future__ import annotations

from pathlib import Path

from tools.house import product, with_one_user
from tools.import_circles import circles, product_imports

SOURCES = {
    "door/__init__.py": "",
    "door/server.py": "from kafscale.door.small import A\nfrom kafscale.door import (\n    shared,\n    large,\n)\n",
    "door/small.py": "A = 1\n",
    "door/shared.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from kafscale.door.other import B\n",
    "door/other.py": "def b() -> None:\n    import kafscale.door.shared\nB = 1\n",
    "door/large.py": "C = 1\n" * 60,
    "door/schema_pb2.py": "import kafscale.door.small\n",
}


def tree(root: Path) -> Path:
    for name, source in SOURCES.items():
        path = root / "services/door/src/kafscale" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return root


def test_lines_of_imports_count_each_line_of_a_statement_and_no_generated_file(tmp_path: Path) -> None:
    lines = {each.name: (each.lines, each.import_lines) for each in product(tree(tmp_path))}
    assert lines["kafscale.door.server"] == (5, 5)
    assert lines["kafscale.door.other"] == (3, 1)
    assert "kafscale.door.schema_pb2" not in lines
    assert lines["kafscale.door.__init__"] == (0, 0)


def test_a_small_module_with_one_user_is_named_and_a_large_one_or_one_with_two_is_not(tmp_path: Path) -> None:
    root = tree(tmp_path)
    alone = with_one_user(product(root), product_imports(root))
    assert [each.name for each in alone] == ["kafscale.door.other", "kafscale.door.small"]


def test_imports_for_types_and_inside_functions_close_a_circle(tmp_path: Path) -> None:
    assert circles(product_imports(tree(tmp_path))) == [["kafscale.door.other", "kafscale.door.shared"]]
