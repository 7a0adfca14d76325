"""Rows are shown as what they are: text as text, numbers as numbers, nothing as nothing."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from kafscale.cli.terminal import Output, fail, progressing, record_line, rows_of, show_rows
from kafscale.operations.plain import plain
from kafscale.operations.sentences import counted

ROW = {"key": b"caf\xc3\xa9", "n": Decimal(200), "headers": [{"key": "h", "value": None}], "at": None}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"text", "text"),
        (b"\xff\x00", "\\xff00"),
        (Decimal(1 << 80), 1 << 80),
        (Decimal("1.50"), 1.5),
        (datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC), "2026-01-02T03:04:05.678+00:00"),
        ({"a": (b"b", 1)}, {"a": ["b", 1]}),
        (float("nan"), "NaN"),
        ([float("inf"), float("-inf"), 1.5], ["Infinity", "-Infinity", 1.5]),
        (pa.MonthDayNano([0, 0, 2_441_000_000]), "00:00:02.441"),
        (pa.MonthDayNano([14, 1, -3_723_000_000_000]), "14 months 1 day -01:02:03"),
        (pa.MonthDayNano([0, 3, 0]), "3 days"),
        (pa.MonthDayNano([0, 0, 0]), "00:00:00"),
        (None, None),
    ],
)
def test_a_value_as_json_says_it(value: Any, shown: Any) -> None:
    assert plain(value) == shown


def test_the_same_row_in_each_form(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(list(ROW), [ROW], Output.JSON)
    assert json.loads(capsys.readouterr().out) == [
        {"key": "café", "n": 200, "headers": [{"key": "h", "value": None}], "at": None}
    ]
    show_rows(list(ROW), [ROW], Output.CSV)
    assert capsys.readouterr().out.split() == [
        "key,n,headers,at",
        'café,200,"[{""key"":',
        '""h"",',
        '""value"":',
        'null}]",',
    ]
    show_rows(list(ROW), [ROW], Output.TABLE)
    head, row = capsys.readouterr().out.splitlines()
    assert head.index("n") + len("n") == row.index("200") + len("200"), "numbers stand to the right"


def test_text_within_a_list_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(["v"], [{"v": [{"k": "grün\x9b"}]}], Output.TABLE)
    assert capsys.readouterr().out.splitlines()[1].strip() == '[{"k": "grün\ufffd"}]'


def test_what_another_program_reads_is_not_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {f"column_{number}": "x" * 40 for number in range(20)}
    monkeypatch.delenv("COLUMNS", raising=False)
    show_rows(list(row), [row], Output.TABLE)
    assert len(capsys.readouterr().out.splitlines()) == 2
    monkeypatch.setenv("COLUMNS", "80")
    show_rows(list(row), [row], Output.TABLE)
    assert len(capsys.readouterr().out.splitlines()) > 2


@pytest.mark.parametrize("count", [0, 1, 3])
def test_rows_that_come_one_by_one_are_one_list(capsys: pytest.CaptureFixture[str], count: int) -> None:
    rows = [{"n": number, "of": ["a\n", {"b": None}]} for number in range(count)]
    shown = rows_of(["n", "of"], Output.JSON)
    for row in rows:
        shown.add([row])
    shown.end()
    assert capsys.readouterr().out == json.dumps(rows, indent=1) + "\n"


def test_what_records_hold_is_neither_markup_nor_control(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(["v"], [{"v": "[bold]\x1b[31mred"}], Output.TABLE)
    assert capsys.readouterr().out.splitlines()[1].strip() == "[bold]\ufffd[31mred"


def test_trouble_is_said_in_its_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    fail("no column named [/b] in list[1]")
    assert capsys.readouterr().err == "kafscale: no column named [/b] in list[1]\n"


ESCAPES = "\x1b]0;title\x07\x9b2J"


def test_a_name_that_looks_like_a_formula_is_none_in_a_spreadsheet(
    capsys: pytest.CaptureFixture[str],
) -> None:
    texts = ["=1+1", "+cmd", "-cmd|x", "@sum", "\t=1", "-5", "+1.5", "-1e3", "a=b"]
    show_rows(["v"], [{"v": text} for text in [*texts, -7]], Output.CSV)
    cells = [row["v"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))]
    assert cells == ["'=1+1", "'+cmd", "'-cmd|x", "'@sum", "'\t=1", "-5", "+1.5", "-1e3", "a=b", "-7"]
    show_rows(["v"], [{"v": "=1+1"}], Output.JSON)
    assert json.loads(capsys.readouterr().out) == [{"v": "=1+1"}]


@pytest.mark.parametrize("terminal", [True, False])
def test_control_codes_in_csv_reach_neither_a_terminal_nor_a_spreadsheet(
    terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    show_rows(["group"], [{"group": ESCAPES}], Output.CSV)
    shown = capsys.readouterr().out
    assert "title" in shown
    assert not any(code in shown for code in "\x1b\x07\x9b")


@pytest.mark.parametrize("terminal", [True, False])
def test_control_codes_in_records_reach_programs_and_no_terminal(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    shown = record_line(ESCAPES.encode()).decode()
    assert "title" in shown
    assert (ESCAPES in shown) is not terminal
    assert any(code in shown for code in "\x1b\x07\x9b") is not terminal
    assert record_line(b"\xff\n") == ("\ufffd\n".encode() if terminal else b"\xff\n")


def test_progress_leaves_no_trace_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    with progressing() as show:
        show("records", 1, 2)
    assert capsys.readouterr() == ("", "")


def test_one_is_singular_and_thousands_are_readable() -> None:
    assert [counted(number, "record") for number in (0, 1, 1_200)] == [
        "0 records",
        "1 record",
        "1,200 records",
    ]
