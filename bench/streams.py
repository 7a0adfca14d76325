"""CPU per request of a bare echo service over the stream: the cost of the hop for every Kafka request.

    python bench/streams.py [--seconds 3] [--streams 1]

Prints microseconds of CPU per request in the service and in the caller, and the payload MB/s.
"""

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence

import grpc.aio
import uvloop
from kafscale.runtime.memory_tuning import MALLOC_ENV
from kafscale.runtime.stream.client import StreamClient
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.stream.options import SERVER_OPTIONS, Stream
from kafscale.runtime.stream.server import InboundRequest, StreamServer

PRODUCE, FETCH = 0, 1
ANSWER = b"a" * 64
LARGE = memoryview(b"f" * (1 << 20))
CASES: Sequence[tuple[str, int, int, int, int]] = (
    # name, api key, in flight, request bytes, reply bytes
    ("1 KB, 1 in flight", PRODUCE, 1, 1 << 10, 64),
    ("1 KB, 32 in flight", PRODUCE, 32, 1 << 10, 64),
    ("64 KB, 16 in flight", PRODUCE, 16, 64 << 10, 64),
    ("1 MB, 8 in flight", PRODUCE, 8, 1 << 20, 64),
    ("fetch 64 KB, 16 in flight", FETCH, 16, 64, 64 << 10),
    ("fetch 1 MB, 8 in flight", FETCH, 8, 64, 1 << 20),
)


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def produce(request: InboundRequest) -> None:
    request.reply((ANSWER,))


def fetch(request: InboundRequest) -> None:
    request.reply((LARGE[: int.from_bytes(request.body[:4], "big")],))


def cpu_asked(request: InboundRequest) -> None:
    request.reply((int(cpu_s() * 1e6).to_bytes(8, "big"),))


async def serve() -> None:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    streams = StreamServer(bulk={PRODUCE: produce, FETCH: fetch}, control={PRODUCE: cpu_asked})
    streams.add_to(server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(0)


async def drive(bulk: StreamClient, api_key: int, depth: int, body: bytes, seconds: float) -> int:
    meta = RequestMeta(
        connection_id=1, api_key=api_key, api_version=9, listener="PLAINTEXT", client_id="bench"
    )
    end = time.monotonic() + seconds
    done = 0

    async def one(lane: int) -> None:
        nonlocal done
        while time.monotonic() < end:
            await bulk.send(meta, (body,), lane=lane).future
            done += 1

    async with asyncio.TaskGroup() as tasks:
        for lane in range(depth):
            tasks.create_task(one(lane))
    return done


async def measure(port: int, seconds: float, streams: int) -> None:
    target = f"127.0.0.1:{port}"
    bulk = StreamClient(target, kind=Stream.BULK, streams=streams)
    control = StreamClient(target, kind=Stream.CONTROL)
    await bulk.connect()
    asked = RequestMeta(connection_id=1, api_key=PRODUCE, api_version=0)

    async def service_cpu_s() -> float:
        reply = await control.send(asked, ()).future
        return int.from_bytes(reply.body, "big") / 1e6

    print(f"{'':28}{'service us':>12}{'caller us':>12}{'req/s':>10}{'MB/s':>8}")
    for name, api_key, depth, request_bytes, reply_bytes in CASES:
        body = reply_bytes.to_bytes(4, "big") + b"r" * (request_bytes - 4)
        await drive(bulk, api_key, depth, body, 0.3)
        service, caller, began = await service_cpu_s(), cpu_s(), time.monotonic()
        count = await drive(bulk, api_key, depth, body, seconds)
        took = time.monotonic() - began
        service, caller = await service_cpu_s() - service, cpu_s() - caller
        rate = count / took
        mb_s = rate * max(request_bytes, reply_bytes) / 1e6
        print(f"{name:28}{service / count * 1e6:12.1f}{caller / count * 1e6:12.1f}{rate:10.0f}{mb_s:8.0f}")
    await bulk.close()
    await control.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--streams", type=int, default=1)
    args = parser.parse_args()
    if args.serve:
        uvloop.run(serve())
        return
    if "MALLOC_TOP_PAD_" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **MALLOC_ENV})
    command = [sys.executable, __file__, "--serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        uvloop.run(measure(int(service.stdout.readline()), args.seconds, args.streams))
        service.communicate("")


if __name__ == "__main__":
    main()
