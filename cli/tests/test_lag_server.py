"""`kafscale lag --serve`: always a recent report, for programs of this machine alone, and one report at a time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from kafscale.cli.lake import lag_server
from kafscale.cli.lake.lag_server import LagServer, LiveReport, made
from kafscale.lake.catalog import Log
from kafscale.lake.lag.report import Facts
from kafscale.operations.sentences import Trouble
from kafscale.runtime.http import serving
from kafscale.storage.etcd.client import EtcdUnknown, UnknownKind
from kafscale.storage.keys import TopicId
from kafscale.storage.topics import Topic
from kafscale.testkit.chromium import browser_page

from .test_lag import root  # noqa: F401  (a fixture)

DONE_S = 60
TWO = "evil.example\r\nHost: 127.0.0.1"
BROWSER_S = 900
TOPIC = Topic(name="orders", topic_id=TopicId(b"1" * 16), partitions=1)
NOTHING = Facts(cluster="c", at_ms=1, logs=[Log(topic=TOPIC, partition=0)], positions=[], lags=[])


@dataclass
class Source:
    """Facts that a test sets. A read waits while `closed` is clear."""

    facts: Facts = NOTHING
    trouble: Exception | None = None
    reads: int = 0
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.opened.set()

    async def read(self) -> Facts:
        self.reads += 1
        await self.opened.wait()
        if self.trouble is not None:
            raise self.trouble
        return self.facts

    def name(self, cluster: str) -> None:
        self.facts = replace(self.facts, cluster=cluster, at_ms=self.facts.at_ms + 1)


@asynccontextmanager
async def served(source: Source, every_s: int = 0) -> AsyncIterator[str]:
    """The address. With 0 every request wants a new report."""
    live = LiveReport(source.read, await made(source.read), every_s)
    async with serving(LagServer(live, every_s), "127.0.0.1:0") as address, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(live.run())
        try:
            yield address
        finally:
            running.cancel()


async def asked(
    address: str, path: str = "/data.json", host: str | None = None, method: str = "GET"
) -> bytes:
    where, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(where, int(port))
    named = "" if host == "" else f"Host: {address if host is None else host}\r\n"
    writer.write(f"{method} {path} HTTP/1.1\r\n{named}\r\n".encode())
    async with asyncio.timeout(DONE_S):
        answer = await reader.read()
    writer.close()
    return answer


async def data(address: str) -> dict[str, Any]:
    head, _, body = (await asked(address)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK"), head
    found: dict[str, Any] = json.loads(body)
    return found


async def test_the_page_and_its_data_are_served_and_no_other_site_may_use_them() -> None:
    async with served(Source()) as address:
        head, _, body = (await asked(address, "/?x=1")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK")
        assert b"connect-src 'self'" in body
        for line in ("no-store", "frame-ancestors 'none'", "nosniff", "same-origin"):
            assert line.encode() in head
        found = await data(address)
        assert (found["cluster"], found["trouble"], found["live"]) == ("c", None, 0)
        assert (await asked(address, "/etc/passwd")).startswith(b"HTTP/1.1 404")
        assert (await asked(address, method="POST")).startswith(b"HTTP/1.1 405")
        assert (await asked(address, "/", method="HEAD")).endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8484", "127.0.0.1.evil.example", "", "x:y:127.0.0.1", TWO]
)
async def test_a_name_that_was_pointed_here_is_refused(host: str) -> None:
    async with served(Source()) as address:
        for path in ("/", "/data.json"):
            answer = await asked(address, path, host)
            assert answer.startswith(b"HTTP/1.1 403"), answer
            assert b"orders" not in answer
        assert (await asked(address, host="localhost:1")).startswith(b"HTTP/1.1 200")


async def test_a_report_is_made_again_when_it_is_old_and_somebody_asks() -> None:
    source = Source()
    async with served(source) as address:
        source.name("d")
        assert (await data(address))["cluster"] == "d"
    source = Source()
    async with served(source, every_s=3_600) as address:
        source.name("d")
        assert (await data(address))["cluster"] == "c"
        assert source.reads == 1


async def test_requests_at_once_share_a_report() -> None:
    source = Source()
    async with served(source) as address:
        source.opened.clear()
        requests = [asyncio.create_task(data(address)) for _ in range(10)]
        async with asyncio.timeout(DONE_S):
            while source.reads < 2:
                await asyncio.sleep(0)
        source.name("d")
        source.opened.set()
        assert {found["cluster"] for found in await asyncio.gather(*requests)} == {"d"}
        assert source.reads <= 3, "one for those that came in time, one for those that came after it"


async def test_a_slow_store_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_server, "PATIENCE_S", 0.05)
    source = Source()
    async with served(source) as address:
        source.opened.clear()
        source.name("d")
        assert (await data(address))["cluster"] == "c", "the last report"
        source.opened.set()
        async with asyncio.timeout(DONE_S):
            while (await data(address))["cluster"] != "d":
                pass


async def test_a_report_that_cannot_be_made_is_named_and_the_last_one_stays() -> None:
    source = Source(trouble=None)
    async with served(source) as address:
        source.trouble = EtcdUnknown(UnknownKind.TIMEOUT, "no answer in 5 s")
        found = await data(address)
        assert (found["cluster"], found["trouble"]) == ("c", "etcd does not answer: no answer in 5 s")
        source.trouble = None
        assert (await data(address))["trouble"] is None


async def test_a_store_that_never_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_server, "REPORT_TIMEOUT_S", 0.01)
    source = Source()
    async with served(source) as address:
        source.opened.clear()
        assert "did not answer within" in (await data(address))["trouble"]


async def test_a_port_that_is_taken_is_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Trouble, match=f"port {port} is in use by another program; .*--port {port + 1}"):
            await lag_server.serve_report(Source().read, port, 15, print)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_the_command_serves_until_it_is_told_to_end(root: Path, number: signal.Signals) -> None:  # noqa: F811
    command = ("-m", "kafscale.cli", "lag", "--data-dir", str(root), "--serve", "--port", "0")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stderr is not None
    async with asyncio.timeout(DONE_S * 4):
        lines: list[str] = []
        while not (lines and "http://" in lines[-1]):
            line = await process.stderr.readline()
            assert line, lines
            lines.append(line.decode())
        address = lines[-1].partition("http://")[2].partition("/")[0]
        found = await data(address)
        assert "readers" in {group["name"] for group in found["groups"]}
        process.send_signal(number)
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.timeout(BROWSER_S)
async def test_a_page_shows_the_next_report_by_itself_and_says_when_there_is_none(tmp_path: Path) -> None:
    source = Source()
    async with served(source, every_s=1) as address, browser_page(tmp_path / "profile") as tab:
        await tab.open(f"http://{address}/")
        assert await tab.ask("document.title") == "Consumer lag of c"
        source.name("d")
        await tab.until("document.title === 'Consumer lag of d'")
        source.trouble = EtcdUnknown(UnknownKind.TIMEOUT, "no answer")
        await tab.until("document.querySelector('#live .bad')")
        words = await tab.ask("document.getElementById('live').innerText")
        assert words.startswith("not refreshed: etcd does not answer: no answer")
        source.trouble = None
        await tab.until("!document.querySelector('#live .bad')")
        assert tab.seen.messages == []
        assert {url.rpartition("/")[2] for url in tab.seen.requests} == {"", "data.json"}
