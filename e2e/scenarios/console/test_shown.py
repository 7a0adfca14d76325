"""What the page makes of answers that a cluster seldom gives: the browser is real, and each answer of the API is this
file's. Laws: no time is exact that nobody knows; a search that is left is there for who comes back, of this login and
in this tab only; a condition that is refused cannot be continued."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from kafscale.console.assets import INDEX, read_assets
from playwright.sync_api import Page, Route, expect

from e2e.harness.console_page import Visitor

pytestmark = pytest.mark.timeout(120)
URL: Final = "http://console.test"
API: Final = f"{URL}/api/v1"
Rows = list[dict[str, Any]]
Answer = dict[str, Any] | Rows | Callable[[], Rows]
"""A list: lines of an answer that goes on."""

ME: Final = {
    "mode": "personal",
    "read_only": False,
    "user": "alice",
    "logged_in": True,
    "mechanism": "PLAIN",
    "bootstrap": "127.0.0.1:9092",
    "direct": True,
    "registry": False,
}
HOUR_MS: Final = 3_600_000


@pytest.fixture(scope="module")
def url() -> str:
    """Of no console."""
    return URL


@pytest.fixture
def answers(visitor: Visitor) -> dict[str, Answer]:
    """By path below /api/v1, without the query. A test adds its own."""
    found: dict[str, Answer] = {"/me": dict(ME), "/login": {}}
    assets = read_assets()

    def answer(route: Route) -> None:
        path = route.request.url.removeprefix(URL).partition("?")[0]
        if not path.startswith("/api/v1"):
            asset = assets.by_path.get(path.removeprefix("/assets/"), assets.by_path[INDEX])
            headers = {"Content-Security-Policy": assets.csp}
            route.fulfill(body=asset.body, content_type=asset.content_type, headers=headers)
            return
        given = found[path.removeprefix("/api/v1")]
        given = given() if callable(given) else given
        lines = given if isinstance(given, list) else [given]
        body = "".join(json.dumps(line) + "\n" for line in lines)
        route.fulfill(body=body, content_type="application/json")

    visitor.page.route(f"{URL}/**", answer)
    return found


def row(group: str, **more: Any) -> dict[str, Any]:
    """Of a group, or of a partition: their common part."""
    nothing = dict.fromkeys(
        ("records", "stable_records", "time_ms", "eta_ms", "trend_1h_per_s", "uncommitted_expires_in_ms")
    )
    known = {"lost": 0, "at_risk": 0, "expires_in_ms": None, "status": "OK", "statuses": ["OK"]}
    group_has = {"group": group, "state": "Stable", "type": "classic", "members": 1, "topics": ["orders"]}
    return {**nothing, **known, **group_has, "life": "active", "unowned": 0, "line": "", **more}


def report(*rows: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    counts = dict.fromkeys(("risk", "lost", "stopped", "empty", "dead"), 0)
    known = {"at_ms": 1_790_000_000_000, "history_ms": None, "trouble": None, "making": False}
    return {**known, "items": rows, "total": len(rows), "page": 1, "pages": 1, "counts": counts, **more}


GROUPS: Final = report(
    row("gone", records=5, at_risk=1, expires_in_ms=0, status="UNKNOWN", statuses=["UNKNOWN"]),
    row("soon", records=5, at_risk=1, expires_in_ms=HOUR_MS // 2, status="WARN", statuses=["WARN"]),
    row("new", records=5, expires_in_ms=30 * HOUR_MS, status="UNKNOWN", statuses=["UNKNOWN"]),
    row("done", records=0, expires_in_ms=0),
)


def test_no_loss_has_a_time_that_nobody_knows_and_a_group_at_risk_is_not_also_unknown(
    visitor: Visitor, answers: dict[str, Answer]
) -> None:
    page = visitor.page
    answers["/groups"] = GROUPS
    visitor.go("/groups")
    shown = {cells[1]: (cells[0].split("\n"), cells[6]) for cells in visitor.cells()}
    assert shown == {
        "gone": (["at risk"], "at any time"),
        "soon": (["at risk", "falling behind"], "in 30 min"),
        "new": (["not known yet"], "in 1 d 6 h"),
        "done": (["keeps up"], "–"),
    }
    expect(page.get_by_title("the next run of retention deletes it")).to_have_text("at any time")
    expect(page.get_by_title("it is not known yet how fast it reads")).to_have_text("at risk")
    visitor.inspect("groups-past-retention")


def test_a_group_and_the_overview_say_at_any_time_too(visitor: Visitor, answers: dict[str, Answer]) -> None:
    page = visitor.page
    gone = {**row("gone", records=5, at_risk=1, expires_in_ms=0), "uncommitted_expires_in_ms": 0}
    place = row("gone", topic="orders", partition=0, committed=3, member=None, log_end=8, stable_end=8)
    answers["/groups/gone"] = report() | {
        "group": gone,
        "partitions": [
            place | {"records": 5, "at_risk": True, "expires_in_ms": 0},
            place | {"partition": 1, "committed": None, "records": 8, "expires_in_ms": 0},
        ],
        "history": {"start_ms": 0, "step_ms": 1, "values": []},
        "empty": True,
    }
    visitor.go("/groups/gone")
    expect(page.locator(".tile").filter(has_text="Data loss")).to_contain_text("at any time")
    expect(page.get_by_text("retention deletes the first of them at any time.")).to_be_visible()
    assert [cells[-1] for cells in visitor.cells()] == ["at any time", "at any time"]
    answers["/overview"] = {
        "topics": 1,
        "partitions": 1,
        "groups": 1,
        "groups_empty": 0,
        "describes": False,
        "brokers": [],
        "cluster_id": "c",
    }
    answers["/groups"] = report(gone, counts={"risk": 1, "lost": 0})
    visitor.go("/")
    expect(page.get_by_role("link", name="Groups that will lose data")).to_contain_text(
        "the first at any time"
    )


@pytest.mark.parametrize(
    ("said", "ago_ms"),
    [
        ("5 minutes", 300_000),
        ("5 min", 300_000),
        ("90s", 90_000),
        ("1.5 h", 5_400_000),
        (" 1 day ", 86_400_000),
        ("2m", 120_000),
    ],
)
def test_a_time_ago_is_what_people_write(
    visitor: Visitor, answers: dict[str, Answer], said: str, ago_ms: int
) -> None:
    page = visitor.page
    answers["/groups/late"] = report() | {"group": row("late"), "partitions": [row("late", topic="orders")]}
    answers["/groups/late/reset/preview"] = {
        "rows": [],
        "times": [],
        "left_out": 0,
        "members": False,
        "commands": [],
    }
    visitor.go("/groups/late/reset?to=duration")
    expect(page.get_by_text("a number and a unit: 90s, 5 minutes, 1.5 hours, 2d")).to_be_visible()
    page.get_by_label("How long ago").fill(said)
    with page.expect_request(f"{API}/groups/late/reset/preview") as sent:
        page.get_by_role("button", name="Preview").click()
    body = sent.value.post_data_json
    assert body is not None
    assert body["aim"] == {"to": "duration", "ago_ms": ago_ms}


@pytest.mark.parametrize("said", ["5", "minutes", "5 months", "-5 minutes", "5 minutes ago"])
def test_what_is_no_time_ago_is_not_sent(visitor: Visitor, answers: dict[str, Answer], said: str) -> None:
    page = visitor.page
    answers["/groups/late"] = report() | {"group": row("late"), "partitions": [row("late", topic="orders")]}
    visitor.go("/groups/late/reset?to=duration")
    page.get_by_label("How long ago").fill(said)
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("input[name=ago]:invalid")).to_be_focused()


def hit(offset: int) -> dict[str, Any]:
    view = {"format": "text", "text": f"record {offset}", "bytes": 9, "cut": False, "reason": None}
    return {
        "id": f"0/{offset}",
        "partition": 0,
        "offset": offset,
        "timestamp_ms": 1_790_000_000_000,
        "state": None,
        "key": view,
        "value": view,
        "bytes": 9,
    }


RECORD: Final = {
    "start": 0,
    "end": 999,
    "previous": None,
    "next": None,
    "offset": 900,
    "record": None,
    "missing": "no",
}
HITS: Final = 200
SEARCH: Final = "/topics/orders/search"


class Searches:
    """Counts them. Each has its own number in its answer."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> Rows:
        self.count += 1
        progress = {"read": 999 + self.count, "records": 9_000, "cursor": "c", "at_ms": None}
        return [progress, {"hits": [hit(900 - number) for number in range(HITS)]}, progress | {"end": "hits"}]


