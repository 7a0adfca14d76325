"""Equal lines of the audit log are counted, different ones are bounded, and the sums are printed when they are due."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from kafscale.runtime import audit
from kafscale.runtime.audit import AuditLog, AuditSums, Line
from kafscale.runtime.log_storms import AUDIT, StormGuard, Storms
from kafscale.runtime.logs import CURRENT_REQUEST
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.testkit.clock import run_in_virtual_time

CHOSEN = frozenset({"resource"})


def line(resource: str = "t", principal: str = "alice") -> Line:
    return Line("info", "denied", (("principal", principal), ("resource", resource)))


def test_the_first_of_equal_lines_is_printed_and_the_others_are_counted() -> None:
    sums = AuditSums()
    assert [sums.admit(line(), CHOSEN) for _ in range(3)] == [line(), None, None]
    assert sums.admit(line("u"), CHOSEN) == line("u")
    assert sums.drain() == [(line(), 2)]
    assert sums.drain() == []
    assert sums.admit(line(), CHOSEN) == line(), "a new interval"


def test_a_client_that_chooses_new_names_fills_neither_the_log_nor_the_memory() -> None:
    sums = AuditSums(lines_max=3)
    printed = [one for number in range(1_000) if (one := sums.admit(line(str(number)), CHOSEN))]
    without_names = Line("info", "denied", (("principal", "alice"),))
    assert printed == [line("0"), line("1"), line("2"), without_names]
    assert sums.drain() == [(without_names, 996)]
    many = [one for n in range(1_000) if (one := sums.admit(line(str(n), principal=str(n)), CHOSEN))]
    assert len(many) == 7
    assert sum(count for _, count in sums.drain()) == 993


def test_sums_are_printed_when_the_interval_ends_and_when_the_log_is_closed() -> None:
    async def write() -> None:
        log = AuditLog()
        for _ in range(3):
            log.write("info", "denied", {"resource": "x" * 1_000, "listener": None})
        await asyncio.sleep(audit.SUM_EVERY_S + 1)
        log.write("info", "denied", {"resource": "y"})
        log.write("info", "denied", {"resource": "y"})
        log.close()
        log.close()

    with structlog.testing.capture_logs() as logs:
        run_in_virtual_time(write())
    assert [(one["resource"], one.get("repeated")) for one in logs] == [
        ("x" * audit.CHARS_MAX, None),
        ("x" * audit.CHARS_MAX, 2),
        ("y", None),
        ("y", 1),
    ]
    assert all("listener" not in one for one in logs)


def test_a_sum_has_no_ids_of_a_request() -> None:
    seen: list[RequestMeta | None] = []

    async def write() -> None:
        log = AuditLog()
        log._end_interval = lambda: seen.append(CURRENT_REQUEST.get())  # type: ignore[method-assign]
        CURRENT_REQUEST.set(RequestMeta(connection_id=1, api_key=3, api_version=1))
        log.write("info", "denied", {"resource": "y"})
        await asyncio.sleep(audit.SUM_EVERY_S + 1)

    run_in_virtual_time(write())
    assert seen == [None]


def test_the_guard_against_log_storms_lets_the_audit_log_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = StormGuard(Storms(lines_per_s=1), clock=lambda: 0.0)
    monkeypatch.setattr(guard, "_start_timer", lambda: None)
    for _ in range(3):
        assert guard(None, "info", {"logger": AUDIT, "event": "denied"})
    assert guard(None, "info", {"logger": "kafscale.x", "event": "denied"})
    with pytest.raises(structlog.DropEvent):
        guard(None, "info", {"logger": "kafscale.x", "event": "denied"})
