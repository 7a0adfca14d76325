"""The audit log: equal lines are summed, different ones bounded, and the guard against storms lets it pass."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from kafscale.runtime import audit
from kafscale.runtime.audit import CHARS_MAX, AuditLog, AuditSums, Line

CHOSEN = frozenset({"user"})


def line(user: str, host: str = "h") -> Line:
    return Line("warning", "authentication failed", (("user", user), ("host", host)))


def test_the_first_of_equal_lines_is_logged_and_the_others_are_counted() -> None:
    sums = AuditSums()
    assert [sums.admit(line("a"), CHOSEN) for _ in range(3)] == [line("a"), None, None]
    assert sums.admit(line("b"), CHOSEN) == line("b")
    assert sums.drain() == [(line("a"), 2)]
    assert sums.drain() == []
    assert sums.admit(line("a"), CHOSEN) == line("a"), "then the next time begins"


def test_names_without_end_are_folded_into_one_line_for_each_host() -> None:
    sums = AuditSums(lines_max=2)
    folded = Line("warning", "authentication failed", (("host", "h"),))
    assert [sums.admit(line(name), CHOSEN) for name in "abcde"] == [line("a"), line("b"), folded, None, None]
    assert sums.admit(line("a"), CHOSEN) is None, "a line that was there keeps its own count"
    assert sums.drain() == [(line("a"), 1), (folded, 2)]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=200))
def test_every_line_is_logged_or_counted_and_memory_is_bounded(steps: list[tuple[int, int]]) -> None:
    sums = AuditSums(lines_max=4)
    logged = 0
    for user, host in steps:
        logged += sums.admit(line(str(user), str(host)), CHOSEN) is not None
        assert len(sums) <= 9, "four, as many without the names, and one without anything"
    assert logged + sum(count for _, count in sums.drain()) == len(steps)


async def test_the_counts_are_logged_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "SUM_EVERY_S", 0.02)
    with structlog.testing.capture_logs() as logs:
        log = AuditLog()
        for _ in range(3):
            log.write("warning", "authentication failed", {"user": "a" * 1_000, "host": None}, chosen=CHOSEN)
        assert logs == [{"event": "authentication failed", "log_level": "warning", "user": "a" * CHARS_MAX}]
        async with asyncio.timeout(10):
            while len(logs) < 2:
                await asyncio.sleep(0.005)
    assert logs[1]["repeated"] == 2


async def test_the_counts_are_logged_at_the_end() -> None:
    with structlog.testing.capture_logs() as logs:
        log = AuditLog()
        for _ in range(2):
            log.write("info", "authenticated", {"principal": "User:a"})
        log.close()
        log.close()
    assert [one.get("repeated") for one in logs] == [None, 1]


LOGGING = """
import asyncio
from kafscale.runtime.audit import AuditLog
from kafscale.runtime.logs import WRITER, configure_logs
configure_logs(level="info", form="json", service="test")
async def main():
    log = AuditLog()
    for number in range(100):
        log.write("warning", "authentication failed", {"user": str(number)})
    log.close()
asyncio.run(main())
WRITER.flush()
"""


def test_the_guard_against_storms_lets_them_pass() -> None:
    done = subprocess.run([sys.executable, "-c", LOGGING], capture_output=True, check=True, timeout=60)
    lines: list[dict[str, Any]] = [json.loads(one) for one in done.stderr.splitlines()]
    assert [one["user"] for one in lines] == [str(number) for number in range(100)]
    assert {one["logger"] for one in lines} == {"kafscale.audit"}
