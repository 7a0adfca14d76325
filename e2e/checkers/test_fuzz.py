"""The fuzz accounts for every frame. Each possible fault of a server is planted here and must be found."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import pytest
from kafscale.wire.apis import ApiKey
from kafscale.wire.headers import encode_request_header
from kafscale.wire.schema import api_versions

from e2e.harness.fuzz import BURST, Fuzz, Unaccounted

Answers = Callable[[bytes], bytes | None]
"""The reply to a frame; None closes the connection."""

GOOD = b"".join(api_versions.encode_response(api_versions.ApiVersionsResponse(), 0))
ASKING = encode_request_header(ApiKey.API_VERSIONS, 0, 0)
FRAMES = 2 * BURST


def answered(frame: bytes, body: bytes = GOOD) -> bytes:
    return struct.pack(">i", 4 + len(body)) + frame[4:8] + body


@asynccontextmanager
async def server(answers: Answers, *, closes: bool = True) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                told = answers(await reader.readexactly(size))
                if told is None:
                    break
                writer.write(told)
        except asyncio.IncompleteReadError:
            if not closes:
                await asyncio.Event().wait()
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        yield f"{host}:{port}"


async def run(
    answers: Answers, frame: bytes = ASKING, *, bursts: float = 0.0, torn: float = 0.0, closes: bool = True
) -> dict[str, int]:
    async with server(answers, closes=closes) as bootstrap:
        fuzz = Fuzz(bootstrap, burst_share=bursts, torn_share=torn, answer_timeout_s=0.5)
        await fuzz.send([frame] * FRAMES, Random(1))
        return dict(fuzz.outcomes)


async def is_found(
    reason: str, answers: Answers, *, bursts: float = 0.0, torn: float = 0.0, closes: bool = True
) -> None:
    with pytest.raises(ExceptionGroup) as found:
        await run(answers, bursts=bursts, torn=torn, closes=closes)
    caught, _ = found.value.split(Unaccounted)
    assert caught is not None
    assert reason in str(caught.exceptions[0])


async def test_every_frame_is_counted_once() -> None:
    assert await run(answered) == {"answered": FRAMES}
    assert await run(answered, bursts=1.0) == {"answered": FRAMES}
    assert await run(lambda _: None) == {"closed": FRAMES}


async def test_a_torn_frame_is_closed_at_the_end() -> None:
    assert (await run(answered, torn=1.0))["torn"] == FRAMES
    await is_found("a torn frame is not hung up on", answered, torn=1.0, closes=False)


async def test_an_answer_with_bytes_left_over_is_found() -> None:
    await is_found("left over", lambda frame: answered(frame, GOOD + b"\0"))


async def test_an_answer_to_nothing_that_was_asked_is_found() -> None:
    await is_found("an answer to frame 77", lambda _: answered(struct.pack(">ii", 0, 77)))


async def test_silence_is_found() -> None:
    await is_found("neither answered nor hung up on", lambda _: b"")


async def test_a_frame_that_is_passed_over_is_found() -> None:
    await is_found("passed over", lambda frame: answered(frame) if frame[7] else b"", bursts=1.0)
