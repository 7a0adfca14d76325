"""The directory store's own laws: several processes, kill -9, plain files, copied trees, keys and locks."""

import asyncio
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from kafscale.storage.objects import (
    IfAbsent,
    IfMatch,
    ObjectStore,
    PreconditionFailed,
    StoreConfig,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    open_store,
)
from kafscale.storage.objects.directory import DirectoryStore
from kafscale.storage.objects.disk_records import LinkRecords
from kafscale.storage.objects.disk_tree import DiskTree, Stage
from kafscale.storage.objects.locks import KeyLocks
from kafscale.storage.objects.sidecar import Record

WRITER = Path(__file__).with_name("directory_writer.py")
KEY = "default/orders/0/segment-00000000000000000000.kfs"
METADATA = {"kfs-epoch": "3", "kfs-attempt": "b" * 32}


def start_writer(root: Path, mode: str, seed: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(WRITER), str(root), mode, str(seed)], stdout=subprocess.PIPE)


def files_below(root: Path) -> set[str]:
    return {
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and not path.is_symlink()
    }


async def test_an_object_is_a_plain_file_under_its_key(tmp_path: Path, directory_attributes: bool) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    await store.put(KEY, [b"spec", b"bytes"], condition=IfAbsent(), metadata=METADATA)
    assert (tmp_path / KEY).read_bytes() == b"specbytes"
    assert files_below(tmp_path) == {KEY, ".store/layout"}
    await store.close()


