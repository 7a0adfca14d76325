"""A produce service that echoes, in a process of its own: `half_open_server.py CERTIFICATE KEY CA [renewing]`.

It prints its port, and ends with its standard input. If gRPC crashes, only this process ends. `renewing`: it has a new
certificate for each connection, and prints a line each time.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from kafscale.runtime.clock import LoopWatch, SystemClock
from kafscale.runtime.grpc_identity import GrpcIdentity, PemFiles, Pems
from kafscale.runtime.grpc_server import GrpcFace
from kafscale.runtime.health import Health
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.service import ServiceParts
from stream_harness import echo


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Renewing(GrpcIdentity):
    def current(self) -> Pems:
        say("renewed")
        return replace(super().current())


async def serve(identity: GrpcIdentity) -> None:
    clock = SystemClock()
    face = GrpcFace(
        health=Health("produce"),
        clock=clock,
        watch=LoopWatch(clock),
        memory_bytes=1 << 26,
        metrics=Metrics("produce"),
    )
    say(await face.start("127.0.0.1:0", identity))
    face.offer(ServiceParts(bulk={0: echo}), None)
    await asyncio.to_thread(sys.stdin.read)
    await face.stop()


if __name__ == "__main__":
    certificate, key, ca, *more = sys.argv[1:]
    kind = Renewing if more else GrpcIdentity
    asyncio.run(serve(kind(PemFiles(Path(certificate), Path(key), Path(ca)))))
