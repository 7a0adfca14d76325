"""Law: the report of cut facts has no name of a group or topic that was cut, and the numbers of the others are those of
the whole report as far as they are of one partition."""

from __future__ import annotations

import json
from functools import cache

import pytest
from kafscale.lake.lag.page import payload
from kafscale.lake.lag.report import Facts, cut, make_report

from . import lag_world
from .lag_world import KINDS, TOPICS

GROUPS = frozenset(kind.group for kind in KINDS)


@cache
def world() -> Facts:
    return lag_world.world()


@pytest.mark.parametrize(
    ("groups", "topics"),
    [
        (GROUPS - {"billing"}, frozenset(TOPICS)),
        (GROUPS, frozenset({"clickstream", "sessions"})),
        (frozenset({"recommendations"}), frozenset({"orders"})),
        (frozenset(), frozenset()),
    ],
)
def test_what_was_cut_is_in_no_byte_of_the_report(groups: frozenset[str], topics: frozenset[str]) -> None:
    report = make_report(cut(world(), groups, topics))
    text = json.dumps(payload(report))
    for name in [*(GROUPS - groups), *(TOPICS.keys() - topics)]:
        assert f'"{name}"' not in text
    assert {row.group for row in report.groups} <= groups
    assert {row.topic for row in report.topics} <= topics
    whole = {row.place: row for row in make_report(world()).partitions}
    assert report.partitions == tuple(
        row for row in whole.values() if row.group in groups and row.topic in topics
    )
    for group in report.groups:
        mine = [row for row in report.partitions if row.group == group.group]
        assert (group.partitions, group.records) == (len(mine), sum(row.records for row in mine))


def test_who_sees_all_gets_the_same_facts() -> None:
    assert cut(world(), GROUPS | {"another"}, TOPICS.keys()) is world()