@pytest.mark.parametrize("size", [10, 2 << 20])
async def test_a_put_leaves_the_room_that_is_kept_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Small and large ones take different ways to the disk, and a replacement another one."""
    kept, blocks = 5 << 20, [0]
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_frsize=1, f_bavail=blocks[0]))
    store = open_store(StoreConfig(kind="dir", directory=tmp_path, kept_bytes=kept))
    blocks[0] = kept + size
    etag = await store.put(KEY, [bytes(size)], condition=IfAbsent())
    blocks[0] -= 1
    for condition in (IfAbsent(), IfMatch(etag), None):
        with pytest.raises(StoreFull, match=f"{kept} are kept for others"):
            await store.put(f"{KEY}-2", [bytes(size)], condition=condition)
    assert files_below(tmp_path) == {KEY, ".store/layout"}
    assert await store.delete(KEY, if_match=etag), "a deletion makes room"
    await store.close()


async def test_nothing_is_made_before_the_first_request(tmp_path: Path) -> None:
    store = open_store(StoreConfig(kind="dir", directory=tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    await store.probe()
    await store.close()


async def test_another_store_on_the_same_directory_goes_on_where_the_first_stopped(
    tmp_path: Path, directory_attributes: bool
) -> None:
    first = DirectoryStore(tmp_path, attributes=directory_attributes)
    etag = await first.put(KEY, [b"x"], condition=IfAbsent(), metadata=METADATA)
    await first.close()
    second = DirectoryStore(tmp_path, attributes=directory_attributes)
    info = await second.head(KEY)
    assert info is not None
    assert (info.etag, dict(info.metadata)) == (etag, METADATA)
    await second.close()


async def lay_out(root: Path, *, attributes: bool) -> None:
    store = DirectoryStore(root, attributes=attributes)
    await store.probe()
    await store.close()


async def test_of_several_processes_exactly_one_creates_each_key(
    tmp_path: Path, directory_attributes: bool
) -> None:
    await lay_out(tmp_path, attributes=directory_attributes)
    writers = [start_writer(tmp_path, "race", n) for n in range(4)]
    outputs = [(await asyncio.to_thread(writer.communicate))[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4
    won = sorted(int(word) for output in outputs for word in output)
    assert won == list(range(200))
    await assert_all_whole(tmp_path, minimum=200)


async def test_kill_9_at_any_moment_leaves_whole_objects_with_their_own_records(
    tmp_path: Path, directory_attributes: bool
) -> None:
    await lay_out(tmp_path, attributes=directory_attributes)
    source = random.Random(7)
    deadline = time.monotonic() + 3
    rounds = 0
    while rounds < 3 or time.monotonic() < deadline:
        writers = [start_writer(tmp_path, "chaos", source.randrange(1 << 30)) for _ in range(2)]
        try:
            for writer in writers:
                await asyncio.to_thread(wait_turns, writer, source.randrange(1, 200))
        finally:
            for writer in writers:
                writer.kill()
                writer.communicate()
        await assert_all_whole(tmp_path, minimum=0)
        rounds += 1
    assert names_in(tmp_path / ".store/torn") == []


def wait_turns(writer: subprocess.Popen[bytes], turns: int) -> None:
    assert writer.stdout is not None
    for _ in range(turns):
        assert writer.stdout.readline() == b"turn\n"


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def assert_all_whole(root: Path, *, minimum: int) -> None:
    store = DirectoryStore(root)
    seen = 0
    async for listed in store.list("ns/"):
        info = await store.head(listed.key)
        assert info is not None
        attempt = info.metadata["kfs-attempt"].encode()
        data = await store.get(listed.key, if_match=info.etag)
        assert len(data) == info.size == listed.size
        assert data == attempt * (len(data) // 32)
        assert (root / listed.key).read_bytes() == data
        seen += 1
    assert seen >= minimum
    await store.close()


async def test_each_object_has_one_link_and_a_refused_put_leaves_none(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path, attributes=False)
    etag = await store.put(KEY, [b"1"], condition=IfAbsent())
    for condition in (IfMatch(etag), None):
        await store.put(KEY, [b"2"], condition=condition)
    for refused in (IfAbsent(), IfMatch(etag)):
        with pytest.raises(PreconditionFailed):
            await store.put(KEY, [b"3"], condition=refused)
    name = KEY.rpartition("/")[2]
    assert names_in(tmp_path / ".store/meta/default/orders/0") == [
        f"{name}.{(tmp_path / KEY).stat().st_ino:x}"
    ]
    await store.close()


async def test_a_reader_that_opened_replaced_bytes_looks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path, attributes=False)
    await store.put(KEY, [b"old"], metadata={"kfs-epoch": "1"})
    writer = DiskTree(str(tmp_path), lock_wait_s=1)
    read = LinkRecords.read

    def replaced_just_before(tree: LinkRecords, key: str, fd: int) -> Record | None:
        monkeypatch.setattr(LinkRecords, "read", read)
        writer.put(key, [b"newer"], None, {"kfs-epoch": "2"})
        return read(tree, key, fd)

    monkeypatch.setattr(LinkRecords, "read", replaced_just_before)
    info = await store.head(KEY)
    assert info is not None
    assert (info.size, dict(info.metadata)) == (5, {"kfs-epoch": "2"})
    assert len(names_in(tmp_path / ".store/meta/default/orders/0")) == 1
    writer.close()
    await store.close()


async def test_bytes_changed_in_place_have_another_etag(tmp_path: Path, directory_attributes: bool) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    etag = await store.put(KEY, [b"0123456789"], condition=IfAbsent(), metadata=METADATA)
    with (tmp_path / KEY).open("r+b") as file:
        file.write(b"X")
    with pytest.raises(PreconditionFailed):
        await store.get(KEY, if_match=etag)
    info = await store.head(KEY)
    assert info is not None
    assert info.etag != etag
    await store.close()


def copy_tree(command: str, old: Path, new: Path) -> None:
    if command == "tar":
        shutil.unpack_archive(shutil.make_archive(str(new), "tar", old), new)
    else:
        subprocess.run([*command.split(), str(old), str(new)], check=True)


async def fill(root: Path, *, attributes: bool) -> dict[str, str]:
    store = DirectoryStore(root, attributes=attributes)
    etags = {}
    for n in range(3):
        key = KEY.replace("0.kfs", f"{n}.kfs")
        etags[key] = await store.put(key, [b"body", b"%d" % n], condition=IfAbsent(), metadata={"n": str(n)})
    await store.close()
    return etags


async def assert_filled(store: DirectoryStore, etags: dict[str, str]) -> None:
    for n, (key, etag) in enumerate(etags.items()):
        info = await store.head(key)
        assert info is not None
        assert (info.etag, dict(info.metadata)) == (etag, {"n": str(n)})
        assert await store.get(key, if_match=etag) == b"body%d" % n


@pytest.mark.parametrize("command", ["cp -a", "cp -r", "tar"])
async def test_a_copied_directory_with_links_keeps_etags_and_metadata(tmp_path: Path, command: str) -> None:
    etags = await fill(tmp_path / "old", attributes=False)
    copy_tree(command, tmp_path / "old", tmp_path / "new")
    copy = DirectoryStore(tmp_path / "new")
    for _ in range(2):  # the first time, records are adopted; then they are there
        await assert_filled(copy, etags)
    await copy.close()


async def test_a_directory_copied_with_its_attributes_keeps_etags_and_metadata(
    tmp_path: Path, directory_attributes: bool
) -> None:
    etags = await fill(tmp_path / "old", attributes=directory_attributes)
    copy_tree("cp -a", tmp_path / "old", tmp_path / "new")
    copy = DirectoryStore(tmp_path / "new")
    await assert_filled(copy, etags)
    await copy.close()


@pytest.mark.parametrize("directory_attributes", [True], indirect=True)
async def test_a_directory_copied_without_its_attributes_is_refused_with_advice(
    tmp_path: Path, directory_attributes: bool
) -> None:
    await fill(tmp_path / "old", attributes=directory_attributes)
    copy_tree("cp -r", tmp_path / "old", tmp_path / "new")
    copy = DirectoryStore(tmp_path / "new")
    with pytest.raises(StoreRefused, match="cp -a"):
        await copy.probe()
    with pytest.raises(StoreRefused, match="extended attributes"):
        await copy.get(KEY)
    await copy.close()


async def test_a_directory_of_a_later_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".store").mkdir()
    (tmp_path / ".store/layout").write_text("records in the cloud\n")
    store = DirectoryStore(tmp_path)
    with pytest.raises(StoreRefused, match="another version"):
        await store.probe()
    await store.close()


async def test_the_layout_stays_as_it_was_made(tmp_path: Path) -> None:
    etags = await fill(tmp_path, attributes=False)
    store = DirectoryStore(tmp_path, attributes=True)
    await assert_filled(store, etags)
    await store.close()


async def test_a_file_put_there_by_hand_is_an_object_without_metadata(
    tmp_path: Path, directory_attributes: bool
) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    await store.probe()
    (tmp_path / "default").mkdir()
    (tmp_path / "default/foreign").write_bytes(b"foreign")
    info = await store.head("default/foreign")
    assert info is not None
    assert (info.size, dict(info.metadata)) == (7, {})
    assert await store.delete("default/foreign", if_match=info.etag)
    await store.close()


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "../a", "a/../b", "./a", ".store/meta/a", "a\0b", "a/" + "x" * 231]
)
async def test_a_key_that_leaves_the_tree_is_refused(tmp_path: Path, key: str) -> None:
    store = DirectoryStore(tmp_path / "root")
    requests = (
        lambda: store.put(key, [b"x"]),
        lambda: store.get(key),
        lambda: store.head(key),
        lambda: store.delete(key),
    )
    for request in requests:
        with pytest.raises(StoreRefused):
            await request()
    await store.close()


async def test_a_key_below_an_object_or_above_one_is_refused(
    tmp_path: Path, directory_attributes: bool
) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    await store.put("ns/a", [b"x"])
    with pytest.raises(StoreRefused):
        await store.put("ns/a/b", [b"x"], condition=IfAbsent())
    for condition in (IfAbsent(), None):
        with pytest.raises(StoreRefused):
            await store.put("ns", [b"x"], condition=condition)
    assert await store.head("ns/a/b") is None
    await store.close()


async def test_more_metadata_than_s3_would_take_is_refused(
    tmp_path: Path, directory_attributes: bool
) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    await store.put("ns/a", [b"x"], metadata={"k": "v" * 2047})
    with pytest.raises(StoreRefused):
        await store.put("ns/b", [b"x"], metadata={"k": "v" * 2048})
    await store.close()


async def test_the_folders_of_deleted_objects_go(tmp_path: Path, directory_attributes: bool) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    await store.put(KEY, [b"x"])
    await store.put("default/other/0/k", [b"x"])
    assert await store.delete(KEY)
    assert not (tmp_path / "default/orders").exists()
    assert not (tmp_path / ".store/meta/default/orders").exists()
    assert (tmp_path / "default/other/0/k").exists()
    await store.close()


async def test_without_unnamed_files_everything_works_and_nothing_is_left_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, directory_attributes: bool
) -> None:
    monkeypatch.setattr(Stage, "_can_be_unnamed", lambda self: False)
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    etag = await store.put(KEY, [b"a"], condition=IfAbsent(), metadata=METADATA)
    with pytest.raises(PreconditionFailed):
        await store.put(KEY, [b"b"], condition=IfAbsent())
    etag = await store.put(KEY, [b"c"], condition=IfMatch(etag), metadata=METADATA)
    info = await store.head(KEY)
    assert info is not None
    assert (info.etag, dict(info.metadata)) == (etag, METADATA)
    assert names_in(tmp_path / ".store/stage") == []
    await store.close()


async def test_a_lock_that_another_process_does_not_give_back_is_waited_for_with_an_end(
    tmp_path: Path, directory_attributes: bool
) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes, lock_wait_s=0.05)
    etag = await store.put(KEY, [b"a"])
    with KeyLocks(str(tmp_path / ".store/locks"), wait_s=1).held(KEY):
        with pytest.raises(StoreUnavailable):
            await store.delete(KEY, if_match=etag)
        for condition in (IfMatch(etag), None):
            with pytest.raises(StoreUnavailable):
                await store.put(KEY, [b"c"], condition=condition)
        await store.put("default/elsewhere", [b"b"], condition=IfAbsent())
    assert await store.delete(KEY, if_match=etag)
    await store.close()


async def test_a_temporary_store_is_gone_when_it_is_closed() -> None:
    store = open_store(StoreConfig(kind="memory"))
    assert isinstance(store, DirectoryStore)
    await store.put(KEY, [b"x"])
    root = store.root
    assert (root / KEY).exists()
    await store.close()
    assert not root.exists()


async def test_a_store_that_was_never_used_closes(tmp_path: Path, directory_attributes: bool) -> None:
    await DirectoryStore(tmp_path, attributes=directory_attributes).close()
    assert names_in(tmp_path) == []


def test_the_store_satisfies_the_port(tmp_path: Path, directory_attributes: bool) -> None:
    store: ObjectStore = DirectoryStore(tmp_path, attributes=directory_attributes)
    assert not store.bills_requests
