"""The health check of a container: its exit code is the answer, and it asks nobody but this process's own port."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

READY = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nready\n"
DRAINING = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 9\r\nConnection: close\r\n\r\ndraining\n"


@asynccontextmanager
async def answering(reply: bytes, asked: list[bytes]) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(reply)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def check(port: int, *arguments: str) -> tuple[int, bytes, bytes]:
    """Exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kafscale.runtime.healthcheck", *arguments),
        env={**os.environ, "KAFSCALE_HTTP_LISTEN": f"0.0.0.0:{port}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out, err


@pytest.mark.parametrize(("reply", "code"), [(READY, 0), (DRAINING, 1)])
async def test_ready_is_zero_and_all_else_is_not(reply: bytes, code: int) -> None:
    asked: list[bytes] = []
    async with answering(reply, asked) as port:
        assert await check(port, "/readyz") == (code, reply.partition(b"\r\n\r\n")[2], b"")
    assert asked[0].startswith(b"GET /readyz HTTP/1.1\r\n")


async def test_nobody_there_is_a_sentence() -> None:
    async with answering(READY, []) as port:
        pass
    code, out, err = await check(port)
    assert (code, out) == (1, b"")
    assert f"no page /readyz at port {port}".encode() in err


async def test_who_does_not_speak_http_is_not_well() -> None:
    async with answering(b"\0\0\0\4", []) as port:
        code, _, err = await check(port)
    assert code == 1
    assert b"does not speak HTTP" in err
