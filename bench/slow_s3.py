"""An S3 server that is far away: a TCP proxy that holds each PUT and each GET for a while.

It reads only the first bytes of each chunk that a client sends. S3 clients do not pipeline, so a chunk that
begins with a method is the start of a request.
"""

from __future__ import annotations

import asyncio
import sys

DELAYS_S = {b"PUT ": 0.020, b"GET ": 0.010, b"HEAD": 0.010, b"DELE": 0.010, b"POST": 0.010}
CHUNK = 1 << 18


async def serve(listen: int, host: str, port: int) -> None:
    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(host, port, limit=CHUNK)
        back = asyncio.create_task(_pump(to_reader, writer, {}))
        try:
            await _pump(reader, to_writer, DELAYS_S)
        finally:
            back.cancel()
            to_writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", listen, limit=CHUNK)
    async with server:
        await server.serve_forever()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delays_s: dict[bytes, float]
) -> None:
    try:
        while data := await reader.read(CHUNK):
            delay_s = delays_s.get(data[:4])
            if delay_s is not None:
                await asyncio.sleep(delay_s)
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        return
    finally:
        writer.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
