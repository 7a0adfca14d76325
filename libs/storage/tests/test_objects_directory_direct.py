"""Large bodies past the page cache: the same bytes and the same laws, whatever the kernel makes of the writes."""

import asyncio
import errno
import fcntl
import logging
import os
import random
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from kafscale.storage.objects import (
    Condition,
    IfAbsent,
    IfMatch,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from kafscale.storage.objects.directory import DirectoryStore
from kafscale.storage.objects.disk_direct import (
    BLOCK_BYTES,
    BUFFER_BYTES,
    BUFFERS_MAX,
    DIRECT_BYTES_MIN,
    DirectWrites,
)
from kafscale.storage.objects.disk_files import write_body

KEY = "default/orders/0/segment-00000000000000000000.kfs"
SIZE = BUFFER_BYTES + 5 * BLOCK_BYTES + 77
BODY = random.Random(1).randbytes(SIZE)
Pwrite = Callable[[int, memoryview, int], int]


def is_direct(fd: int) -> bool:
    return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)


class Kernel:
    """Replaces the two writes; `pwrite` is what the one with O_DIRECT does. Counts bytes by the way that they took."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, pwrite: Pwrite = os.pwrite) -> None:
        self.direct_bytes = 0
        self.cached_bytes = 0
        self.threads: set[int] = set()
        self._pwrite = pwrite
        self._pwritev = os.pwritev
        monkeypatch.setattr(os, "pwrite", self._write_directly)
        monkeypatch.setattr(os, "pwritev", self._write_to_cache)

    def _write_directly(self, fd: int, chunk: memoryview, at: int) -> int:
        assert is_direct(fd)
        assert len(chunk) % BLOCK_BYTES == at % BLOCK_BYTES == 0
        self.threads.add(threading.get_ident())
        written = self._pwrite(fd, chunk, at)
        self.direct_bytes += written
        return written

    def _write_to_cache(self, fd: int, parts: list[memoryview], at: int) -> int:
        assert not is_direct(fd)
        written = self._pwritev(fd, parts, at)
        self.cached_bytes += written
        return written


def failing(error: int, *, after: int) -> Pwrite:
    """A write that fails from the byte `after` on."""
    pwrite = os.pwrite

    def write(fd: int, chunk: memoryview, at: int) -> int:
        if at >= after:
            raise OSError(error, os.strerror(error))
        return pwrite(fd, chunk, at)

    return write


def around(size: int) -> st.SearchStrategy[int]:
    return st.integers(size - 2, size + 2)


SIZES = st.one_of(
    around(DIRECT_BYTES_MIN),
    around(DIRECT_BYTES_MIN + BLOCK_BYTES),
    around(BUFFER_BYTES),
    around(2 * BUFFER_BYTES + BLOCK_BYTES),
    st.integers(0, 3 * BUFFER_BYTES),
)


@given(size=SIZES, cuts=st.lists(st.integers(0, 3 * BUFFER_BYTES), max_size=6), seed=st.integers(0, 99))
def test_bytes_and_etag_are_those_of_the_body_for_every_size_and_split(
    size: int, cuts: list[int], seed: int
) -> None:
    data = random.Random(seed).randbytes(size)
    edges = [0, *sorted(min(cut, size) for cut in cuts), size]
    body = [memoryview(data)[start:stop] for start, stop in zip(edges, edges[1:], strict=False)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        kernel = Kernel(patch)
        fd = os.open(f"{folder}/f", os.O_CREAT | os.O_RDWR)
        written = write_body(fd, body, DirectWrites(folder))
        assert not is_direct(fd)
        os.close(fd)
        assert Path(folder, "f").read_bytes() == data
    assert written == (xxhash.xxh3_128(data).hexdigest(), size)
    assert kernel.direct_bytes == (size - size % BLOCK_BYTES if size >= DIRECT_BYTES_MIN else 0)
    assert kernel.cached_bytes == size - kernel.direct_bytes


@pytest.mark.parametrize("limit", [0, 1, 512, BLOCK_BYTES, BUFFER_BYTES - 1])
def test_a_direct_write_that_the_kernel_cuts_short_is_continued_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    pwrite = os.pwrite

    def cut(fd: int, chunk: memoryview, at: int) -> int:
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags & ~os.O_DIRECT)  # a real one refuses parts of blocks
        written = pwrite(fd, chunk[:limit], at)
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)
        return written

    kernel = Kernel(monkeypatch, cut)
    fd = os.open(tmp_path / "f", os.O_CREAT | os.O_RDWR)
    assert write_body(fd, [BODY], DirectWrites(str(tmp_path))) == (xxhash.xxh3_128(BODY).hexdigest(), SIZE)
    os.close(fd)
    assert (tmp_path / "f").read_bytes() == BODY
    assert (kernel.direct_bytes, kernel.cached_bytes) == (limit, SIZE - limit)


@pytest.mark.parametrize("refused_at", ["open", 0, BUFFER_BYTES])
async def test_a_file_system_that_refuses_is_asked_once_and_the_log_says_so(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refused_at: int | str,
) -> None:
    store = DirectoryStore(tmp_path)
    await store.probe()
    asked: list[int] = []
    if refused_at == "open":
        set_flags = fcntl.fcntl

        def refuse(fd: int, command: int, argument: int = 0) -> int:
            if command == fcntl.F_SETFL and argument & os.O_DIRECT:
                asked.append(fd)
                raise OSError(errno.EINVAL, "Invalid argument")
            return set_flags(fd, command, argument)

        monkeypatch.setattr(fcntl, "fcntl", refuse)
    else:
        refuse_write = failing(errno.EINVAL, after=int(refused_at))

        def refuse_late(fd: int, chunk: memoryview, at: int) -> int:
            asked.append(at)
            return refuse_write(fd, chunk, at)

        Kernel(monkeypatch, refuse_late)
    with caplog.at_level(logging.INFO, "kafscale.storage.objects.disk_direct"):
        for n in range(3):
            await store.put(f"{KEY}.{n}", [BODY], condition=IfAbsent())
            assert await store.get(f"{KEY}.{n}") == BODY
    assert len(asked) == (2 if refused_at == BUFFER_BYTES else 1)
    assert len(caplog.messages) == 1
    assert str(tmp_path) in caplog.messages[0]
    await store.close()


@pytest.mark.parametrize(
    ("error", "raised"), [(errno.ENOSPC, StoreFull), (errno.EDQUOT, StoreFull), (errno.EIO, StoreUnavailable)]
)
@pytest.mark.parametrize("after", [0, BUFFER_BYTES])
async def test_a_direct_write_that_fails_shows_nothing_and_the_store_serves_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    directory_attributes: bool,
    error: int,
    raised: type[StoreError],
    after: int,
) -> None:
    store = DirectoryStore(tmp_path, attributes=directory_attributes)
    etag = await store.put(f"{KEY}.old", [b"old"])
    conditions: tuple[tuple[str, Condition], ...] = (
        (KEY, IfAbsent()),
        (KEY, None),
        (f"{KEY}.old", IfMatch(etag)),
    )
    with monkeypatch.context() as patch:
        Kernel(patch, failing(error, after=after))
        for _ in range(BUFFERS_MAX):  # a buffer that was lost would be missed
            for key, condition in conditions:
                with pytest.raises(raised):
                    await store.put(key, [BODY], condition=condition)
    assert await store.head(KEY) is None
    assert [info.key async for info in store.list("default/")] == [f"{KEY}.old"]
    assert await store.get(f"{KEY}.old", if_match=etag) == b"old"
    assert list((tmp_path / ".store/stage").iterdir()) == []
    kernel = Kernel(monkeypatch)
    await store.put(KEY, [BODY], condition=IfAbsent())
    assert (kernel.direct_bytes, await store.get(KEY)) == (SIZE - SIZE % BLOCK_BYTES, BODY)
    await store.close()


async def test_the_event_loop_does_not_wait_for_direct_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    await store.probe()
    kernel = Kernel(monkeypatch)
    await store.put(KEY, [b"x" * DIRECT_BYTES_MIN], condition=IfAbsent())
    assert kernel.threads
    assert threading.get_ident() not in kernel.threads
    await store.close()


async def test_a_body_that_finds_no_free_buffer_goes_through_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    await store.probe()
    pwrite, gate, taken = os.pwrite, threading.Event(), threading.Semaphore(0)

    def wait(fd: int, chunk: memoryview, at: int) -> int:
        taken.release()
        assert gate.wait(30)
        return pwrite(fd, chunk, at)

    kernel = Kernel(monkeypatch, wait)
    async with asyncio.TaskGroup() as tasks:
        for n in range(BUFFERS_MAX):
            tasks.create_task(store.put(f"{KEY}.{n}", [BODY], condition=IfAbsent()))
        for _ in range(BUFFERS_MAX):
            assert await asyncio.to_thread(taken.acquire, timeout=30)
        await store.put(KEY, [BODY], condition=IfAbsent())
        assert (kernel.direct_bytes, kernel.cached_bytes) == (0, SIZE)
        gate.set()
    for key in (KEY, *(f"{KEY}.{n}" for n in range(BUFFERS_MAX))):
        assert await store.get(key) == BODY
    await store.close()
