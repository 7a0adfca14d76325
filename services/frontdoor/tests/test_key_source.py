"""The issuer's keys: from a file or over https with a checked certificate, bounded, renewed, the last ones kept."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest
from door_harness import until
from kafscale.frontdoor.authentication import key_source
from kafscale.frontdoor.authentication.key_source import (
    DOCUMENT_BYTES_MAX,
    RENEW_EVERY_MS,
    KeySource,
    fetcher,
)
from kafscale.frontdoor.authentication.sasl_settings import UrlWrong, parse_keys_url
from kafscale.frontdoor.authentication.tokens import KeysWrong
from kafscale.runtime.metrics import Level
from kafscale.testkit.authority import Authority
from kafscale.testkit.clock import ManualClock
from login_harness import Issuer

DOCUMENT = Issuer().jwks
NEWER = Issuer().jwks
ODD = json.dumps({"keys": [{**Issuer().entries[0], "kid": ["a list"]}]}).encode()


DROPS = 400


class Answers(BaseHTTPRequestHandler):
    """What each path answers."""

    asked: list[str] = []
    end = threading.Event()
    drops = 0

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
            return
        if self.path == "/missing":
            self.send_error(404)
            return
        if self.path in ("/silent", "/drip", "/drip-headers"):
            self.drip()
            return
        body = b"x" * (DOCUMENT_BYTES_MAX + 1) if self.path == "/large" else DOCUMENT
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def drip(self) -> None:
        """Until the client or the test ends it."""
        Answers.drops = 0
        self.wfile.write(b"HTTP/1.1 200 OK\r\n" + (b"\r\n" if self.path == "/drip" else b"X: "))
        while Answers.drops < DROPS and not self.end.wait(0.05):
            if self.path != "/silent":
                self.wfile.write(b"x")
                self.wfile.flush()
            Answers.drops += 1

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def https(authority: Authority, name: str = "localhost") -> Iterator[str]:
    """The URL of a server on this machine."""
    files = authority.issue(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"https://localhost:{server.server_address[1]}"
        finally:
            Answers.end.set()
            server.shutdown()
            thread.join()


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.ca))


def test_keys_are_read_over_https_from_a_server_that_proves_its_name(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path / "a"), Authority(tmp_path / "b")
    with https(authority) as url:
        assert fetcher(f"{url}/keys", trusting(authority))() == DOCUMENT
        for context in (trusting(other), None):
            with pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
                fetcher(f"{url}/keys", context)()
    with https(authority, "elsewhere") as url, pytest.raises(URLError, match="CERTIFICATE_VERIFY_FAILED"):
        fetcher(f"{url}/keys", trusting(authority))()


def test_a_server_cannot_send_the_front_door_elsewhere_or_fill_its_memory(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    Answers.asked.clear()
    with https(authority) as url:
        for path in ("/redirect", "/missing"):
            with pytest.raises(HTTPError) as caught:
                fetcher(url + path, trusting(authority))()
            caught.value.close()
        with pytest.raises(KeysWrong, match="larger than"):
            fetcher(f"{url}/large", trusting(authority))()
    assert Answers.asked == ["/redirect", "/missing", "/large"]


@pytest.mark.parametrize("path", ["/silent", "/drip", "/drip-headers"])
def test_a_server_that_sends_slowly_does_not_hold_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """It sends a byte each time before the timeout of a read."""
    monkeypatch.setattr(key_source, "FETCH_S_MAX", 0.4)
    authority = Authority(tmp_path)
    Answers.end.clear()
    with https(authority) as url, pytest.raises((KeysWrong, URLError), match="did not come within|timed out"):
        fetcher(f"{url}{path}", trusting(authority))()
    assert Answers.drops < DROPS, "the server has not come to its end"


def test_a_file_is_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "my keys.json"
    path.write_bytes(DOCUMENT)
    assert fetcher(path.as_uri())() == DOCUMENT
    path.write_bytes(b"x" * (DOCUMENT_BYTES_MAX + 1))
    with pytest.raises(KeysWrong, match="larger"):
        fetcher(path.as_uri())()


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost/keys",
        "ftp://x/y",
        "https://",
        "https://user:pw@host/keys",
        "file://host/path",
        "file:",
        "keys.json",
        "",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(UrlWrong):
        parse_keys_url(url)


# ---- keeping them


class Fetched:
    """A document that a test changes, and how often it was fetched."""

    def __init__(self) -> None:
        self.answer: bytes | Exception = DOCUMENT
        self.times = 0
        self.gate: threading.Event | None = None

    def __call__(self) -> bytes:
        self.times += 1
        if self.gate is not None:
            assert self.gate.wait(10)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@asynccontextmanager
async def source(fetched: Callable[[], bytes]) -> AsyncIterator[tuple[KeySource, ManualClock, Level]]:
    clock, read_at = ManualClock(), Level()
    with ThreadPoolExecutor(1) as threads:
        async with asyncio.TaskGroup() as tasks:
            yield (
                KeySource(fetched, clock=clock, tasks=tasks, threads=threads, read_at=read_at),
                clock,
                read_at,
            )


async def test_an_unknown_key_causes_one_fetch_in_ten_seconds() -> None:
    fetched = Fetched()
    async with source(fetched) as (keys, clock, read_at):
        assert await keys.newer() is not None
        assert read_at.value == clock.wall_ms() / 1000
        fetched.answer = NEWER
        old = keys.keys
        for _ in range(3):
            assert await keys.newer() is old
        clock.advance(RENEW_EVERY_MS - 1)
        assert await keys.newer() is old
        assert fetched.times == 1
        clock.advance(1)
        assert await keys.newer() is not old
        assert fetched.times == 2


async def test_those_that_ask_meanwhile_wait_for_the_fetch_that_is_under_way() -> None:
    fetched = Fetched()
    fetched.gate = threading.Event()
    async with source(fetched) as (keys, _, _):
        waiting = [asyncio.ensure_future(keys.newer()) for _ in range(5)]
        await until(lambda: fetched.times == 1)
        waiting[0].cancel()
        fetched.gate.set()
        assert all(await asyncio.gather(*waiting[1:]))
        assert fetched.times == 1, "and one that leaves does not end it for the others"


@pytest.mark.parametrize(
    "failure", [OSError("refused"), KeysWrong("large"), b"no keys", ODD, AttributeError("a bug of a library")]
)
async def test_the_last_good_keys_are_kept(failure: bytes | Exception) -> None:
    fetched = Fetched()
    async with source(fetched) as (keys, clock, read_at):
        good = await keys.newer()
        before = read_at.value
        fetched.answer = failure
        clock.advance(RENEW_EVERY_MS)
        assert await keys.newer() is good
        assert (fetched.times, read_at.value) == (2, before)


async def test_a_fetch_that_hangs_ends_for_those_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_source, "ATTEMPT_S_MAX", 0.05)
    fetched = Fetched()
    fetched.gate = threading.Event()
    async with source(fetched) as (keys, clock, _):
        async with asyncio.timeout(5):
            assert await keys.newer() is None
            clock.advance(RENEW_EVERY_MS)
            assert await keys.newer() is None
        fetched.gate.set()
        monkeypatch.setattr(key_source, "ATTEMPT_S_MAX", 10)
        clock.advance(RENEW_EVERY_MS)
        assert await keys.newer() is not None


async def test_keys_are_renewed_in_time_and_sooner_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    fetched = Fetched()
    real_sleep = asyncio.sleep

    async def sleep(delay_s: float) -> None:
        if delay_s:  # those of the test itself are real
            slept.append(delay_s)
            clock.advance(int(delay_s * 1000))
            fetched.answer = OSError("away") if len(slept) == 1 else NEWER
        await real_sleep(0)

    async with source(fetched) as (keys, clock, _):
        monkeypatch.setattr(key_source.asyncio, "sleep", sleep)
        running = asyncio.ensure_future(keys.run())
        while fetched.times < 3:
            await real_sleep(0)
        running.cancel()
    assert slept[:2] == [key_source.REFRESH_MS / 1000, key_source.RETRY_MS / 1000]


async def test_what_went_wrong_is_logged_without_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    fetched = Fetched()
    fetched.answer = json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0LXNlY3JldA"}]}).encode()
    async with source(fetched) as (keys, _, _):
        assert await keys.newer() is None
    shown = capsys.readouterr()
    assert "keys of OAUTHBEARER not read" in shown.out + shown.err
    assert "c2VjcmV0" not in shown.out + shown.err
