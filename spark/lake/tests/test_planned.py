"""What other limits would delete, as rows of each log."""

from __future__ import annotations

from kafscale.lake.retention.plan import Limits, plan
from kafscale.lake.retention.report import by_partition, bytes_of

from .test_retention import NOW, log_of

NONE = Limits(retention_ms=-1, retention_bytes=-1)
SHORT = Limits(retention_ms=100, retention_bytes=-1)


def test_a_log_that_loses_segments_is_a_row_with_its_old_and_its_new_start() -> None:
    log = log_of([(100, NOW - 500), (100, NOW - 400), (100, NOW - 5)], NONE)
    doomed = plan([log], NOW, SHORT)
    assert bytes_of(doomed) == 2 * (100 + 1)
    (row,) = by_partition(doomed)
    assert (row["segments"], row["bytes"], row["start"], row["start_after"]) == (2, 202, 0, 20)


def test_segments_below_the_start_move_it_no_further() -> None:
    log = log_of([(100, NOW - 500), (100, NOW - 400), (100, NOW - 5)], NONE, below=1)
    (row,) = by_partition(plan([log], NOW, SHORT))
    assert (row["start"], row["start_after"]) == (10, 20)
    (row,) = by_partition(plan([log], NOW))
    assert row["start_after"] == row["start"]
