"""CPU per request of a bare echo service over the stream: the cost of the hop for every Kafka request.

    python -m bench.streams [--seconds 3] [--tls]

Prints microseconds of CPU per request in the service and in the caller, and the payload MB/s. With `--tls` the same
follows with mutual TLS, as between processes that have certificates.
"""

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import grpc.aio
import uvloop
from kafscale.runtime.grpc_identity import Dial, GrpcIdentity, PemFiles, plain
from kafscale.runtime.memory_tuning import MALLOC_ENV
from kafscale.runtime.stream.client import StreamClient
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.stream.options import SERVER_OPTIONS, Stream
from kafscale.runtime.stream.server import InboundRequest, StreamServer
from kafscale.testkit.authority import Authority

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


def identity_in(folder: Path, role: str) -> GrpcIdentity:
    """`Authority.role` has written its files."""
    name = f"{role}.kafscale.internal"
    return GrpcIdentity(PemFiles(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem"))


async def serve(folder: Path | None) -> None:
    """`folder`: with the certificates; None without TLS."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    streams = StreamServer(bulk={PRODUCE: produce, FETCH: fetch}, control={PRODUCE: cpu_asked})
    streams.add_to(server)
    if folder is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        streams.only_front_doors = True
        port = server.add_secure_port("127.0.0.1:0", identity_in(folder, "produce").server_credentials())
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


async def measure(port: int, seconds: float, dial: Dial) -> None:
    target = f"127.0.0.1:{port}"
    bulk = StreamClient(target, kind=Stream.BULK, dial=dial)
    control = StreamClient(target, kind=Stream.CONTROL, dial=dial)
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


def measure_apart(seconds: float, folder: Path | None) -> None:
    """The service runs in a process of its own."""
    command = [sys.executable, "-m", "bench.streams", "--serve", *([] if folder is None else [str(folder)])]
    dial = plain if folder is None else identity_in(folder, "frontdoor").dial("produce")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        uvloop.run(measure(int(service.stdout.readline()), seconds, dial))
        service.communicate("")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", nargs="?", const="", metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--tls", action="store_true")
    args = parser.parse_args()
    if args.serve is not None:
        uvloop.run(serve(Path(args.serve) if args.serve else None))
        return
    if "MALLOC_TOP_PAD_" not in os.environ:
        command = [sys.executable, "-m", "bench.streams", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **MALLOC_ENV})
    measure_apart(args.seconds, None)
    if args.tls:
        with tempfile.TemporaryDirectory() as folder:
            authority = Authority(Path(folder))
            for role in ("frontdoor", "produce"):
                authority.role(role)
            print("mutual TLS")
            measure_apart(args.seconds, Path(folder))


if __name__ == "__main__":
    main()
