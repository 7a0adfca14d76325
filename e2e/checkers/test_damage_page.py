"""docs/protocol/damage.md says what the damage scenarios assert: its tables equal theirs, row by row."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.harness.bundle_damage import BUNDLE_ROWS, bundle_table
from e2e.harness.damage import ROWS, TRANSACTION_ROWS, table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "protocol" / "damage.md"


@pytest.mark.parametrize(
    "tested", [table(), table(TRANSACTION_ROWS), bundle_table()], ids=["values", "transactions", "bundles"]
)
def test_the_page_has_the_tables_that_are_tested(tested: str) -> None:
    assert tested in PAGE.read_text(), f"put this into {PAGE.name}:\n{tested}"


def test_what_operators_see_of_a_bundle_exists() -> None:
    """Alerts, metrics, and events of the log."""
    seen = " ".join(row.operator for row in BUNDLE_ROWS)
    alerts = (ROOT / "observe" / "prometheus" / "alerts.yml").read_text()
    metrics = (ROOT / "docs" / "metrics.md").read_text()
    sources = "".join(path.read_text() for path in ROOT.glob("*/*/src/**/*.py"))
    sources += "".join(path.read_text() for path in (ROOT / "cli" / "src").rglob("*.py"))
    assert all(f"alert: {name}\n" in alerts for name in re.findall(r"\bKafscale\w+", seen))
    for quoted in re.findall(r"`([^`]+)`", seen):
        if quoted.startswith("kafscale_"):
            assert quoted in metrics
        elif quoted != "kafscale dump":
            assert quoted in sources, quoted


def test_each_kind_of_value_is_there_once() -> None:
    rows = [*ROWS, *TRANSACTION_ROWS]
    names = [row.name for row in rows]
    assert len(set(names)) == len(names)
    assert all(row.missing and row.unreadable and row.remedy for row in rows)
