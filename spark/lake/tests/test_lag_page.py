"""The page shows everything, lets no name become markup, asks nobody for anything and stays small."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from kafscale.lake.lag.commits import Commit
from kafscale.lake.lag.page import LEVELS, drawn, render
from kafscale.lake.lag.report import Facts, Report, make_report
from kafscale.storage.groups import CommittedOffset
from kafscale.testkit.chromium import Page, browser_page

from .lag_world import lag_of, logs, world

BYTES_MAX = 300_000
BROWSER_S = 900
HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<!--<script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "\u2028';document.title='owned';//",
    "{{data}}",
)


@pytest.fixture(scope="module")
def report() -> Report:
    return make_report(world())


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return render(report)


def hostile() -> Report:
    """Groups, clients and hosts of such names, without history."""
    log = logs()[0]
    commits = [
        Commit(
            group=name,
            topic=log.topic.name,
            partition=0,
            offset=CommittedOffset(offset=log.end - 10, commit_ms=1),
        )
        for name in HOSTILE
    ]
    lags = [lag_of(each, log, 5) for each in commits]
    return make_report(Facts(cluster=HOSTILE[0], at_ms=1, logs=[log], commits=commits, lags=lags))


class Elements(HTMLParser):
    """What a browser makes of the text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._open = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open = dict(attrs).get("id") or tag

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        self.texts[self._open] = self.texts.get(self._open, "") + data


def parsed(page: str) -> Elements:
    elements = Elements()
    elements.feed(page)
    return elements


def test_a_thousand_partitions_with_a_day_of_history_are_a_small_page(report: Report, page: str) -> None:
    assert len(report.partitions) >= 1_200
    assert {row.status.value for row in report.partitions} == {"OK", "WARN", "STALL", "STOP", "REWIND"}
    assert len(page.encode()) < BYTES_MAX


def test_every_partition_is_in_the_page(report: Report, page: str) -> None:
    data = json.loads(parsed(page).texts["data"])
    columns = data["partitions"]
    found = zip(columns["group"], columns["topic"], columns["partition"], columns["records"], strict=True)
    assert [(data["groups"][g]["name"], data["names"][t], p, n) for g, t, p, n in found] == [
        (*row.place, row.records) for row in report.partitions
    ]
    assert {len(values) for values in columns.values()} == {len(report.partitions)}


def test_no_name_becomes_markup() -> None:
    calm, harmed = parsed(render(replace(hostile(), cluster="c"))), parsed(render(hostile()))
    assert [tag for tag, _ in harmed.tags] == [tag for tag, _ in calm.tags]
    assert {group["name"] for group in json.loads(harmed.texts["data"])["groups"]} == set(HOSTILE)
    assert json.loads(harmed.texts["data"])["cluster"] == HOSTILE[0]


def test_the_page_needs_nothing_and_allows_nothing_but_itself(page: str) -> None:
    elements = parsed(page)
    assert not [
        attributes for _, attributes in elements.tags if {"src", "href", "action"} & attributes.keys()
    ]
    assert set(re.findall(r"https?://[^\s\"']+", page)) == {"http://www.w3.org/2000/svg"}
    (policy,) = (attributes["content"] for _, attributes in elements.tags if attributes.get("http-equiv"))
    for kind in ("script", "style"):
        digest = hashlib.sha256(elements.texts[kind].encode()).digest()
        assert f"{kind}-src 'sha256-{base64.b64encode(digest).decode()}'" in (policy or "")
    assert (policy or "").startswith("default-src 'none'")


def test_a_line_is_a_letter_for_each_point() -> None:
    assert drawn(np.array([-1, 0, 5, 10])) == f".{LEVELS[0]}{LEVELS[31]}{LEVELS[-1]}"
    assert drawn(np.array([-1, 1_000_000])) == f".{LEVELS[-1]}"
    assert drawn(np.array([0, 0])) == "AA"
    assert drawn(np.array([], dtype=np.int64)) == ""
    assert len(drawn(np.arange(97))) == 49


async def opened(tab: Page, path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    await tab.open(path.as_uri())


async def shown(tab: Page) -> list[str]:
    found: list[str] = await tab.ask(
        "[...document.querySelectorAll('.who b')].map((name) => name.textContent)"
    )
    return found


@pytest.mark.timeout(BROWSER_S)
async def test_a_browser_shows_it_without_a_complaint_and_without_a_request(
    report: Report, page: str, tmp_path: Path
) -> None:
    async with browser_page(tmp_path / "profile") as tab:
        await opened(tab, tmp_path / "lag.html", page)
        assert len(await shown(tab)) == len(report.groups)
        assert await tab.ask("document.querySelectorAll('.cells i').length") == len(report.partitions)
        await tab.ask("document.getElementById('all').click()")
        await tab.until(f"document.querySelectorAll('details tbody tr').length === {len(report.partitions)}")
        assert await tab.ask("document.querySelectorAll('#topics tbody tr').length") == len(report.topics)
        await tab.ask("document.getElementById('search').value = 'fraud'")
        await tab.ask("document.getElementById('search').dispatchEvent(new Event('input'))")
        assert await shown(tab) == ["fraud-detector"]
        await opened(tab, tmp_path / "hostile.html", render(hostile()))
        assert sorted(await shown(tab)) == sorted(HOSTILE)
        assert await tab.ask("document.title") == f"Consumer lag of {HOSTILE[0]}"
        assert tab.seen.messages == []
        assert {Path(url).name for url in tab.seen.requests} == {"lag.html", "hostile.html"}


@pytest.mark.timeout(BROWSER_S)
async def test_a_page_that_misbehaves_is_told_of(tmp_path: Path) -> None:
    """The test above would be worth nothing if the browser kept such things to itself."""
    async with browser_page(tmp_path / "profile") as tab:
        text = "<script>console.log('hello'); fetch('http://127.0.0.1:9/x').catch(() => 0); throw 'oops'</script>"
        await opened(tab, tmp_path / "bad.html", text)
        await tab.ask("fetch('http://127.0.0.1:9/y').catch(() => 0)")
        told = " ".join(tab.seen.messages)
        assert "hello" in told
        assert "oops" in told
        assert {"http://127.0.0.1:9/x", "http://127.0.0.1:9/y"} <= set(tab.seen.requests)
