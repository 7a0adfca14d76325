"""The list of groups by risk, and the process that makes the report of what a login may see."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafscale.access.acl import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kafscale.access.principals import Principal
from kafscale.client.security import OPEN
from kafscale.console import logins
from kafscale.console.answers import Problem
from kafscale.console.api import groups as screen
from kafscale.console.api.groups import SHOWN, merged
from kafscale.console.child import give
from kafscale.console.direct.lag import NONE_YET, LagReports
from kafscale.console.direct.lag_process import Reports, answering
from kafscale.console.logins import Entrance, Login
from kafscale.console.rights import Resource
from kafscale.lake.lag.live import LiveFacts
from kafscale.lake.lag.report import Facts
from kafscale.operations.target import Target

DONE_S = 60
FACTS = Facts(cluster="c", at_ms=7, logs=[], positions=[], lags=[])


def listed(*names: str) -> list[dict[str, Any]]:
    return [{"group": name, "state": "Empty", "type": "classic", "protocol": "consumer"} for name in names]


def reported(group: str, **more: Any) -> dict[str, Any]:
    nothing = {
        "lost": 0,
        "at_risk": 0,
        "expires_in_ms": None,
        "status": "OK",
        "time_ms": 0,
        "statuses": ["OK"],
    }
    return {"group": group, "life": "active", "topics": [], **nothing, **more}


def test_the_group_that_loses_records_next_comes_before_others() -> None:
    rows = merged(
        listed("late", "soon", "lost", "stopped", "later", "calm", "unknown"),
        [
            reported("late", time_ms=9_000_000),
            reported("later", at_risk=1, expires_in_ms=900_000),
            reported("soon", at_risk=1, expires_in_ms=1_000),
            reported("lost", lost=3),
            reported("stopped", status="ERR", statuses=["OK", "STOP"], life="dead"),
            reported("calm"),
        ],
    )
    order = [row["group"] for row in sorted(rows, key=lambda row: row["risk"], reverse=True)]
    assert order == ["lost", "soon", "later", "stopped", "late", "calm", "unknown"]
    chosen = {name: [row["group"] for row in rows if fits(row)] for name, fits in SHOWN.items()}
    assert chosen == {
        "risk": ["soon", "later"],
        "lost": ["lost"],
        "stopped": ["stopped"],
        "empty": [row["group"] for row in rows],
        "dead": ["stopped"],
    }


def test_a_group_that_the_report_does_not_have_is_listed_and_one_that_is_not_listed_is_not_shown() -> None:
    (row,) = merged(listed("new"), [reported("hidden", records=5)])
    assert (row["group"], row["records"], row["status"]) == ("new", None, None)


class Asked:
    """A call of a login that may describe some groups and topics; what the report was asked for is in `asked`."""

    def __init__(self, groups: Iterable[str]) -> None:
        self.query: dict[str, str] = {}
        self.path = {"group": "mine"}
        self.asked: list[tuple[frozenset[str], frozenset[str]]] = []
        self._groups = frozenset(groups)
        self.stores = SimpleNamespace(lag=SimpleNamespace(ask=self._ask))
        self.site = SimpleNamespace(stores=self.stores)

    async def kafka(self, work: Callable[..., Any], *more: Any) -> Any:
        return work(None, *more)

    async def seen_groups(self, listed: Iterable[str]) -> frozenset[str]:
        return frozenset(listed) & self._groups

    async def _ask(
        self, groups: Iterable[str], topics: Iterable[str], name: str | None = None
    ) -> dict[str, Any]:
        self.asked.append((frozenset(groups), frozenset(topics)))
        return NONE_YET


async def test_the_report_is_asked_for_what_the_login_may_describe_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(screen, "list_all_groups", lambda _: listed("mine", "secret"))
    monkeypatch.setattr(screen, "find_groups", lambda _, names: {name: listed(name)[0] for name in names})
    monkeypatch.setattr(screen, "topic_names", lambda _: ["orders"])
    call: Any = Asked(["mine"])
    await screen.groups(call)
    await screen.group(call)
    assert call.asked == [(frozenset({"mine"}), frozenset({"orders"}))] * 2


@pytest.mark.parametrize("describes", [True, False])
async def test_the_front_door_is_asked_about_listed_groups_that_acls_may_allow_and_no_others(
    monkeypatch: pytest.MonkeyPatch, describes: bool
) -> None:
    """Without DESCRIBE on the cluster the list itself has only groups that the login may describe."""
    cluster = ResourceType.CLUSTER, CLUSTER_NAME
    asked: list[str] = []
    operations = frozenset({Operation.DESCRIBE} if describes else ())

    def operations_on(_: object, resources: Iterable[Resource]) -> dict[Resource, frozenset[Operation]]:
        asked.extend(name for kind, name in resources if kind is ResourceType.GROUP)
        return {
            each: operations if each == cluster else frozenset({Operation.DESCRIBE}) for each in resources
        }

    mine = AclBinding(
        resource_type=ResourceType.GROUP,
        pattern_type=PatternType.PREFIXED,
        resource_name="mi",
        principal=Principal("User:alice"),
        host="*",
        operation=Operation.READ,
        permission=Permission.ALLOW,
    )
    of_cluster = replace(
        mine,
        resource_type=ResourceType.CLUSTER,
        resource_name=CLUSTER_NAME,
        pattern_type=PatternType.LITERAL,
    )
    monkeypatch.setattr(logins, "operations_on", operations_on)
    monkeypatch.setattr(logins, "list_acls", lambda *_: [mine, of_cluster])
    monkeypatch.setattr(logins, "topic_names", lambda _: [])
    monkeypatch.setattr(Login, "client", lambda _: asyncio.sleep(0))
    login = Login(Entrance("127.0.0.1:1", OPEN), "alice", None)
    for _ in range(2):
        await login.learn_groups(["foreign", "mine"])
    assert asked == (["mine"] if describes else ["foreign", "mine"])
    seen = [
        name for name in ("foreign", "mine") if login.allows((ResourceType.GROUP, name), Operation.DESCRIBE)
    ]
    assert seen == asked


async def test_requests_are_answered_with_their_id_until_the_input_ends() -> None:
    lines, said = asyncio.StreamReader(), list[dict[str, Any]]()
    with BytesIO() as sent:
        give(sent, b'{"id":4,"groups":[],"topics":[]}')
        give(sent, b'{"id":5,"groups":[],"topics":[],"group":"g"}')
        lines.feed_data(sent.getvalue())
    lines.feed_eof()

    async def read() -> Facts:
        return FACTS

    async with asyncio.timeout(DONE_S), asyncio.TaskGroup() as tasks:
        await answering(lines, Reports(LiveFacts(read, 60, tasks)).answer, said.append, tasks)
    assert sorted((each["id"], each["at_ms"], each["groups"]) for each in said) == [(4, 7, []), (5, 7, [])]


async def test_a_cluster_that_does_not_run_is_a_sentence_and_the_process_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.console.direct.lag.PATIENCE_S", DONE_S)
    reports = LagReports(Target(tmp_path / "none", None))
    with pytest.raises(Problem, match="no cluster runs"):
        await reports.ask([], [])
    with pytest.raises(Problem, match="no cluster runs"):
        await reports.ask([], [])
    await reports.close()


REPORTING = """
import json, sys
from kafscale.console.child import give, take
take(sys.stdin.buffer)
while (asked := take(sys.stdin.buffer)) is not None:
    answer = {"id": json.loads(asked)["id"], "at_ms": 7, "making": False}
    give(sys.stdout.buffer, json.dumps(answer).encode())
"""


async def test_a_page_that_had_a_report_waits_for_it_again_however_slow_the_next_reading_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = asyncio.create_subprocess_exec

    async def reporting(*_: str, **more: Any) -> asyncio.subprocess.Process:
        return await start(sys.executable, "-c", REPORTING, **more)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", reporting)
    monkeypatch.setattr("kafscale.console.direct.lag.PATIENCE_S", 0.0)
    monkeypatch.setattr("kafscale.console.direct.lag.LATER_S", DONE_S)
    reports = LagReports(Target(tmp_path, None))
    assert (await reports.ask([], []))["making"], "nobody waits for the first report"
    async with asyncio.timeout(DONE_S):
        while (await reports.ask([], []))["at_ms"] is None:
            await asyncio.sleep(0)
    assert (await reports.ask([], []))["at_ms"] == 7
    await reports.close()
