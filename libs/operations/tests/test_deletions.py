"""Plans of deletions and resets by Kafka's API."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafscale.lake.unread import Going
from kafscale.operations.deletions import deletion_of_records, deletion_of_topics
from kafscale.operations.positions import Log


def test_a_plan_by_kafka_s_api_speaks_of_the_groups_that_its_user_may_see(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ACLs hide the others, and these may lose records."""
    client: Any = None
    found = [SimpleNamespace(name="t", partitions=[SimpleNamespace(id=0)])]
    going = [Going(topic="t", partition=0, start=0, end=2)]
    monkeypatch.setattr("kafscale.operations.deletions.find_topics", lambda *_: found)
    monkeypatch.setattr("kafscale.operations.deletions.bounds_of", lambda *_: going)
    monkeypatch.setattr("kafscale.operations.deletions.readers_of", lambda *_: {})
    log = Log(start=0, end=3, at=2)
    for plan in (deletion_of_topics(client, ["t"]), deletion_of_records(client, "t", {("t", 0): log})):
        assert plan.facts()[-1] == "no group that you may see would lose records that it has not read"
