"""docs/protocol/damage.md says what the damage scenarios assert: its table equals theirs, row by row."""

from __future__ import annotations

from pathlib import Path

from e2e.harness.damage import ROWS, table

PAGE = Path(__file__).parents[2] / "docs" / "protocol" / "damage.md"


def test_the_page_has_the_table_that_is_tested() -> None:
    assert table() in PAGE.read_text(), f"put this into {PAGE.name}:\n{table()}"


def test_each_kind_of_value_is_there_once() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert all(row.missing and row.unreadable and row.remedy for row in ROWS)
