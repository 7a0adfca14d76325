"""Laws S1 and S2: which requests are answered at all."""

from __future__ import annotations

from itertools import product

import pytest
from kafscale.console.guard import Door, answer_headers, policy, refusal
from multidict import CIMultiDict

LOCAL = Door(frozenset({"127.0.0.1", "localhost", "[::1]"}))
CHANGE = {
    "Host": "127.0.0.1:8480",
    "Origin": "http://127.0.0.1:8480",
    "Content-Type": "application/json",
    "X-KafScale-Console": "1",
    "Sec-Fetch-Site": "same-origin",
}


def error(door: Door, method: str, headers: dict[str, str]) -> str | None:
    found = refusal(door, method, CIMultiDict(headers))
    return None if found is None else found.error


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8480", "LOCALHOST:9999", "[::1]:8480", "[::1]"])
def test_its_own_names_are_answered_at_every_port(host: str) -> None:
    assert error(LOCAL, "GET", {"Host": host}) is None


@pytest.mark.parametrize(
    "host",
    ["", "evil.example", "127.0.0.1.evil.example", "evil.example:8480", "localhost.", "a@127.0.0.1", "::1"],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST"])
def test_another_name_is_refused_first(host: str, method: str) -> None:
    assert error(LOCAL, method, CHANGE | {"Host": host}) == "wrong_host"


def test_a_change_of_the_own_page_is_let_through() -> None:
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert error(LOCAL, method, CHANGE) is None
    assert error(LOCAL, "POST", {key: CHANGE[key] for key in CHANGE if key != "Sec-Fetch-Site"}) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", "https://127.0.0.1:8480"),
        ("Origin", "http://127.0.0.1:9999"),
        ("Origin", None),
        ("Content-Type", "text/plain"),
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Content-Type", None),
        ("X-KafScale-Console", "0"),
        ("X-KafScale-Console", None),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
        ("Sec-Fetch-Site", "none"),
    ],
)
def test_each_condition_of_a_change_is_needed(name: str, value: str | None) -> None:
    headers = {key: each for key, each in (CHANGE | {name: value}).items() if each is not None}
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        assert error(LOCAL, method, headers) is not None


def test_another_site_may_link_to_a_page_and_read_nothing() -> None:
    for site, mode in product(("cross-site", "same-site"), ("no-cors", "cors", "websocket")):
        headers = {"Host": "localhost:8480", "Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
        assert error(LOCAL, "GET", headers) == "other_site"
    link = {"Host": "localhost:8480", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert error(LOCAL, "GET", link) is None


def test_behind_a_proxy_only_the_proxy_s_name_counts() -> None:
    door = Door(LOCAL.hosts, only="https://console.example.com")
    assert error(door, "GET", {"Host": "console.example.com"}) is None
    assert error(door, "GET", {"Host": "127.0.0.1:8480"}) == "wrong_host"
    assert error(door, "GET", {"Host": "console.example.com:8443"}) == "wrong_host"
    changed = CHANGE | {"Host": "console.example.com", "Origin": "https://console.example.com"}
    assert error(door, "POST", changed) is None
    assert error(door, "POST", changed | {"Origin": "http://console.example.com"}) == "other_site"


def test_no_answer_lets_another_site_in() -> None:
    headers = answer_headers(LOCAL, policy("{}"))
    assert not [name for name in headers if name.lower().startswith("access-control-")]
    csp = headers["Content-Security-Policy"]
    for part in ("default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'", "trusted-types 'none'"):
        assert part in csp
    assert "unsafe" not in csp
    assert "Strict-Transport-Security" not in headers
    assert "Strict-Transport-Security" in answer_headers(Door(LOCAL.hosts, tls=True), csp)
