"""The law of a copy, which programs of Kafka's ecosystem must keep, sees each way to break it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.harness.ecosystem import KEYS, PARTITIONS, assert_complete

COUNT = 200
Logs = list[list[str]]


def complete() -> Logs:
    logs: Logs = [[] for _ in range(PARTITIONS)]
    for number in range(COUNT):
        logs[number % KEYS % PARTITIONS].append(str(number))
    return logs


def test_records_that_are_copied_twice_are_allowed() -> None:
    logs = complete()
    logs[0] += logs[0]
    assert_complete(logs, COUNT)


def lose(logs: Logs) -> None:
    logs[1].pop(5)


def add(logs: Logs) -> None:
    logs[1].append(str(COUNT))


def reverse(logs: Logs) -> None:
    logs[0].reverse()


@pytest.mark.parametrize(
    ("damage", "message"), [(lose, r"missing: \[16\]"), (add, r"unknown: \[200\]"), (reverse, "not in order")]
)
def test_damage_is_seen(damage: Callable[[Logs], None], message: str) -> None:
    logs = complete()
    damage(logs)
    with pytest.raises(AssertionError, match=message):
        assert_complete(logs, COUNT)
