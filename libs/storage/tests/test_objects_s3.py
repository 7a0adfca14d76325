"""The S3 adapter against a server that misbehaves by request, and against a real one with wrong settings."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from aiohttp import web
from kafscale.storage.objects import (
    IfAbsent,
    IfMatch,
    ObjectNotFound,
    PreconditionFailed,
    S3Config,
    S3Encryption,
    StoreConfig,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    StoreUnsuitable,
    open_store,
)
from kafscale.storage.objects.s3 import S3Store
from kafscale.testkit.seaweed import SeaweedServer

from .s3_stub import ENCRYPTION, Answer, Stub, cut_off, error, serving


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    async with serving(Stub()) as server:
        yield server


@pytest.fixture
async def store(stub: Stub) -> AsyncIterator[S3Store]:
    opened = S3Store(stub.config())
    yield opened
    await opened.close()


async def test_the_probe_accepts_a_store_that_keeps_conditions(stub: Stub, store: S3Store) -> None:
    assert not store.conditional_delete
    await store.probe()
    assert store.conditional_delete
    assert stub.objects == {}


@pytest.mark.parametrize(
    ("ignored", "sentence"),
    [
        ("PUT If-None-Match", "If-None-Match"),
        ("PUT If-Match", "ignores If-Match on PUT"),
        ("GET If-Match", "If-Match on GET"),
        ("GET If-Match of a range", "If-Match on GET of a range"),
    ],
)
async def test_the_probe_refuses_a_store_that_ignores_conditions(
    stub: Stub, store: S3Store, ignored: str, sentence: str
) -> None:
    stub.ignore = frozenset({ignored})
    with pytest.raises(StoreUnsuitable, match=sentence):
        await store.probe()
    assert stub.objects == {}


@pytest.mark.parametrize(
    ("encryption", "headers"),
    [
        (S3Encryption(kind="AES256"), ("AES256", None)),
        (S3Encryption(kind="aws:kms"), ("aws:kms", None)),
        (S3Encryption(kind="aws:kms", kms_key_id="alias/logs"), ("aws:kms", "alias/logs")),
        (None, (None, None)),
    ],
)
async def test_every_put_asks_for_the_encryption(
    stub: Stub, encryption: S3Encryption | None, headers: tuple[str | None, str | None]
) -> None:
    store = S3Store(stub.config(encryption=encryption))
    await store.probe()
    etag = await store.put("one", [b"1"])
    await store.put("one", [b"2"], condition=IfMatch(etag), metadata={"kfs-epoch": "1"})
    await store.close()
    puts = [request for request in stub.requests if request.method == "PUT"]
    names = (ENCRYPTION, ENCRYPTION + "-aws-kms-key-id")
    assert {tuple(put.headers.get(name) for name in names) for put in puts} == {headers}
    assert list(stub.objects) == ["one"]


async def test_the_probe_of_a_reader_finds_the_bucket_and_sends_nothing_else(stub: Stub) -> None:
    store = S3Store(stub.config(probe_writes=False))
    await store.probe()
    await store.close()
    assert [request.method for request in stub.requests] == ["GET"]


async def test_the_probe_refuses_a_store_that_keeps_records_in_the_clear(stub: Stub) -> None:
    stub.ignore = frozenset({"encryption"})
    store = S3Store(stub.config(encryption=S3Encryption(kind="AES256")))
    with pytest.raises(StoreUnsuitable, match="does not encrypt: asked for AES256"):
        await store.probe()
    await store.close()
    assert stub.objects == {}


async def test_a_store_that_ignores_if_match_on_delete_is_taken_and_said_so(
    stub: Stub, store: S3Store
) -> None:
    stub.ignore = frozenset({"DELETE If-Match"})
    await store.probe()
    assert not store.conditional_delete


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (409, "ConditionalRequestConflict", StoreUnavailable),
        (409, "OperationAborted", StoreUnavailable),
        (409, "SomethingNew", StoreUnavailable),
        (400, "RequestTimeout", StoreUnavailable),
        (429, "TooManyRequests", StoreUnavailable),
        (500, "InternalError", StoreUnavailable),
        (503, "SlowDown", StoreUnavailable),
        (507, "InsufficientStorage", StoreFull),
        (412, "PreconditionFailed", PreconditionFailed),
        (404, "NoSuchKey", PreconditionFailed),
        (404, "NoSuchBucket", StoreRefused),
        (403, "AccessDenied", StoreRefused),
        (403, "SignatureDoesNotMatch", StoreRefused),
        (400, "ExpiredToken", StoreRefused),
        (400, "EntityTooLarge", StoreRefused),
    ],
)
async def test_a_put_is_sent_once_and_its_failure_says_what_is_known(
    stub: Stub, store: S3Store, status: int, code: str, expected: type[StoreError]
) -> None:
    stub.answers = [lambda request: error(status, code)]
    with pytest.raises(expected) as failed:
        await store.put("ns/k", [b"x"], condition=IfMatch("e"))
    assert type(failed.value) is expected
    assert failed.value.key == "ns/k"
    assert len(stub.requests) == 1


async def test_a_put_whose_connection_breaks_has_an_unknown_outcome(stub: Stub, store: S3Store) -> None:
    stub.answers = [cut_off, cut_off]  # the HTTP client itself tries a second connection
    with pytest.raises(StoreUnavailable):
        await store.put("ns/k", [b"x"], condition=IfAbsent())
    assert len(stub.requests) == 2


async def test_reads_are_repeated_once(stub: Stub, store: S3Store) -> None:
    etag = await store.put("ns/k", [b"x"])
    for read in (lambda: store.get("ns/k", if_match=etag), lambda: store.head("ns/k")):
        stub.answers = [lambda request: error(503, "SlowDown")]
        assert await read()
        stub.answers = [lambda request: error(503, "SlowDown")] * 2
        with pytest.raises(StoreUnavailable):
            await read()


async def test_an_answer_that_does_not_come_ends_with_the_time_limit(stub: Stub) -> None:
    gate = asyncio.Event()
    handle = stub.handle

    async def slow(request: web.Request) -> Answer:
        await gate.wait()
        return await handle(request)

    stub.handle = slow  # type: ignore[method-assign]
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", slow)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    stub.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
    store = S3Store(stub.config(request_timeout_s=0.3))
    with pytest.raises(StoreUnavailable):
        await store.put("ns/k", [b"x"])
    gate.set()
    await store.close()
    await runner.cleanup()


async def test_a_body_shorter_than_announced_is_no_answer(stub: Stub) -> None:
    store = S3Store(stub.config(request_timeout_s=0.3))

    def short(request: web.Request) -> Answer:
        return web.Response(headers={"ETag": '"e"', "Content-Length": "10"}, body=b"01234")

    stub.answers = [short, short]
    with pytest.raises(StoreUnavailable):
        await store.get("ns/k")
    await store.close()


async def test_a_server_that_ignores_ranges_is_cut_here(stub: Stub, store: S3Store) -> None:
    await store.put("ns/k", [b"0123456789"])
    assert await store.get("ns/k", start=2, end=5) == b"234"


async def test_a_deleted_object_whose_answer_was_lost_is_gone_not_refused(stub: Stub, store: S3Store) -> None:
    etag = await store.put("ns/k", [b"x"])
    del stub.objects["ns/k"]
    assert await store.delete("ns/k", if_match=etag) is False


async def test_bodies_are_neither_hashed_nor_signed_unless_asked(stub: Stub, store: S3Store) -> None:
    await store.put("ns/k", [b"x"], condition=IfAbsent(), metadata={"kfs-epoch": "1"})
    headers = stub.requests[-1].headers
    assert headers["x-amz-content-sha256"] == "UNSIGNED-PAYLOAD"
    assert headers["If-None-Match"] == "*"
    assert headers["x-amz-meta-kfs-epoch"] == "1"
    assert not [name for name in headers if "checksum" in name.lower() or name == "Content-MD5"]
    signing = S3Store(stub.config(payload_signing=True))
    await signing.put("ns/k2", [b"x"])
    assert stub.requests[-1].headers["x-amz-content-sha256"] == hashlib.sha256(b"x").hexdigest()
    await signing.close()


async def test_requests_go_through_the_proxy_of_the_environment(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", stub.endpoint)
    monkeypatch.setenv("no_proxy", "elsewhere")
    store = S3Store(replace(stub.config(), endpoint="http://s3.invalid"))
    stub.answers = [lambda request: web.Response(headers={"ETag": '"e"'})]
    assert await store.put("ns/k", [b"x"]) == "e"
    assert stub.requests[-1].host == "s3.invalid"
    await store.close()


async def test_nobody_listening_is_unavailable_not_refused() -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    store = S3Store(
        S3Config(bucket="b", endpoint=f"http://127.0.0.1:{port}", access_key_id="a", secret_access_key="s")
    )
    with pytest.raises(StoreUnavailable):
        await store.probe()
    await store.close()


async def test_requests_cost_money(stub: Stub) -> None:
    assert open_store(StoreConfig(kind="s3", s3=stub.config())).bills_requests


def test_the_secret_is_not_in_the_configs_text() -> None:
    assert "hush" not in repr(S3Config(bucket="b", secret_access_key="hush"))


async def test_a_missing_bucket_is_refused_with_a_sentence_or_made_when_asked(seaweed: SeaweedServer) -> None:
    store = S3Store(seaweed.s3_config("not-there"))
    with pytest.raises(StoreRefused, match="bucket 'not-there' does not exist at http://127"):
        await store.probe()
    with pytest.raises(StoreRefused, match="not-there"):
        await store.put("k", [b"x"], condition=IfAbsent())
    await store.close()
    maker = S3Store(seaweed.s3_config("made-here", create_bucket=True))
    await maker.probe()
    await maker.put("k", [b"x"])
    await maker.close()


async def test_wrong_credentials_are_refused_with_a_sentence(seaweed: SeaweedServer) -> None:
    for changes in ({"secret_access_key": "wrong"}, {"access_key_id": "nobody"}):
        config = seaweed.s3_config()
        values = {name: getattr(config, name) for name in config.__slots__} | changes
        store = S3Store(S3Config(**values))
        with pytest.raises(StoreRefused, match="credentials or permissions"):
            await store.probe()
        with pytest.raises(StoreRefused):
            await store.get("k")
        await store.close()


async def test_acknowledged_objects_survive_a_kill_of_the_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    server = SeaweedServer(tmp_path_factory.mktemp("killed"))
    server.start()
    try:
        await server.wait_ready_async()
        store = S3Store(server.s3_config())
        etags = {f"ns/{n}": await store.put(f"ns/{n}", [b"%d" % n]) for n in range(20)}
        server.kill()
        with pytest.raises(StoreUnavailable):
            await store.get("ns/0")
        server.start()
        await server.wait_ready_async()
        for key, etag in etags.items():
            assert await store.get(key, if_match=etag) == key.removeprefix("ns/").encode()
        with pytest.raises(ObjectNotFound):
            await store.get("ns/20")
        await store.close()
    finally:
        server.kill()
