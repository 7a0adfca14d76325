"""A PUT's body as a scatter list: large buffers go to the socket as they are, runs of small ones are joined first."""

from collections.abc import Iterator, Sequence
from typing import Final

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload
from kafscale.storage.objects.port import Buffer

_JOIN_BELOW: Final = 1 << 16  # a system call costs more than copying this much


def chunks(parts: Sequence[Buffer]) -> Iterator[Buffer]:
    """The same bytes in pieces worth a system call."""
    small: list[Buffer] = []
    held = 0
    for part in filter(len, parts):
        if len(part) >= _JOIN_BELOW:
            if small:
                yield b"".join(small)
                small, held = [], 0
            yield part
            continue
        small.append(part)
        held += len(part)
        if held >= _JOIN_BELOW:
            yield b"".join(small)
            small, held = [], 0
    if held:
        yield b"".join(small)


class ScatterBody(Payload):
    """It can be sent again, as aiohttp does over a fresh connection."""

    _autoclose = True

    def __init__(self, parts: Sequence[Buffer]) -> None:
        super().__init__(parts)
        self._parts = parts
        self._size = sum(map(len, parts))

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._parts).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for chunk in chunks(self._parts):
            await writer.write(chunk)
