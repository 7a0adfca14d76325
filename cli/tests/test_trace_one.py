"""`trace-one`: the steps of a request in order, also of machines with other clocks, and the table of medians."""

from __future__ import annotations

import json

import pytest
from kafscale.cli.trace_one import BadReport, Step, steps_of, table
from kafscale.client.request import Timed

SERVICE = [["request begun", 30], ["request ended", 70]]


def timed(door: str, service: str, *, service_shift: int = 0, door_shift: int = 0) -> Timed:
    """The client sends at 0 and has its answer at 100; the front door asks a service from 20 to 80."""
    inner = {"machine": service, "steps": [[name, ns + service_shift] for name, ns in SERVICE]}
    report = {
        "machine": door,
        "steps": [
            ["request begun", 10 + door_shift],
            ["ask produce begun", 20 + door_shift],
            ["ask produce ended", 80 + door_shift],
            inner,
            ["request ended", 90 + door_shift],
        ],
    }
    return Timed(sent_ns=0, received_ns=100, report=json.dumps(report).encode())


def shown(steps: list[Step]) -> list[tuple[str, str, int]]:
    return [(step.process, step.name, step.ns) for step in steps]


WAY = [
    ("client", "sent", 0),
    ("frontdoor", "request begun", 10),
    ("frontdoor", "ask produce begun", 20),
    ("produce", "request begun", 30),
    ("produce", "request ended", 70),
    ("frontdoor", "ask produce ended", 80),
    ("frontdoor", "request ended", 90),
    ("client", "received", 100),
]


def test_steps_of_processes_with_one_clock_are_as_measured() -> None:
    steps = steps_of(timed("here", "here"), "here")
    assert shown(steps) == WAY
    assert all(step.same_clock for step in steps)


def test_the_steps_of_another_machine_are_in_the_middle_of_what_its_caller_saw() -> None:
    steps = steps_of(timed("here", "there", service_shift=1_000_000), "here")
    assert shown(steps) == WAY
    assert [step.process for step in steps if not step.same_clock] == ["produce", "produce"]


def test_a_cluster_far_from_the_client_keeps_the_distances_between_its_own_processes() -> None:
    steps = steps_of(timed("there", "there", service_shift=-500, door_shift=-500), "here")
    assert shown(steps) == WAY
    assert [step.process for step in steps if step.same_clock] == ["client", "client"]


def test_without_a_report_only_the_client_s_own_times_are_known() -> None:
    steps = steps_of(Timed(sent_ns=5, received_ns=9, report=None), "here")
    assert shown(steps) == [("client", "sent", 0), ("client", "received", 4)]


@pytest.mark.parametrize(
    "report", [b"", b"[]", b"{}", b'{"machine": "m", "steps": [3]}', b'{"machine": 1, "steps": [[1]]}']
)
def test_a_report_of_another_form_is_refused(report: bytes) -> None:
    with pytest.raises(BadReport):
        steps_of(Timed(sent_ns=5, received_ns=9, report=report), "here")


def test_the_table_has_medians_and_leaves_out_requests_that_took_other_steps() -> None:
    def way(*at_ms: int, name: str = "stored") -> list[Step]:
        names = ("sent", name, "received")
        return [
            Step(process="client", name=step, ns=at * 1_000_000)
            for step, at in zip(names, at_ms, strict=True)
        ]

    rows, left_out = table([way(0, 1, 4), way(0, 2, 3), way(0, 3, 11), way(0, 9, 99, name="claimed")])
    assert left_out == 1
    assert [(row["step"], row["at_ms"], row["took_ms"]) for row in rows] == [
        ("sent", 0, 0),
        ("stored", 2, 2),
        ("received", 4, 3),
    ]
