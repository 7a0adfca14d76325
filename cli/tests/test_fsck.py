"""What `kafscale fsck` prints."""

from __future__ import annotations

import pytest
from kafscale.cli.fsck import _print
from kafscale.operations.fsck.run import Verdict


def test_the_report_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    _print(
        Verdict(
            topics=1,
            partitions=2,
            segments=1_200,
            records=1,
            orphans=["a"],
            deleted=1,
            slices=1,
            slice_bytes=9,
        )
    )
    assert capsys.readouterr().out.splitlines() == [
        "1 topic, 2 partitions with a head, 1,200 segments, 1 record, 0 bytes, 1 orphan (legal)",
        "1 segment of deleted records below a log start (legal), 0 of them still stored",
        "1 slice of bundles among the segments, 9 bytes",
        "clean: etcd and the object store agree",
    ]
