"""What `kafscale status` prints."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace

import pytest
from kafscale.cli.status import doing, heading
from kafscale.cli.targets import finished
from kafscale.operations.status.picture import READY, Observed, Unfinished, Unsettled, paint

from libs.operations.tests.pictures import NOW_MS, WHOLE, of, with_slices


def test_what_an_instance_does() -> None:
    def told(role: str, gauges: dict[str, float], per_s: dict[str, float]) -> str:
        prefix = f"kafscale_{role}_"
        picture = of(
            WHOLE,
            **{
                role: Observed(
                    health=READY,
                    gauges={prefix + name: value for name, value in gauges.items()},
                    rates={prefix + name: value for name, value in per_s.items()},
                )
            },
        )
        return next(doing(row) for row in picture.instances if row.service == role)

    assert told("produce", {}, {"bytes_total": 1_234_567.0, "records_total": 10.0}) == (
        "6 partitions, 10.0 records/s, 1.2MB/s"
    )
    assert told("fetch", {}, {"requests_total": 1.0}) == "0.0 records/s, 0B/s"
    assert told("coordinator", {"groups": 1}, {"stream_requests_total": 2.0}) == (
        "64 slots, 1 group, 2.0 requests/s"
    )
    assert told("frontdoor", {"connections": 1_200}, {"requests_total": 0.25}) == (
        "1,200 connections, 0.2 requests/s"
    )
    assert told("upkeep", {"working": 0}, {}) == "standby"
    assert told("admin", {}, {}) == ""


def test_slices_that_are_not_settled_have_a_line_with_the_age_of_the_oldest() -> None:
    some = with_slices(Unsettled(slices=2, bytes=3_000, oldest_created_ms=NOW_MS - 240_999))
    line = "2 slices of bundles not settled yet, 3.0KB, the oldest 4m old"
    assert heading(paint(some, {}, 1.0))[-1] == line
    assert len(heading(paint(with_slices(Unsettled()), {}, 1.0))) == 3


def test_transactions_that_are_not_over_have_a_line() -> None:
    def last_line(found: Unfinished) -> str:
        return heading(paint(replace(with_slices(Unsettled()), unfinished=found), {}, 1.0))[-1]

    old = NOW_MS - 240_999
    assert last_line(Unfinished(under_way=2, oldest_started_ms=old)) == (
        "2 transactions under way, the oldest 4m old"
    )
    assert last_line(Unfinished(under_way=1, oldest_started_ms=NOW_MS, closing=1, oldest_changed_ms=old)) == (
        "1 transaction under way, the oldest 0.0s old; 1 decided and not ended everywhere for 4m"
    )


def test_ctrl_c_while_libraries_are_imported_is_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """`status --watch` warned on the terminal that its coroutine was never awaited."""

    class Interrupted:
        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    async def watch() -> None:
        return

    monkeypatch.setitem(sys.modules, "kafscale.runtime.etcd_binary", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        finished(watch())
    gc.collect()
