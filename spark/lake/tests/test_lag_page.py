"""The page shows everything, lets no name become markup, asks nobody for anything and stays small."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from kafscale.lake.lag.page import CHARTED, LEVELS, drawn, payload, render
from kafscale.lake.lag.positions import Commit
from kafscale.lake.lag.report import Facts, Report, make_report
from kafscale.lake.lag.samples import sample
from kafscale.lake.lag.status import Status
from kafscale.storage.groups import CommittedOffset
from kafscale.testkit.chromium import Page, browser_page

from .lag_world import NOW, lag_of, logs, world

BYTES_MAX = 300_000
BROWSER_S = 900
NARROW = 390
CUT = """(selector) => [...document.querySelectorAll(selector)]
    .filter((each) => each.offsetParent && each.scrollWidth > each.clientWidth + 1).map((each) => each.innerText)"""
"""Texts of elements that are wider than their place."""
OPEN = "[...document.querySelectorAll('details[open]')].map((box) => box.group)"
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
    return make_report(Facts(cluster=HOSTILE[0], at_ms=1, logs=[log], positions=commits, lags=lags))


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
    beyond = {Status.AHEAD, Status.REPLACED}  # no group of this world has such an offset
    assert {row.status for row in report.partitions} == set(Status) - {Status.ERR} - beyond
    assert len(page.encode()) < BYTES_MAX


def test_every_partition_is_in_the_page(report: Report, page: str) -> None:
    data = json.loads(parsed(page).texts["data"])
    columns = data["partitions"]
    found = zip(columns["group"], columns["topic"], columns["partition"], columns["records"], strict=True)
    assert [(data["groups"][g]["name"], data["names"][t], p, n) for g, t, p, n in found] == [
        (*row.place, row.records) for row in report.partitions
    ]
    assert columns["committed"] == [int(row.committed is not None) for row in report.partitions]
    assert [columns["stable"], columns["stableEnd"]] == [
        [row.stable_records for row in report.partitions],
        [row.stable_end for row in report.partitions],
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


def test_the_groups_with_the_highest_peaks_are_in_the_chart(report: Report) -> None:
    found = payload(report)["groups"]
    peaks = sorted((group["peak"] for group in found), reverse=True)
    charted = [group for group in found if group["series"] is not None]
    assert sorted((max(group["series"]) for group in charted), reverse=True) == peaks[:CHARTED]


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
        await tab.until(
            f"document.querySelectorAll('details tbody .pill').length === {len(report.partitions)}"
        )
        assert await tab.ask("document.querySelectorAll('#topics tbody tr').length") == len(report.topics)
        await tab.ask("document.getElementById('search').value = 'fraud'")
        await tab.ask("document.getElementById('search').dispatchEvent(new Event('input'))")
        assert await shown(tab) == ["fraud-detector"]
        await opened(tab, tmp_path / "hostile.html", render(hostile()))
        assert sorted(await shown(tab)) == sorted(HOSTILE)
        assert await tab.ask("document.title") == f"Consumer lag of {HOSTILE[0]}"
        assert tab.seen.messages == []
        assert {Path(url).name for url in tab.seen.requests} == {"lag.html", "hostile.html"}


# -- what a person sees ----------------------------------------------------------------------------------------------


def small(*groups: str, partitions: int = 1) -> Facts:
    """Groups that are one record behind on each partition, all with one member, half a minute of history."""
    shop = [each for each in logs() if each.topic.name == "orders"][:partitions]
    found = [
        Commit(
            group=name,
            topic="orders",
            partition=log.partition,
            offset=CommittedOffset(offset=log.end - 1, commit_ms=NOW),
        )
        for name in groups
        for log in shop
    ]
    placed = {log.partition: log for log in shop}
    lags = [lag_of(each, placed[each.partition], 5) for each in found]
    history = [sample(shop, found, {}, NOW - ago_ms) for ago_ms in (30_000, 0)]
    return Facts(
        cluster="c", at_ms=NOW, logs=shop, positions=found, lags=lags, recent=pa.concat_tables(history)
    )


async def text_of(tab: Page, selector: str) -> str:
    found: str = await tab.ask(f"document.querySelector({selector!r}).innerText.replaceAll('\\n', ' ')")
    return found


@pytest.mark.timeout(BROWSER_S)
async def test_a_narrow_screen_shows_what_matters(report: Report, page: str, tmp_path: Path) -> None:
    loser = "details.group.s-LOST"
    async with browser_page(tmp_path / "profile") as tab:
        (tmp_path / "lag.html").write_text(page, encoding="utf-8")
        for dark in (False, True):
            await tab.open((tmp_path / "lag.html").as_uri(), width=NARROW, dark=dark)
            words = await text_of(tab, f"{loser} summary")
            assert re.search(r"LOST crm-export # .* unread .* behind .* trend, 1 h .* lost", words, re.I), (
                words
            )
            await tab.ask("for (const box of document.querySelectorAll('details')) box.open = true")
            await tab.until("document.querySelectorAll('details tbody tr').length > 1000")
            wide = "document.documentElement.scrollWidth"
            assert await tab.ask(wide) == NARROW, "nothing is cut at the right edge"
            cut = await tab.ask(f"({CUT})('.fact b')")
            assert cut == []
            assert await tab.ask(f"({CUT})('.scroll')") == [], "tables show the columns that fit"
        assert tab.seen.messages == []


@pytest.mark.timeout(BROWSER_S)
async def test_words_are_singular_where_there_is_one(tmp_path: Path) -> None:
    async with browser_page(tmp_path / "profile") as tab:
        await opened(tab, tmp_path / "one.html", render(make_report(small("a"))))
        assert "1 group, 1 partition, history of 30s" in await text_of(tab, "#about")
        assert await text_of(tab, "#chart-about") == ""
        assert not re.search(r"\b1 \w+s\b", await text_of(tab, "body"))
        many = [f"g{number}" for number in range(CHARTED + 1)]
        await opened(tab, tmp_path / "many.html", render(make_report(small(*many))))
        assert await text_of(tab, "#chart-about") == f"the {CHARTED} groups with the highest peaks"


@pytest.mark.timeout(BROWSER_S)
async def test_what_is_past_its_retention_may_be_deleted_at_any_time(tmp_path: Path) -> None:
    """And not in 0 s: retention runs every hour."""
    facts = small("a")
    gone = replace(facts, lags=[replace(lag, expires_in_ms=0) for lag in facts.lags])
    soon = replace(facts, lags=[replace(lag, expires_in_ms=90_000) for lag in facts.lags])
    async with browser_page(tmp_path / "profile") as tab:
        for given, first, expires in ((gone, "at any time", "any time"), (soon, "in 1m 30s", "1m 30s")):
            await opened(tab, tmp_path / "lag.html", render(make_report(given)))
            assert f"the first {first}: a" in await text_of(tab, "#tiles")
            assert f"{expires} 1 at risk" in await text_of(tab, "details.group summary")
            await tab.ask("document.getElementById('all').click()")
            await tab.until("document.querySelector('details tbody tr') !== null")
            cells = "[...document.querySelectorAll('details tbody td')].map((each) => each.textContent)"
            assert expires in await tab.ask(cells)


@pytest.mark.timeout(BROWSER_S)
async def test_the_chart_shows_the_time_there_is(page: str, tmp_path: Path) -> None:
    """A history of half a minute fills the width, with the seconds on its axis; one of a day can be narrowed."""
    reach = "(() => { const box = document.querySelector('#chart path').getBBox(); return box.width; })()"
    async with browser_page(tmp_path / "profile") as tab:
        await opened(tab, tmp_path / "short.html", render(make_report(small("a"))))
        width = await tab.ask("document.getElementById('chart').clientWidth")
        assert await tab.ask(reach) > 0.9 * width
        assert re.search(r"\d\d:\d\d:\d\d", await tab.ask("document.getElementById('chart').textContent"))
        assert await tab.ask("document.querySelectorAll('#range option').length") == 1
        await opened(tab, tmp_path / "day.html", page)
        assert await tab.ask(
            "[...document.querySelectorAll('#range option')].map((each) => each.textContent)"
        ) == [*("all: 1d", "6 h", "1 h", "15 min")]
        before = await tab.ask("document.querySelector('#chart path').getAttribute('d')")
        await tab.ask("document.getElementById('range').value = '3600000'")
        await tab.ask("document.getElementById('range').dispatchEvent(new Event('change'))")
        assert await tab.ask("document.querySelector('#chart path').getAttribute('d')") != before
        assert await tab.ask(reach) > 0.9 * width
        assert tab.seen.messages == []


@pytest.mark.timeout(BROWSER_S)
async def test_a_link_opens_its_group_with_members_and_the_command_that_resets_it(
    page: str, tmp_path: Path
) -> None:
    async with browser_page(tmp_path / "profile") as tab:
        (tmp_path / "lag.html").write_text(page, encoding="utf-8")
        await tab.open((tmp_path / "lag.html").as_uri() + "#group=crm-export")
        assert await tab.ask("[...document.querySelectorAll('details[open]')].map((box) => box.group)") == [
            "crm-export"
        ]
        inside = await text_of(tab, "details[open] .inside")
        assert re.search(r"/10\.2\.0\.14\s+crm-export-0\s+crm-export-0-3f1c\s+32\b", inside), inside
        commands = (
            "[...document.querySelectorAll('details[open] .copy code')].map((code) => code.textContent)"
        )
        assert await tab.ask(commands) == [
            "kafscale groups reset-offsets --topic sessions --to earliest --dry-run -- crm-export"
        ]
        await tab.ask("location.hash = '#group=returns-forecast'")
        await tab.until("document.querySelectorAll('details[open]').length === 2")
        assert sorted(await tab.ask(OPEN)) == ["crm-export", "returns-forecast"]


@pytest.mark.timeout(BROWSER_S)
async def test_a_copied_command_is_safe_in_a_shell(tmp_path: Path) -> None:
    names = ("it's; rm -rf ~", "--help", "$(reboot)", "two\nlines", "\u202eevil")
    async with browser_page(tmp_path / "profile") as tab:
        await opened(tab, tmp_path / "lag.html", render(make_report(small(*names))))
        await tab.ask("document.getElementById('all').click()")
        await tab.until("document.querySelectorAll('details .reset').length === 5")
        commands = await tab.ask(
            "[...document.querySelectorAll('.copy code')].map((code) => code.textContent)"
        )
    assert sorted(shlex.split(command)[-1] for command in commands) == sorted(names[:3])
    assert all(shlex.split(command)[-2] == "--" for command in commands)


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
