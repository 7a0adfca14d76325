"""`python -m bench.console`: what the console costs in a big cluster (`big_cluster.py`), and what it costs others.

CPU seconds of each screen's first look, the first since the console started and the second: of the console with its
child processes, and of the services with etcd. They hardly depend on other load of the machine. Then `--people` browse
and search, and a bystander produces and reads one record at a time: in turns without and with them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np
import orjson
from confluent_kafka import Consumer, Producer, TopicPartition
from kafscale.client.admin_client import Client
from kafscale.client.topics import create_topic, topic_names
from kafscale.console.guard import MARK, MARKER
from kafscale.runtime.ports import free_port

from bench.big_cluster import READ_TOPICS, TOPICS, WIDE, build
from bench.spent import TICKS_PER_S
from e2e.harness.cluster import Cluster

SERVICES: Final = ("frontdoor", "produce", "fetch", "coordinator", "admin", "upkeep", "etcd")
SCREENS: Final[Mapping[str, Sequence[str]]] = {
    "topics": ("/topics",),
    "topics, searched": ("/topics?q=123",),
    "groups": ("/groups",),
    "groups of a topic": ("/groups?topic=topic-00007",),
    "one group": ("/groups/group-0003",),
    "overview": ("/overview", "/groups?show=risk&rows=1", "/health"),
    "a topic of 1,000 partitions": (f"/topics/{WIDE}",),
    "records of a topic": ("/topics/topic-00005/records", "/topics/topic-00005"),
    "search in a topic": ("/topics/topic-00005/search?text=customer-17",),
    "ACLs": ("/acls",),
    "transactions": ("/transactions",),
    "health": ("/health",),
    "storage": ("/storage",),
    "cost": ("/cost?seconds=1",),
    "SQL": ("select count(*) from topics",),
}
"""What the page asks for when it is opened."""
ASK_AGAIN_S: Final = 1.0
ASKED_MAX: Final = 120
THINK_S: Final = 2.0
BYSTANDER: Final = "bystander"
PACE_S: Final = 0.05


def cpu_of(pid: int) -> float:
    """CPU seconds of a process, of its children that ended, and of those that run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it ended, and its parent counts it
    own_s: float = sum(map(int, fields[11:15])) / TICKS_PER_S
    return own_s + sum(cpu_of(int(child)) for child in children)


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds."""

    console: float
    services: float

    @classmethod
    def by(cls, cluster: Cluster) -> Spent:
        services = sum(cpu_of(pid) for role in SERVICES for pid in cluster.pids(role))
        return cls(sum(map(cpu_of, cluster.pids("console"))), services)

    def since(self, before: Spent) -> str:
        return f"{self.console - before.console:.2f} | {self.services - before.services:.2f}"


async def look(session: aiohttp.ClientSession, what: str) -> int:
    """The status. A report that is being made is asked for again, as the page does; so is what has no answer yet."""
    for _ in range(ASKED_MAX):
        query = what.startswith("select ")
        async with (
            session.post("/api/v1/sql", json={"text": what}, headers={MARKER: MARK})
            if query
            else session.get(f"/api/v1{what}")
        ) as answer:
            body = await answer.read()
        if answer.status == 503:
            await asyncio.sleep(ASK_AGAIN_S)
            continue
        if answer.content_type == "application/json" and answer.ok:
            found = orjson.loads(body)
            if found.get("making") and not found["at_ms"]:
                await asyncio.sleep(ASK_AGAIN_S)
                continue
        return answer.status
    raise SystemExit(f"{what}: no answer after {ASKED_MAX} looks")


async def looks(cluster: Cluster, url: str, only: Sequence[str]) -> None:
    print(
        "| screen | first look: console | services | second look: console | services |\n|---|---|---|---|---|"
    )
    async with aiohttp.ClientSession(url) as session:
        for name, asked in SCREENS.items():
            if only and name not in only:
                continue
            cells = []
            for _ in range(2):
                before = Spent.by(cluster)
                for what in asked:
                    status = await look(session, what)
                    assert status == 200, (what, status)
                cells.append(Spent.by(cluster).since(before))
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


async def person(url: str, number: int, ended: asyncio.Event, statuses: dict[int, int]) -> None:
    """Looks at something else every THINK_S, until `ended`."""
    chosen = random.Random(number)
    async with aiohttp.ClientSession(url) as session:
        while not ended.is_set():
            topic = f"topic-{chosen.randint(1, READ_TOPICS - 1):05}"
            what = chosen.choice(
                (
                    f"/topics?page={chosen.randint(1, TOPICS // 50)}",
                    f"/topics?q={chosen.randint(1, 999)}",
                    f"/topics/{topic}/records",
                    f"/topics/{topic}",
                    "/groups?page=2",
                    f"/groups?topic={topic}",
                    f"/topics/{topic}/search?text=customer-{chosen.randint(1, 99)}",
                )
            )
            status = await look(session, what)
            statuses[status] = statuses.get(status, 0) + 1
            await asyncio.sleep(THINK_S)


def bystander(bootstrap: str, seconds: float) -> tuple[list[float], list[float]]:
    """Milliseconds from produce to the acknowledgement, and to the record in a consumer."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(BYSTANDER, 0), timeout=60)
    consumer.assign([TopicPartition(BYSTANDER, 0, end)])
    acked: list[float] = []
    seen: list[float] = []
    until_s = time.monotonic() + seconds
    try:
        while time.monotonic() < until_s:
            began = time.monotonic()
            producer.produce(BYSTANDER, b"x" * 100)
            assert producer.flush(60) == 0
            acked.append(_ms(began))
            while (message := consumer.poll(60)) is None or message.error():
                pass
            seen.append(_ms(began))
            time.sleep(max(0.0, began + PACE_S - time.monotonic()))
    finally:
        consumer.close()
    return acked, seen


