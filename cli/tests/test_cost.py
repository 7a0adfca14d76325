"""`kafscale cost`: what it prints, and that the tables of docs/cost.md are current."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kafscale.cli.__main__ import app
from kafscale.operations.cost.load import Load, Prices, Tuning, bill
from kafscale.operations.cost.model import requests_of
from kafscale.operations.cost.rows import COLUMNS, rows_of
from typer.testing import CliRunner

RUNNER = CliRunner()
PAGE = Path(__file__).resolve().parents[2] / "docs" / "cost.md"


def printed(*options: str) -> Any:
    result = RUNNER.invoke(app, ["cost", "--output", "json", *options])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_load_is_shown_per_second_and_month() -> None:
    rows = printed("--rate-mb", "1", "--partitions", "10", "--instances", "1")
    assert [row["per"] for row in rows] == ["second", "month"]
    assert all(tuple(row) == COLUMNS for row in rows)
    requests = requests_of(Load(bytes_per_s=1e6, partitions=10, instances=1), Tuning())
    assert rows == rows_of(requests, Prices())
    assert rows[1]["puts"] == round(requests.puts * 2_592_000)
    assert rows[0]["usd"] is None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("rate-mb", "2"),
        ("partitions", "20"),
        ("instances", "2"),
        ("record-bytes", "20000"),
        ("reads", "2"),
        ("bundles-per-s", "4"),
        ("head-commits-per-s", "40"),
        ("segment-bytes", "1048576"),
        ("bundle-direct-bytes", "65536"),
        ("settle-keep-bytes", "1000"),
        ("settle-ms", "1000"),
        ("bundle-grace-ms", "1"),
        ("put-usd-per-million", "6"),
        ("get-usd-per-million", "6"),
        ("tb-month-usd", "60"),
    ],
)
def test_each_option_counts(option: str, value: str) -> None:
    assert printed("--rate-mb", "20", f"--{option}", value) != printed("--rate-mb", "20")


def test_a_table_has_readable_numbers() -> None:
    result = RUNNER.invoke(app, ["cost"])
    assert result.exit_code == 0
    assert "39,907,209" in result.stdout
    assert "215.01" in result.stdout


def test_now_without_a_cluster_is_a_sentence(tmp_path: Path) -> None:
    result = RUNNER.invoke(app, ["cost", "--now", "--data-dir", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"no cluster runs on {tmp_path}" in result.stderr.replace("\n", "")


# --- the page --------------------------------------------------------------------------------


def page_table(rate_mb: int) -> str:
    lines = [
        "| partitions | instances | PUT/s | GET/s | commits/s | redundant GB | PUT $ | GET $ | $ a month |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for partitions in (10, 1_000, 10_000):
        for instances in (1, 3):
            load = Load(bytes_per_s=rate_mb * 1e6, partitions=partitions, instances=instances)
            each = requests_of(load, Tuning())
            paid = bill(each, Prices())
            cells = [f"{partitions:,}", str(instances)]
            cells += [f"{count:,.0f}" for count in (each.puts, each.gets or 0.0, each.head_commits)]
            cells += [f"{each.redundant_bytes / 1e9:.1f}"]
            cells += [f"{amount:,.0f}" for amount in (paid.puts, paid.gets or 0.0, paid.total)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("rate_mb", [1, 10])
def test_the_tables_of_the_page_are_what_the_command_computes(rate_mb: int) -> None:
    heading = f"## {rate_mb} MB/s\n\n"
    shown = PAGE.read_text().partition(heading)[2].partition("\n\n")[0] + "\n"
    assert shown == page_table(rate_mb)


def test_the_example_of_the_page_is_what_the_command_prints() -> None:
    result = RUNNER.invoke(app, ["cost", "--rate-mb", "1", "--partitions", "10", "--instances", "1"])
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert "\n".join(lines) in PAGE.read_text()
