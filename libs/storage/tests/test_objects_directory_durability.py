"""What the directory store does when the disk is full, fails, is slow, or loses its power."""

import asyncio
import contextlib
import errno
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafscale.storage.objects import (
    IfAbsent,
    IfMatch,
    ObjectNotFound,
    PreconditionFailed,
    StoreFull,
    StoreUnavailable,
)
from kafscale.storage.objects import disk_tree as disk_tree_module
from kafscale.storage.objects.directory import DirectoryStore
from kafscale.storage.objects.disk_direct import DIRECT_BYTES_MIN, DirectWrites
from kafscale.storage.objects.disk_files import names_follow_fsync, write_body
from kafscale.storage.objects.disk_pool import DiskPool
from kafscale.storage.objects.disk_records import LinkRecords

WRITER = Path(__file__).with_name("directory_writer.py")
KEY = "default/orders/0/segment-00000000000000000000.kfs"
METADATA = {"kfs-epoch": "3", "kfs-attempt": "b" * 32}


def files_below(root: Path) -> set[str]:
    return {
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and not path.is_symlink()
    }


def lock_files(root: Path) -> set[str]:
    return {name for name in files_below(root) if name.startswith(".store/locks/")}


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(mount)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount a tmpfs")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


async def test_a_full_disk_refuses_definitely_and_passes_when_there_is_room(
    small_disk: Path, directory_attributes: bool
) -> None:
    store = DirectoryStore(small_disk, attributes=directory_attributes)
    first = await store.put("ns/0", [b"a" * (3 << 20)], condition=IfAbsent())
    for condition in (IfAbsent(), None, IfMatch(first)):
        key = "ns/0" if isinstance(condition, IfMatch) else "ns/1"
        with pytest.raises(StoreFull):
            await store.put(key, [b"b" * (2 << 20)], condition=condition)
    assert [info.key async for info in store.list("")] == ["ns/0"]
    assert files_below(small_disk) - lock_files(small_disk) == {"ns/0", ".store/layout"}
    assert directory_attributes or names_in(small_disk / ".store/meta/ns") == [
        f"0.{(small_disk / 'ns/0').stat().st_ino:x}"
    ]
    assert await store.delete("ns/0", if_match=first)
    await store.put("ns/1", [b"b" * (2 << 20)], condition=IfAbsent())
    assert await store.get("ns/1") == b"b" * (2 << 20)
    await store.close()


async def test_an_fsync_that_finds_the_disk_full_takes_the_object_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory_attributes: bool
) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    await store.probe()

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFull):
        await store.put(KEY, [b"x"], condition=IfAbsent())
    monkeypatch.undo()
    assert await store.head(KEY) is None
    await store.put(KEY, [b"x"], condition=IfAbsent())
    await store.close()


async def test_an_fsync_that_fails_otherwise_leaves_the_outcome_unknown_to_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory_attributes: bool
) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    await store.probe()

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(StoreUnavailable):
        await store.put(KEY, [b"x"], condition=IfAbsent())
    monkeypatch.undo()
    assert await store.head(KEY) is None
    await store.close()


async def test_a_replacement_that_finds_the_disk_full_leaves_the_old_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory_attributes: bool
) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    etag = await store.put(KEY, [b"old"], metadata=METADATA)

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFull):
        await store.put(KEY, [b"new"], condition=IfMatch(etag))
    monkeypatch.undo()
    assert await store.get(KEY, if_match=etag) == b"old"
    assert files_below(tmp_path) - lock_files(tmp_path) == {KEY, ".store/layout"}
    await store.close()


async def test_a_delete_that_returned_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory_attributes: bool
) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    await store.put(KEY, [b"x"])
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    await store.delete(KEY)
    assert synced == [str((tmp_path / KEY).parent)]
    await store.close()


async def test_a_delete_whose_directory_another_process_takes_away_is_done_and_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory_attributes: bool
) -> None:
    """Two processes that delete the last two objects of a directory: who unlinks last may remove it first."""
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    await store.put(KEY, [b"x"], condition=IfAbsent(), metadata=METADATA)
    directory = (tmp_path / KEY).parent
    synced: list[str] = []
    unlink = os.unlink

    def unlink_and_lose_the_directory(path: str) -> None:
        unlink(path)
        if path == str(tmp_path / KEY):
            directory.rmdir()

    monkeypatch.setattr(os, "unlink", unlink_and_lose_the_directory)
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    assert await store.delete(KEY)
    assert synced == [str(directory.parent)]
    assert names_in(tmp_path / ".store/meta") == []  # its record went too
    await store.close()


@pytest.mark.parametrize("error", [FileNotFoundError, FileExistsError])
async def test_a_put_makes_its_directories_again_when_a_deleter_took_them_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory_attributes: bool, error: type[OSError]
) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    await store.probe()
    makedirs, lost = os.makedirs, [error(), error()]

    def lose_then_make(path: str, *, exist_ok: bool) -> None:
        if lost:
            raise lost.pop()
        makedirs(path, exist_ok=exist_ok)

    monkeypatch.setattr(os, "makedirs", lose_then_make)
    await store.put(KEY, [b"x"], condition=IfAbsent(), metadata=METADATA)
    assert await store.get(KEY) == b"x"
    assert not lost
    await store.close()


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("body", [b"x", b"x" * DIRECT_BYTES_MIN])
async def test_every_put_is_synced_and_where_names_do_not_follow_so_are_the_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordered: bool, directory_attributes: bool, body: bytes
) -> None:
    monkeypatch.setattr(disk_tree_module, "names_follow_fsync", lambda path: ordered)
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    await store.put(KEY, [b"x"], condition=IfAbsent())  # makes the directories
    synced: list[str] = []
    fsync = os.fsync

    def record(fd: int) -> None:
        target = os.readlink(f"/proc/self/fd/{fd}")
        synced.append("object" if os.path.basename(target).startswith(("#", "segment")) else target)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", record)
    await store.put(KEY.replace("0.kfs", "1.kfs"), [body], condition=IfAbsent(), metadata=METADATA)
    shown, recorded = str(tmp_path / "default/orders/0"), str(tmp_path / ".store/meta/default/orders/0")
    if ordered:
        assert synced == ["object"]
    elif directory_attributes:  # bytes with record before the name, then the name
        assert synced == ["object", "object", shown]
    else:
        assert synced == ["object", recorded, "object", shown]
    await store.close()


