"""What is said of a disk, and when."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from kafscale.operations import disk
from kafscale.operations.datadir import DataDir
from kafscale.operations.disk import (
    ETCD_PIECE_BYTES,
    FIRST_BYTES,
    KEPT_BYTES_MAX,
    MB,
    PUT_BYTES,
    Disk,
    DiskWatch,
    Use,
)

GB = 1 << 30


def of(free: int, total: int = 10 * GB, use: Use = Use.BOTH) -> Disk:
    return Disk(Path("data"), use, free, total)


def test_room_for_etcd_is_kept_on_small_and_large_disks() -> None:
    assert of(0, 260 * MB).kept == ETCD_PIECE_BYTES
    assert of(0, 10 * GB).kept == GB // 2
    assert of(0, 1000 * GB).kept == KEPT_BYTES_MAX


def test_a_disk_is_full_before_records_take_the_room_of_etcd() -> None:
    kept = of(0).kept
    assert of(kept + PUT_BYTES).full() is None
    full = of(kept + PUT_BYTES - 1).full()
    assert full == "the disk of data is full (519 of 10240 MB free, of which 512 MB are kept for etcd)"
    assert of(0, 260 * MB).full() == "the disk of data is full (0 of 260 MB free)"


def test_with_the_records_elsewhere_etcd_needs_one_more_piece() -> None:
    assert of(ETCD_PIECE_BYTES, use=Use.ETCD).full() is None
    assert of(ETCD_PIECE_BYTES - 1, use=Use.ETCD).full() is not None


def test_a_disk_of_records_alone_keeps_no_room() -> None:
    assert of(0, use=Use.RECORDS).kept == 0
    assert of(PUT_BYTES, use=Use.RECORDS).full() is None
    full = of(PUT_BYTES - 1, use=Use.RECORDS).full()
    assert full == "the disk of data is full (7 of 10240 MB free)"


def test_the_bucket_may_be_on_a_disk_of_its_own(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    data.objects.mkdir()
    assert [(each.path, each.use) for each in data.disks(with_records=True)] == [(tmp_path, Use.BOTH)]
    data.objects.rmdir()
    data.objects.symlink_to("/proc")
    assert [(each.path, each.use) for each in data.disks(with_records=True)] == [
        (tmp_path, Use.ETCD),
        (data.objects, Use.RECORDS),
    ]
    assert [each.use for each in data.disks(with_records=False)] == [Use.ETCD]


def test_new_data_needs_room_for_the_first_log_of_etcd() -> None:
    assert of(FIRST_BYTES).too_small() is None
    small = of(39 * MB, 40 * MB).too_small()
    assert small is not None
    assert "too little room (39 of 40 MB free): a new cluster needs 192 MB" in small


async def test_a_full_disk_is_said_once_and_once_more_that_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(disk, "WATCH_S", 0)
    free = [GB]
    lines: asyncio.Queue[str] = asyncio.Queue()
    watch = DiskWatch(lambda: of(free[0]))
    watching = asyncio.create_task(watch.watch(lines.put_nowait))
    for _ in range(2):
        free[0] = 0
        assert "is full (0 of 10240 MB free); records are refused" in await lines.get()
        assert watch.is_full()
        assert watch.news() is None, "it is said already"
        free[0] = GB
        assert await lines.get() == "the disk of data has room again (1024 of 10240 MB free)"
    watching.cancel()
    assert lines.empty()


def test_a_disk_that_cannot_be_looked_at_is_not_full() -> None:
    """The folder may be a mount that is away. The watch must not end `up`."""

    def away() -> Disk:
        raise OSError(errno.ESTALE, "Stale file handle")

    watch = DiskWatch(away)
    assert (watch.is_full(), watch.news()) == (False, None)
