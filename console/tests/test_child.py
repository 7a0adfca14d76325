"""Child processes of the console: how they start, talk, and end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from kafscale.console import child as module
from kafscale.console.child import Child, Kept, TooLong

BYTES_MAX = 1_000_000
DONE_S = 60.0
ECHO = """
import os, sys
from kafscale.console.child import give, take
number = 0
while (message := take(sys.stdin.buffer)) is not None:
    if message == b"who":
        give(sys.stdout.buffer, str(os.getpid()).encode())
    elif message == b"end":
        sys.exit(3)
    else:
        give(sys.stdout.buffer, message)
"""


@pytest.fixture(autouse=True)
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module `echo`, for a console whose folder has a module with the name of one of Python's."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "echo.py").write_text(ECHO)
    (tmp_path / "started").mkdir()
    (tmp_path / "started" / "struct.py").write_text("raise SystemExit('a module of the folder')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    monkeypatch.chdir(tmp_path / "started")


@pytest_asyncio.fixture
async def kept() -> AsyncIterator[Kept]:
    found = Kept("echo", BYTES_MAX, quiet=False, first=b"first")
    async with asyncio.timeout(DONE_S):
        yield found
        await found.close()


async def asked(kept: Kept, message: bytes) -> bytes | None:
    async with kept.use() as child:
        await child.send(message)
        return await child.receive()


async def test_a_child_is_kept_and_started_again_after_its_end(kept: Kept) -> None:
    assert await asked(kept, b"who") == b"first"
    async with kept.use() as child:
        first = await child.receive()
    assert await asked(kept, b"who") == first
    async with kept.use() as child:
        await child.send(b"end")
        assert await child.receive() is None
        assert await child.exit_code() == 3
    async with kept.use() as child:
        assert not child.has_ended
        assert await child.receive() == b"first"


async def test_a_child_that_nobody_uses_ends(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    async with kept.use() as child:
        assert await child.receive() == b"first"
        async with kept.use():  # the end of one use does not end the other
            pass
        await child.send(b"still")
        assert await child.receive() == b"still"
    assert await child.receive() is None
    assert await child.exit_code() == 0
    await child.gone()


async def test_the_longest_message_arrives_and_a_longer_one_does_not(kept: Kept) -> None:
    async with kept.use() as child:
        assert await child.receive() == b"first"
        longest = b"x" * BYTES_MAX
        sending = asyncio.create_task(child.send(longest))
        assert await child.receive() == longest
        await sending
        sending = asyncio.create_task(child.send(longest + b"x"))
        with pytest.raises(TooLong):
            await child.receive()
        await kept.end()
        await asyncio.wait([sending])


async def test_a_child_ends_when_its_input_ends() -> None:
    child = await Child.start("echo", BYTES_MAX, quiet=False)
    async with asyncio.timeout(DONE_S):
        child.end_input()
        assert await child.receive() is None
        assert await child.exit_code() == 0
    await child.gone()