@pytest.fixture
def searches(answers: dict[str, Answer]) -> Searches:
    found = answers[SEARCH] = Searches()
    answers["/topics/orders/records/0/750"] = RECORD
    return found


def status(page: Page, text: str) -> None:
    expect(page.get_by_role("status").first).to_contain_text(text)


def test_who_comes_back_from_a_hit_finds_the_search_as_it_was(visitor: Visitor, searches: Searches) -> None:
    page = visitor.page
    visitor.go(f"{SEARCH}?text=record")
    status(page, "200 hits; read 1,000 of 9,000")
    link = page.get_by_role("link", name="750", exact=True)
    link.scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    assert before > 1_000
    link.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Offset 750 of partition 0")
    page.go_back()
    status(page, "200 hits; read 1,000 of 9,000 records; ended at 500 hits.")
    status(page, '"Search" looks again.')
    assert searches.count == 1
    page.wait_for_function("before => scrollY === before", arg=before)
    page.get_by_role("button", name="Continue").click()
    status(page, "400 hits; read 1,001 of 9,000")
    assert searches.count == 2
    page.get_by_role("button", name="Search", exact=True).click()
    status(page, "200 hits; read 1,002 of 9,000")
    expect(page.get_by_text("looks again")).to_have_count(0)


def test_back_leads_to_the_search_before_and_a_search_that_is_sent_is_a_new_one(
    visitor: Visitor, searches: Searches
) -> None:
    page = visitor.page
    visitor.go(f"{SEARCH}?text=record")
    status(page, "read 1,000 of")
    page.get_by_label("Search by").select_option("where")
    page.get_by_label("SQL condition", exact=True).fill("true")
    page.get_by_role("button", name="Search", exact=True).click()
    status(page, "read 1,001 of")
    page.go_back()
    status(page, "read 1,000 of")
    expect(page.get_by_label("Text", exact=True)).to_have_value("record")
    page.go_forward()
    status(page, "read 1,001 of")
    expect(page.get_by_label("SQL condition", exact=True)).to_have_value("true")
    assert searches.count == 2
    page.go_back()
    status(page, "read 1,000 of")
    page.get_by_label("Search by").select_option("where")
    page.get_by_label("SQL condition", exact=True).fill("true")
    page.get_by_role("button", name="Search", exact=True).click()
    status(page, "read 1,002 of")


