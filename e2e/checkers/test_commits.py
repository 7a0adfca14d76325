"""The checker of commits on histories with each anomaly planted."""

from __future__ import annotations

import pytest

from e2e.checkers.commits import NOTHING, Acknowledged, Event, Read, Refused, Unknown, violations


@pytest.mark.parametrize(
    "events",
    [
        [],
        [Read(NOTHING), Acknowledged(1), Read(1)],
        [Acknowledged(1), Unknown(2), Read(1), Read(2), Read(2)],
        [Acknowledged(1), Unknown(2), Acknowledged(3), Read(3)],
        [Acknowledged(1), Refused(2), Read(1)],
        [Unknown(1), Read(NOTHING)],
    ],
)
def test_a_sound_history_passes(events: list[Event]) -> None:
    assert violations("g", events) == []


@pytest.mark.parametrize(
    ("anomaly", "events"),
    [
        ("lost commit", [Acknowledged(1), Acknowledged(2), Read(1)]),
        ("lost commit", [Acknowledged(1), Read(NOTHING)]),
        ("lost commit", [Unknown(1), Acknowledged(2), Read(1)]),
        ("went back", [Acknowledged(1), Unknown(2), Read(2), Read(1)]),
        ("refused read", [Acknowledged(1), Refused(2), Read(2)]),
        ("phantom", [Acknowledged(1), Read(7)]),
    ],
)
def test_a_planted_anomaly_is_named(anomaly: str, events: list[Event]) -> None:
    found = violations("g", events)
    assert len(found) == 1
    assert found[0].startswith(f"{anomaly}: g, event {len(events) - 1}")
