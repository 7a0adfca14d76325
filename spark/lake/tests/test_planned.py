"""What other limits would save, and whom they would cost records."""

from __future__ import annotations

from kafscale.lake.lag.commits import Commit, Position
from kafscale.lake.retention.plan import Limits, plan
from kafscale.lake.retention.planned import by_partition, bytes_of, losses
from kafscale.storage.groups import CommittedOffset

from .test_retention import NOW, log_of

NONE = Limits(retention_ms=-1, retention_bytes=-1)
SHORT = Limits(retention_ms=100, retention_bytes=-1)


def commit(group: str, offset: int, topic: str = "t") -> Commit:
    return Commit(
        group=group,
        topic=topic,
        partition=0,
        offset=CommittedOffset(offset=offset, leader_epoch=-1, metadata="", commit_ms=0),
    )


def test_groups_that_are_behind_the_would_be_start_lose_what_lies_between() -> None:
    log = log_of([(100, NOW - 500), (100, NOW - 400), (100, NOW - 5)], NONE)
    doomed = plan([log], NOW, SHORT)
    assert bytes_of(doomed) == 2 * (100 + 1)
    commits = [commit("behind", 4), commit("at", 20), commit("ahead", 29), commit("elsewhere", 0, "other")]
    assert losses(by_partition(doomed), commits) == [
        {"group": "behind", "topic": "t", "partition": 0, "committed": 4, "start": 20, "records": 16}
    ]


def test_a_group_that_has_committed_nothing_loses_all_that_goes() -> None:
    log = log_of([(100, NOW - 500), (100, NOW - 400), (100, NOW - 5)], NONE)
    (loss,) = losses(by_partition(plan([log], NOW, SHORT)), [Position(group="new", topic="t", partition=0)])
    assert (loss["group"], loss["committed"], loss["start"], loss["records"]) == ("new", None, 20, 20)


def test_what_is_lost_already_is_not_lost_again() -> None:
    log = log_of([(100, NOW - 500), (100, NOW - 400), (100, NOW - 5)], NONE, below=1)
    (loss,) = losses(by_partition(plan([log], NOW, SHORT)), [commit("late", 3)])
    assert loss["records"] == 10
    deleted = by_partition(plan([log], NOW))
    assert losses(deleted, [commit("late", 3)]) == [], "deleted segments move no start"
