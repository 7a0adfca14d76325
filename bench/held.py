"""`python -m bench.held --minutes 60`: many clients for an hour. Does memory stay level, and what does a bystander pay?

5,000 connections that ask for the metadata of a topic every five minutes, 1,000 groups with a member (half of each
protocol) that commits, 10,000 partitions of which a random one gets a record 50 times a second, and 64 readers of old
records that take 16 KiB a second from their sockets. A bystander produces, reads, connects and asks all the time. For
each window it prints the resident memory and the CPU of each role, what the clients did and were refused, and the
bystander's p50 and p99. Nothing is asserted: the figures go into docs/proof.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from kafscale.client.admin_client import Client
from kafscale.client.topics import create_topic
from kafscale.wire.headers import encode_request_header
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import fetch, metadata, produce

from bench.results import ROLES
from bench.spent import cpu_of
from bench.systems import KafScale, on_directory
from e2e.harness.bystander import Bystander
from e2e.harness.group_members import Classic, Modern, commit
from e2e.harness.raw import Raw, Wire, framed
from e2e.harness.requests import FETCH_V, METADATA_V, PRODUCE_V, TOPIC, batch, send
from e2e.harness.services import until

WIDE_PARTITIONS: Final = 100
OLD: Final = "old"
OLD_BYTES: Final = 64 << 20
OLD_BATCH: Final = 900_000
METADATA_EVERY_S: Final = 300.0
BEAT_EVERY_S: Final = 3.0
COMMIT_EVERY: Final = 10  # beats
WRITES_PER_S: Final = 50.0
READ_BYTES: Final = 16 << 10
READ_EVERY_S: Final = 1.0
FETCH_BYTES: Final = 8 << 20
OPENED_AT_ONCE: Final = 50
RETRY_S: Final = 1.0
ANSWER_S: Final = 60.0
MB: Final = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    connections: int
    groups: int
    partitions: int
    readers: int

    @property
    def topics(self) -> list[str]:
        return [f"held-{number:03}" for number in range(self.partitions // WIDE_PARTITIONS)]


@dataclass(slots=True)
class Clients:
    """`did`: what was answered, by kind, and `error …` for what was not."""

    bootstrap: str
    size: Size
    did: Counter[str] = field(default_factory=Counter)
    _opening: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(OPENED_AT_ONCE))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.size.connections):
                tasks.create_task(self._over_and_over(number, self._idle))
            for number in range(self.size.groups):
                tasks.create_task(self._over_and_over(number, self._member))
            for number in range(self.size.readers):
                tasks.create_task(self._over_and_over(number, self._slow_reader))
            tasks.create_task(self._over_and_over(0, self._writer))

    async def _over_and_over(self, number: int, live: Callable[[Wire, int], Awaitable[None]]) -> None:
        """On a new connection after each error."""
        while True:
            try:
                async with self._opening:
                    wire = await Wire.open(self.bootstrap, f"{live.__name__}-{number}")
                self.did["connected"] += 1
                try:
                    await live(wire, number)
                finally:
                    wire.close()
            except (OSError, EOFError, TimeoutError) as error:
                self.did[f"error {live.__name__.strip('_')} {type(error).__name__}"] += 1
            await asyncio.sleep(RETRY_S)

    async def _idle(self, wire: Wire, number: int) -> None:
        topic = metadata.MetadataRequestTopic(name=self.size.topics[number % len(self.size.topics)])
        pause_s = random.uniform(0, METADATA_EVERY_S)
        while True:
            async with asyncio.timeout(ANSWER_S):
                answer = await wire.ask(metadata, METADATA_V, metadata.MetadataRequest(topics=[topic]))
            self._count("metadata", answer.topics[0].error_code)
            await asyncio.sleep(pause_s)
            pause_s = METADATA_EVERY_S

    async def _member(self, wire: Wire, number: int) -> None:
        topic, group = self.size.topics[number % len(self.size.topics)], f"group-{number:04}"
        name = f"member-{number}-{random.random()}"
        member = Modern(wire, group, topic, name) if number % 2 else Classic(wire, group)
        await asyncio.sleep(random.uniform(0, BEAT_EVERY_S))
        beats, is_in = 0, False
        while True:
            async with asyncio.timeout(ANSWER_S):
                code = await (member.beat() if is_in or isinstance(member, Modern) else _join(member))
                self._count("heartbeat" if is_in else "join", code)
                is_in = code == 0
                beats += is_in
                if is_in and beats % COMMIT_EVERY == 0:
                    self._count("commit", await commit(member, topic, beats))
            await asyncio.sleep(BEAT_EVERY_S)

    async def _writer(self, wire: Wire, _number: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._write(wire))
                await asyncio.sleep(random.expovariate(WRITES_PER_S))

    async def _write(self, wire: Wire) -> None:
        part = produce.ProduceRequestPartition(index=random.randrange(WIDE_PARTITIONS), records=batch())
        topic = produce.ProduceRequestTopic(name=random.choice(self.size.topics), partition_data=[part])
        request = produce.ProduceRequest(
            transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[topic]
        )
        async with asyncio.timeout(ANSWER_S):
            answer = await wire.ask(produce, PRODUCE_V, request)
        self._count("produce", answer.responses[0].partition_responses[0].error_code)

    async def _slow_reader(self, wire: Wire, number: int) -> None:
        """Asks for 8 MiB and takes READ_BYTES of them every READ_EVERY_S, so the rest waits at the server."""
        wanted = fetch.FetchRequestPartition(
            partition=0, fetch_offset=number % 8, partition_max_bytes=FETCH_BYTES
        )
        request = fetch.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[fetch.FetchRequestTopic(topic=OLD, partitions=[wanted])],
        )
        body = b"".join(fetch.encode_request(request, FETCH_V))
        header = encode_request_header(fetch.API_KEY, FETCH_V, 1, wire.client_id)
        # The kernel would else take megabytes for a reader that takes none.
        wire.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_BYTES)
        while True:
            wire.writer.write(framed(header + body))
            left = int.from_bytes(await wire.reader.readexactly(4), "big")
            self.did["answers begun for slow readers"] += 1
            while left:
                async with asyncio.timeout(ANSWER_S):
                    part = await wire.reader.read(min(left, READ_BYTES))
                if not part:
                    raise EOFError
                left -= len(part)
                self.did["KiB taken by slow readers"] += len(part) >> 10
                await asyncio.sleep(READ_EVERY_S)

    def _count(self, what: str, code: int) -> None:
        self.did[what if not code else f"{what} answered {code}"] += 1


async def _join(member: Classic) -> int:
    """A join without an id is answered with an id, and is sent once more."""
    code = await member.join()
    if code and member.member_id:
        code = await member.join()
    if code == 0:
        code, _ = await member.sync(dict.fromkeys(member.members, b"part"))
    return code


def prepare(bootstrap: str, size: Size) -> None:
    client = Client(bootstrap)
    for name in size.topics:
        create_topic(client, name, WIDE_PARTITIONS, {})
    for name in (OLD, TOPIC):
        create_topic(client, name, 1, {})
    with Raw.to(bootstrap) as raw:
        for _ in range(OLD_BYTES // OLD_BATCH):
            _send_old(raw)


def _send_old(raw: Raw) -> None:
    records = build_batch([Record(timestamp=1_700_000_000_000, value=os.urandom(OLD_BATCH))])
    until(f"{OLD} takes records", lambda: send(raw, records, topic=OLD) == 0)


def window(
    system: KafScale, before: Mapping[str, float], bystander: Bystander, clients: Clients
) -> dict[str, float]:
    """Prints a row; the CPU seconds until now."""
    now = {role: cpu_of(pids) for role, pids in system.processes().items()}
    memory = system.memory()
    print(
        f"| {time.strftime('%H:%M')} | "
        + " | ".join(
            f"{memory[role] / MB:.0f}, {now.get(role, 0) - before.get(role, 0):.0f}" for role in ROLES
        )
        + f" | {now['others'] - before['others']:.0f} | "
        + "; ".join(
            f"{kind} {_quantiles(times)}" for kind, times in sorted(bystander.seconds.items()) if times
        )
        + f" | {os.getloadavg()[0]:.1f} | {dict(sorted(clients.did.items()))} |",
        flush=True,
    )
    for times in bystander.seconds.values():
        times.clear()
    clients.did.clear()
    return now


def _quantiles(seconds: list[float]) -> str:
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return f"{p50:.0f}/{p99:.0f}"


async def held(system: KafScale, size: Size, minutes: float, window_s: float) -> None:
    clients, bystander = Clients(system.bootstrap, size), Bystander(system.bootstrap)
    print(
        "| time | "
        + " | ".join(f"{role}: MB, CPU s" for role in ROLES)
        + " | others: CPU s | bystander: p50/p99 ms | load | clients |"
    )
    print("|---" * (len(ROLES) + 5) + "|")
    await asyncio.to_thread(bystander.start)
    running = asyncio.ensure_future(clients.run())
    before = {role: cpu_of(pids) for role, pids in system.processes().items()}
    end_s = time.monotonic() + minutes * 60
    while time.monotonic() < end_s:
        await asyncio.wait((running,), timeout=window_s)
        if running.done():
            running.result()
        before = window(system, before, bystander, clients)
    running.cancel()
    await asyncio.wait((running,))
    await asyncio.to_thread(bystander.stop)
    print(f"bystander's errors: {Counter(bystander.errors)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--window", type=float, default=300.0, help="seconds between two rows")
    parser.add_argument("--connections", type=int, default=5_000)
    parser.add_argument("--groups", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--readers", type=int, default=64)
    options = parser.parse_args()
    size = Size(
        connections=options.connections,
        groups=options.groups,
        partitions=options.partitions,
        readers=options.readers,
    )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="kafscale-held-") as folder:
        system = on_directory(Path(folder) / "data")
        system.start()
        try:
            prepare(system.bootstrap, size)
            asyncio.run(held(system, size, options.minutes, options.window))
        finally:
            system.stop()


if __name__ == "__main__":
    main()
