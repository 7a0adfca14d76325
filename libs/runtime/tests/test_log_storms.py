"""A line that repeats is printed a few times a second, counted, and summed up once; memory is bounded."""

import json
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st
from kafscale.runtime.log_storms import (
    CALM_S,
    OTHERS,
    SUM_EVERY_S,
    TEXT_MAX,
    WARNING_EVERY_MS,
    Event,
    Storms,
    Sum,
    Warnings,
    event_of,
)
from kafscale.testkit.clock import ManualClock
from structlog.testing import capture_logs

LOST = Event("kafscale.x", "warning", "lost")
FOUND = Event("kafscale.x", "warning", "found")


def test_a_storm_is_cut_and_summed_when_it_is_over() -> None:
    storms = Storms(lines_per_s=3)
    assert [storms.admit(LOST, 0.1 * n) for n in range(6)] == [True] * 3 + [False] * 3
    assert storms.admit(FOUND, 0.6), "another event has its own measure"
    assert storms.sums(0.7) == []
    assert storms.sums(0.5 + CALM_S) == [Sum(LOST, 3)]
    assert storms.sums(9.0) == []
    assert not storms.stormy


def test_a_storm_that_lasts_is_told_of_while_it_lasts() -> None:
    storms = Storms(lines_per_s=1)
    told = []
    for tenth in range(251):
        storms.admit(LOST, tenth / 10)
        told += storms.sums(tenth / 10)
    assert len(told) == 2
    assert 2 * SUM_EVERY_S * 8 < sum(each.repeated for each in told) <= 251


def test_a_second_later_lines_are_printed_again() -> None:
    storms = Storms(lines_per_s=1)
    assert [storms.admit(LOST, at) for at in (0.0, 0.5, 1.0, 1.5)] == [True, False, True, False]


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(0, 0.3)), max_size=300))
def test_every_line_is_printed_or_counted_and_few_events_are_remembered(
    steps: list[tuple[int, float]],
) -> None:
    storms = Storms(lines_per_s=2, events_max=5)
    now_s, printed, told = 0.0, 0, 0
    for name, pause_s in steps:
        now_s += pause_s
        printed += storms.admit(Event("x", "info", str(name)), now_s)
        assert len(storms) <= 6, "the five, and what is counted of those forgotten"
        told += sum(each.repeated for each in storms.sums(now_s))
    told += sum(each.repeated for each in storms.sums(now_s, everything=True))
    assert printed + told == len(steps)


def test_what_was_left_out_of_a_forgotten_event_is_told_as_that_of_others() -> None:
    storms = Storms(lines_per_s=1, events_max=1)
    storms.admit(LOST, 0)
    storms.admit(LOST, 0)
    storms.admit(FOUND, 0)
    assert storms.sums(CALM_S) == [Sum(OTHERS, 1)]


def test_lines_that_differ_by_numbers_are_one_event() -> None:
    text = (
        "Task exception was never retrieved\nfuture: <Task finished name='Task-{}' coro=<serve() at 0x{:x}>>"
    )
    assert len({event_of("asyncio", "error", text.format(n, 0xABCDE * n)) for n in range(9, 12)}) == 1
    assert event_of("x", "error", "a 1") != event_of("x", "error", "b 1")
    assert len(event_of("x", "error", "1" * 10_000 + "y").text) <= TEXT_MAX


STORM = """
from kafscale.runtime.logs import configure_logs
import structlog
configure_logs(level="debug", form="json", service="fetch")
log = structlog.get_logger("kafscale.x")
for n in range(500):
    log.warning("lost", n=n)
for n in range(50):
    log.debug("request", n=n)
"""


def test_a_process_in_a_storm_prints_few_lines_and_tells_the_rest_before_it_ends() -> None:
    done = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    lost = [line for line in lines if line["event"] == "lost"]
    sums = [line["repeated"] for line in lost if "repeated" in line]
    assert sum(sums) + len(lost) - len(sums) == 500
    assert len(lost) < 500
    assert {line["logger"] for line in lost} == {"kafscale.x"}
    assert {line["level"] for line in lost} == {"warning"}
    assert len([line for line in lines if line["event"] == "request"]) == 50, "debug lines are all wanted"


def test_of_one_kind_one_warning_per_interval_is_logged_and_says_how_many_were_left_out() -> None:
    clock = ManualClock()
    warnings = Warnings("kafscale.test", "connection closed", clock)
    with capture_logs() as lines:
        for passed_ms in (0, WARNING_EVERY_MS - 1, 1, WARNING_EVERY_MS):
            clock.advance(passed_ms)
            warnings.log("half a request", peer="a")
        warnings.log("no request")
    assert [(line["event"], line["kind"], line["left_out"]) for line in lines] == [
        ("connection closed", "half a request", 0),
        ("connection closed", "half a request", 1),
        ("connection closed", "half a request", 0),
        ("connection closed", "no request", 0),
    ]
    assert [line.get("peer") for line in lines] == ["a", "a", "a", None]
