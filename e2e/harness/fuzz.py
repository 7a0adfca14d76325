"""Sends mutated frames on many connections at once, and accounts for each frame.

The correlation id of a frame is its number, so an answer names its frame. A Produce may want no answer, so a request
that always has one follows it. Each frame has one of three outcomes: an answer that can be read; no answer, for such
a Produce; or a closed connection. Some frames are sent in bursts. If the connection of a burst closes, the frame is
unknown, and the burst is sent again one by one. Every other outcome is an `Unaccounted`, with the frame in it.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import WireError
from kafscale.wire.headers import RequestHeader, decode_request_header, decode_response_header
from kafscale.wire.schema import module_of

from e2e.harness.mutation import torn

CONNECTIONS = 48
BURST = 16
ANSWER_TIMEOUT_S = 60.0
SENTINEL = 1 << 20
SENTINEL_FRAME = struct.pack(">hhih", ApiKey.API_VERSIONS, 0, SENTINEL, -1)
CORRELATION = slice(4, 8)


class Unaccounted(Exception):
    """A frame that was neither answered as it must be nor hung up on."""

    def __init__(self, reason: str, frame: bytes) -> None:
        super().__init__(f"{reason}: {frame.hex()}")


@dataclass(slots=True)
class Fuzz:
    """Counts of what became of the frames: answered, silent, closed, torn; and bursts that were closed."""

    bootstrap: str
    burst_share: float = 0.02  # of connections
    torn_share: float = 0.02
    answer_timeout_s: float = ANSWER_TIMEOUT_S
    outcomes: Counter[str] = field(default_factory=Counter)
    _again: deque[bytes] = field(default_factory=deque)

    async def send(self, frames: Sequence[bytes], rng: Random) -> None:
        """All of them, in no particular order. A share is sent behind a wrong length, a share in bursts."""
        waiting = deque(frames)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONNECTIONS):
                tasks.create_task(self._work(waiting, rng))

    async def _work(self, waiting: deque[bytes], rng: Random) -> None:
        while waiting or self._again:
            if self._again:
                await self._converse(self._again, 1)
            elif rng.random() < self.torn_share:
                await self._tear(torn(rng, waiting.popleft()))
            else:
                await self._converse(waiting, BURST if rng.random() < self.burst_share else 1)

    async def _converse(self, waiting: deque[bytes], at_once: int) -> None:
        """One connection, until the server closes it or nothing waits."""
        reader, writer = await self._connect()
        try:
            while waiting:
                frames = [waiting.popleft() for _ in range(min(at_once, len(waiting)))]
                writer.write(b"".join(_framed(_numbered(each, at)) for at, each in enumerate(frames)))
                if any(map(_may_be_silent, frames)):
                    writer.write(_framed(SENTINEL_FRAME))
                done = await self._answers(reader, frames)
                if done < len(frames):
                    self._closed_at(frames[done:])
                    return
        finally:
            writer.transport.abort()

    def _closed_at(self, frames: list[bytes]) -> None:
        """The server closed at one of them. What a burst left open is sent again, one by one."""
        if len(frames) == 1:
            self.outcomes["closed"] += 1
        else:
            self.outcomes["bursts"] += 1
            self._again.extend(frames)

    async def _answers(self, reader: asyncio.StreamReader, frames: list[bytes]) -> int:
        """How many frames were dealt with before the server closed, if it did: all of them else."""
        done = 0
        while done < len(frames) or any(map(_may_be_silent, frames)):
            answer = await self._answer(reader, frames[min(done, len(frames) - 1)])
            if answer is None:
                return done
            (number,) = struct.unpack_from(">i", answer)
            at = len(frames) if number == SENTINEL else number
            if not done <= at <= len(frames):
                raise Unaccounted(f"an answer to frame {at} after that to {done - 1}", answer)
            for skipped in frames[done:at]:
                if not _may_be_silent(skipped):
                    raise Unaccounted("passed over", skipped)
                self.outcomes["silent"] += 1
            if number == SENTINEL:
                return len(frames)
            judge(frames[at], answer)
            self.outcomes["answered"] += 1
            done = at + 1
        return done

    async def _answer(self, reader: asyncio.StreamReader, about: bytes) -> bytes | None:
        """The next one, None when the server has closed."""
        try:
            async with asyncio.timeout(self.answer_timeout_s):
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                return await reader.readexactly(size)
        except TimeoutError:
            raise Unaccounted("neither answered nor hung up on", about) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def _tear(self, data: bytes) -> None:
        """After the client's last byte the server must close, whatever it has answered before."""
        reader, writer = await self._connect()
        try:
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(self.answer_timeout_s):
                await reader.read(-1)
        except TimeoutError:
            raise Unaccounted("a torn frame is not hung up on", data) from None
        except ConnectionError:
            self.outcomes["reset"] += 1
        finally:
            writer.transport.abort()
        self.outcomes["torn"] += 1

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.bootstrap.rsplit(":", 1)
        return await asyncio.open_connection(host, int(port))


def _framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def _numbered(frame: bytes, number: int) -> bytes:
    """The frame with a correlation id, if it is long enough to have one."""
    if len(frame) < CORRELATION.stop:
        return frame
    return frame[: CORRELATION.start] + struct.pack(">i", number) + frame[CORRELATION.stop :]


def _may_be_silent(frame: bytes) -> bool:
    return frame[:2] == struct.pack(">h", ApiKey.PRODUCE)


def judge(frame: bytes, answer: bytes) -> None:
    """An answer is one to this frame's API and version, to the last byte."""
    try:
        header, _ = decode_request_header(frame)
        key, version = header.api_key, _answered_version(header)
        _, body_at = decode_response_header(answer, key, version)
        module_of(key).decode_response(answer[body_at:], version)
    except (WireError, KeyError) as wrong:
        raise Unaccounted(f"answered with {answer[:80].hex()} ({wrong})", frame) from wrong


def _answered_version(header: RequestHeader) -> int:
    """ApiVersions in an unknown version is answered in version 0."""
    if header.api_key == ApiKey.API_VERSIONS:
        first, last = module_of(header.api_key).RESPONSE_VERSIONS
        return header.api_version if first <= header.api_version <= last else 0
    return header.api_version