async def test_head_makes_durable_what_it_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory_attributes: bool
) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    await store.put(KEY, [b"x"], condition=IfAbsent())
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    assert await store.head(KEY) is not None
    assert len(synced) == 1
    await store.close()


async def test_a_file_cut_by_a_power_failure_counts_as_absent_and_is_moved_aside(
    tmp_path: Path, directory_attributes: bool
) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    etag = await store.put(KEY, [b"0123456789"], condition=IfAbsent(), metadata=METADATA)
    os.truncate(tmp_path / KEY, 4)
    assert await store.head(KEY) is None
    with pytest.raises(ObjectNotFound):
        await store.get(KEY)
    assert [info async for info in store.list("default/")] == []
    with pytest.raises(PreconditionFailed):
        await store.put(KEY, [b"x"], condition=IfMatch(etag))
    again = await store.put(KEY, [b"whole"], condition=IfAbsent(), metadata={"kfs-epoch": "4"})
    info = await store.head(KEY)
    assert info is not None
    assert (info.etag, dict(info.metadata)) == (again, {"kfs-epoch": "4"})
    assert [path.read_bytes() for path in (tmp_path / ".store/torn").iterdir()] == [b"0123"]
    await store.close()


async def test_a_blocked_write_holds_up_neither_the_loop_nor_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory_attributes: bool
) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    await store.put("ns/there", [b"x"])
    gate = threading.Event()

    def stuck(fd: int) -> None:
        gate.wait(30)

    monkeypatch.setattr(os, "fsync", stuck)
    async with asyncio.TaskGroup() as tasks:
        for n in range(12):
            tasks.create_task(store.put(f"ns/{n}", [b"y"], condition=IfAbsent()))
        assert await store.get("ns/there") == b"x"
        gate.set()
    await store.close()


async def test_a_pool_never_has_more_calls_pending_than_its_bound() -> None:
    pool = DiskPool("bounded", threads=2, pending_max=3)
    gate = threading.Event()
    both = threading.Barrier(3)
    first = threading.Semaphore(2)

    def call(n: int) -> int:
        if first.acquire(blocking=False):
            both.wait(30)
        gate.wait(30)
        return n

    calls = [asyncio.ensure_future(pool.run(call, n)) for n in range(10)]
    await asyncio.to_thread(both.wait)
    assert pool.pending == 3
    gate.set()
    assert await asyncio.gather(*calls) == list(range(10))
    await pool.close()


async def test_a_cancelled_call_still_ends_and_its_thread_serves_on() -> None:
    pool = DiskPool("cancelled", threads=1, pending_max=10)
    gate, done = threading.Event(), threading.Event()

    def call() -> None:
        gate.wait(30)
        done.set()

    pending = asyncio.ensure_future(pool.run(call))
    await asyncio.sleep(0)
    pending.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await pending
    gate.set()
    assert await pool.run(done.is_set)
    await pool.close()


def test_the_kernels_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwritev, direct = os.pwritev, DirectWrites(str(tmp_path))
    monkeypatch.setattr(os, "pwritev", lambda fd, parts, at: pwritev(fd, [parts[0][:3]], at))
    fd = os.open(tmp_path / "f", os.O_CREAT | os.O_RDWR)
    etag, size = write_body(fd, [b"abcdefgh", b"", b"ij", b"k"], direct)
    os.close(fd)
    assert ((tmp_path / "f").read_bytes(), size) == (b"abcdefghijk", 11)
    monkeypatch.undo()
    fd = os.open(tmp_path / "g", os.O_CREAT | os.O_RDWR)
    assert write_body(fd, [b"abcdefghijk"], direct) == (etag, 11)
    os.close(fd)


@pytest.mark.parametrize(
    ("file_system", "follow"), [("ext4", True), ("xfs", True), ("btrfs", False), ("nfs4", False)]
)
def test_only_file_systems_with_one_ordered_journal_are_trusted_with_names(
    tmp_path: Path, file_system: str, follow: bool
) -> None:
    device = os.stat(tmp_path).st_dev
    line = f"36 35 {os.major(device)}:{os.minor(device)} / /x rw shared:1 - {file_system} /dev/x rw\n"
    other = "37 35 254:99 / /y rw - ext4 /dev/y rw\n"
    assert names_follow_fsync(str(tmp_path), other + line) is follow
    assert names_follow_fsync(str(tmp_path), other) is False


async def test_an_old_file_stays_open_until_its_record_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its inode may be another writer's by then, whose record of the same key would be taken away."""
    store = DirectoryStore(tmp_path, attributes=False)
    forget = LinkRecords.forget
    pinned: list[bool] = []

    def look_and_forget(records: LinkRecords, key: str, inode: int) -> None:
        pinned.append(inode in inodes_open_here())
        forget(records, key, inode)

    await store.put(KEY, [b"old"], condition=IfAbsent())
    monkeypatch.setattr(LinkRecords, "forget", look_and_forget)
    await store.put(KEY, [b"new"])
    await store.delete(KEY)
    assert pinned == [True, True]
    await store.close()


def inodes_open_here() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile by another thread
            found.add(os.fstat(int(name)).st_ino)
    return found
