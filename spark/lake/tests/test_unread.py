"""Which groups have not read what is about to go: counted by offsets, and never twice."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kafscale.lake.unread import Going, unread

OFFSETS = st.integers(0, 12)


def going(start: int, end: int, *, topic: str = "t", partition: int = 0) -> Going:
    return Going(topic=topic, partition=partition, start=start, end=end)


def row(group: str, committed: int | None, end: int, records: int, partition: int = 0) -> dict[str, Any]:
    return {
        "group": group,
        "topic": "t",
        "partition": partition,
        "committed": committed,
        "start": end,
        "records": records,
    }


def test_groups_that_are_behind_the_end_of_what_goes_lose_what_lies_between() -> None:
    readers = {(group, "t"): {0: at} for group, at in (("behind", 4), ("at", 20), ("ahead", 29))}
    assert unread([going(0, 20)], readers) == [row("behind", 4, 20, 16)]


def test_a_group_that_reads_the_topic_without_a_commit_in_the_partition_has_read_nothing_of_it() -> None:
    readers = {("half", "t"): {0: 20}, ("new", "t"): dict[int, int](), ("elsewhere", "other"): {0: 0}}
    assert unread([going(5, 20, partition=1), going(0, 20)], readers) == [
        row("half", None, 20, 15, partition=1),
        row("new", None, 20, 20),
        row("new", None, 20, 15, partition=1),
    ]


def test_what_is_lost_already_is_not_lost_again() -> None:
    assert unread([going(10, 20)], {("late", "t"): {0: 3}}) == [row("late", 3, 20, 10)]
    assert unread([going(20, 20)], {("late", "t"): {0: 3}}) == [], "nothing goes"


@given(start=OFFSETS, size=OFFSETS, at=st.none() | st.integers(0, 30))
def test_the_records_are_the_offsets_that_go_and_that_the_group_has_not_passed(
    start: int, size: int, at: int | None
) -> None:
    readers = {("g", "t"): {} if at is None else {0: at}}
    lost = [offset for offset in range(start, start + size) if at is None or offset >= at]
    assert sum(each["records"] for each in unread([going(start, start + size)], readers)) == len(lost)
