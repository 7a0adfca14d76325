"""An S3 server that is far away: a TCP proxy that holds each PUT and each GET for a while.

It reads only the first bytes of each chunk that a client sends. S3 clients do not pipeline, so a chunk that
begins with a method is the start of a request. With a file as last argument it writes there, each second, how many
requests of each method it has seen.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

DELAYS_S = {b"PUT ": 0.020, b"GET ": 0.010, b"HEAD": 0.010, b"DELE": 0.010, b"POST": 0.010}
CHUNK = 1 << 18
WRITE_EVERY_S = 1.0


async def serve(listen: int, host: str, port: int, counts: Path | None = None) -> None:
    seen: Counter[str] = Counter()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(host, port, limit=CHUNK)
        back = asyncio.create_task(_pump(to_reader, writer, {}))
        try:
            await _pump(reader, to_writer, DELAYS_S, seen)
        finally:
            back.cancel()
            to_writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", listen, limit=CHUNK)
    async with server:
        while counts is not None:
            written = counts.with_suffix(".new")
            written.write_text(json.dumps(seen))
            written.rename(counts)
            await asyncio.sleep(WRITE_EVERY_S)
        await server.serve_forever()


async def _pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    delays_s: Mapping[bytes, float],
    seen: Counter[str] | None = None,
) -> None:
    try:
        while data := await reader.read(CHUNK):
            delay_s = delays_s.get(data[:4])
            if delay_s is not None:
                if seen is not None:
                    seen[data[:4].decode().strip()] += 1
                await asyncio.sleep(delay_s)
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        return
    finally:
        writer.close()


if __name__ == "__main__":
    file = Path(sys.argv[4]) if len(sys.argv) > 4 else None
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), file))