def _ms(began: float) -> float:
    return (time.monotonic() - began) * 1000


async def turns(cluster: Cluster, url: str, people: int, seconds: float, rounds: int) -> None:
    client = Client(cluster.bootstrap)
    if BYSTANDER not in topic_names(client):
        create_topic(client, BYSTANDER, 1, {})
    await asyncio.to_thread(bystander, cluster.bootstrap, 5)
    print("| people | acknowledged, p50 and p99 ms | read | CPU s: console | services | load | answers |")
    print("|---|---|---|---|---|---|---|")
    for number in range(2 * rounds):
        count = people if (number + 1) // 2 % 2 else 0  # A B B A
        ended, statuses = asyncio.Event(), dict[int, int]()
        before = Spent.by(cluster)
        async with asyncio.TaskGroup() as tasks:
            for each in range(count):
                tasks.create_task(person(url, each, ended, statuses))
            acked, seen = await asyncio.to_thread(bystander, cluster.bootstrap, seconds)
            ended.set()
        spent = Spent.by(cluster).since(before)
        print(
            f"| {count} | {_quantiles(acked)} | {_quantiles(seen)} | {spent} | {os.getloadavg()[0]:.0f} | {statuses} |",
            flush=True,
        )


def _quantiles(times: Sequence[float]) -> str:
    p50, p99 = np.percentile(times, [50, 99])
    return f"{p50:.1f}, {p99:.1f} ({len(times)})"


def started(folder: Path, env: Mapping[str, str]) -> Cluster:
    """The cluster of `folder`, which is built if it is not there."""
    cluster = Cluster(data_dir=folder, env=env)
    if not folder.exists():
        cluster.start()
        cluster.stop()
        asyncio.run(build(folder))
    cluster.start()
    return cluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="of the cluster; it is kept for the next run")
    parser.add_argument("--screens", nargs="*", choices=SCREENS, default=[], help="all without it")
    parser.add_argument("--people", type=int, default=10, help="0: only the screens")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each turn")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    port = free_port()
    env: dict[str, Any] = {
        "KAFSCALE_CONSOLE": "1",
        "KAFSCALE_CONSOLE_PORT": str(port),
        "KAFSCALE_AUTHORIZER": "acl",
        "KAFSCALE_SUPER_USERS": "User:ANONYMOUS",
    }
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="kafscale-console-") as made:
        cluster = started(options.folder or Path(made) / "data", env)
        try:
            cluster.wait_for("Console: ")
            asyncio.run(looks(cluster, url, options.screens))
            if options.people:
                asyncio.run(turns(cluster, url, options.people, options.seconds, options.rounds))
        finally:
            cluster.kill()


if __name__ == "__main__":
    main()
