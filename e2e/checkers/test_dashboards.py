"""Dashboards distinguish two clusters in one Prometheus, and two topics or groups of one cluster."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.checkers.promql import exported, matchers_of
from tools.dashboards.panels import narrowed

BOARDS: Final = sorted(
    (Path(__file__).parent.parent.parent / "observe" / "grafana" / "dashboards").glob("*.json")
)
CHOSEN: Final = ("cluster", "namespace", "instance", "topic", "group")
NAMES: Final = exported()
USED: Final = re.compile(r"\$(?!__)(\w+)")

each_board = pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)


def queries(path: Path) -> Iterator[str]:
    for panel in json.loads(path.read_text())["panels"]:
        yield from (target["expr"].replace("$__rate_interval", "1m") for target in panel["targets"])


def variables(path: Path) -> dict[str, dict[str, Any]]:
    found = json.loads(path.read_text())["templating"]["list"]
    return {each["name"]: each for each in found if each["type"] == "query"}


@each_board
def test_every_query_is_narrowed_by_each_variable_that_its_metric_has(path: Path) -> None:
    for query in queries(path):
        chosen = [*matchers_of(query)]
        assert chosen, query
        for name, matchers in chosen:
            wanted = {label for label in CHOSEN if label in NAMES.labels_of(name)}
            assert {label for label, value in matchers.items() if value == f"${label}"} == wanted, query
            assert "job" in matchers or not name.startswith("process_"), f"{query} is about other programs"


@each_board
def test_a_page_has_the_variables_that_its_queries_use_and_begins_with_all(path: Path) -> None:
    used = {name for query in queries(path) for name in USED.findall(query)}
    assert {*variables(path)} == used
    for variable in variables(path).values():
        assert variable["includeAll"]
        assert variable["multi"]
        assert variable["allValue"] == ".*", "series without the label would be left out"
        assert variable["current"]["value"] == "$__all"


@each_board
def test_a_variable_offers_what_the_variables_above_it_leave(path: Path) -> None:
    above: list[str] = []
    for name, variable in variables(path).items():
        used = USED.findall(variable["query"]["query"])
        assert used == [each for each in above if each in ("cluster", "namespace")]
        above.append(name)


def test_topics_and_groups_can_be_chosen_where_they_are_shown() -> None:
    pages = {path.stem: {*variables(path)} for path in BOARDS}
    assert {name for name, found in pages.items() if "topic" in found} >= {
        "kafscale-produce",
        "kafscale-fetch",
    }
    assert {"topic", "group"} <= pages["kafscale-groups"]


@pytest.mark.parametrize(
    ("query", "made"),
    [
        (
            'sum(rate(kafscale_produce_stepdowns_total{reason="fenced"}[1m]))',
            'sum(rate(kafscale_produce_stepdowns_total{reason="fenced", cluster=~"$cluster", '
            'namespace=~"$namespace", instance=~"$instance"}[1m]))',
        ),
        (
            "kafscale_produce_bytes_total",
            'kafscale_produce_bytes_total{cluster=~"$cluster", namespace=~"$namespace", instance=~"$instance", '
            'topic=~"$topic"}',
        ),
    ],
)
def test_what_a_query_says_already_stays(query: str, made: str) -> None:
    assert narrowed(query) == made