def test_the_next_person_at_the_tab_sees_nothing_of_a_search(
    visitor: Visitor, answers: dict[str, Answer], searches: Searches
) -> None:
    page = visitor.page
    visitor.go(f"{SEARCH}?text=record")
    status(page, "read 1,000 of")
    answers["/me"] = {"mode": "personal", "read_only": False, "user": None, "logged_in": False}
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("User").fill("bob")
    answers["/me"] = {**ME, "user": "bob"}
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Log in").click()
    status(page, "read 1,001 of")


def test_a_refused_condition_is_explained_and_cannot_be_continued(
    visitor: Visitor, answers: dict[str, Answer]
) -> None:
    page = visitor.page
    progress = {"read": 0, "records": 9_000, "cursor": "c", "at_ms": None}
    sentence = "The condition is refused: there is no column n.\nA field of JSON: value ->> '$.n' = 'c-17'."
    answers[SEARCH] = [progress, {"error": "bad_query", "sentence": sentence}]
    visitor.go(f"{SEARCH}?where=n=1")
    assert page.get_by_role("alert").inner_text().endswith(sentence)
    expect(page.get_by_role("button", name="Continue")).to_have_count(0)
    expect(page.get_by_text("0 hits")).to_have_count(0)
    visitor.inspect("refused-condition")
    answers[SEARCH] = [progress, {"error": "failed", "sentence": "The store does not answer."}]
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("The store does not answer.")
    expect(page.get_by_role("button", name="Continue")).to_be_visible()
