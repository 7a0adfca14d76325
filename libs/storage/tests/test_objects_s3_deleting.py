"""Many deletions in one request, asked of a server that does not keep conditions, or answers strangely."""

from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web
from kafscale.storage.objects import Doomed, PreconditionFailed, StoreRefused, StoreUnavailable
from kafscale.storage.objects.s3 import S3Store

from .s3_stub import Answer, Stub, cut_off, error, serving


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    async with serving(Stub()) as server:
        yield server


@pytest.fixture
async def store(stub: Stub) -> AsyncIterator[S3Store]:
    opened = S3Store(stub.config())
    yield opened
    await opened.close()


def methods(stub: Stub) -> list[str]:
    return [request.method for request in stub.requests]


async def test_many_are_deleted_by_one_request_where_conditions_are_kept(stub: Stub, store: S3Store) -> None:
    await store.probe()
    doomed = [Doomed(f"k{n}", await store.put(f"k{n}", [b"%d" % n])) for n in range(5)]
    stub.requests.clear()
    assert await store.delete_many(doomed) == [True] * 5
    assert methods(stub) == ["POST"]
    assert not stub.objects


@pytest.mark.parametrize("missing", ["DeleteObjects ETag", "DeleteObjects"])
async def test_a_store_that_takes_no_notice_of_etags_is_asked_for_each_object(
    stub: Stub, store: S3Store, missing: str
) -> None:
    """Safety never hangs on what a server says that it does with many."""
    stub.ignore = frozenset([missing])
    await store.probe()
    etags = [await store.put(f"k{n}", [b"%d" % n]) for n in range(3)]
    await store.put("k1", [b"successor"])
    stub.requests.clear()
    found = await store.delete_many([Doomed(f"k{n}", etags[n]) for n in range(3)])
    assert isinstance(found[1], PreconditionFailed)
    assert (found[0], found[2]) == (True, True)
    assert stub.objects["k1"][0] == b"successor"
    assert "POST" not in methods(stub)
    found = await store.delete_many([Doomed("k1")])
    assert found == [True]
    assert ("POST" in methods(stub)) == (missing == "DeleteObjects ETag")


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: error(503, "SlowDown"),
        lambda request: web.Response(text="<DeleteResult><Deleted><Key>other</Key></Deleted></DeleteResult>"),
        lambda request: web.Response(text="<!DOCTYPE x><DeleteResult/>"),
        lambda request: web.Response(text="no XML"),
        cut_off,
    ],
)
async def test_what_a_server_does_not_say_of_a_deletion_is_not_known(
    stub: Stub, store: S3Store, answer: Callable[[web.Request], Answer]
) -> None:
    await store.probe()
    doomed = [Doomed("k", await store.put("k", [b"x"]))]
    stub.answers = [answer] * 2
    (found,) = await store.delete_many(doomed)
    assert isinstance(found, StoreUnavailable)


async def test_one_error_of_many_is_told_of_its_key_alone(stub: Stub, store: S3Store) -> None:
    await store.probe()
    said = "<Deleted><Key>a</Key></Deleted><Error><Key>b</Key><Code>AccessDenied</Code><Message>no</Message></Error>"
    stub.answers = [lambda request: web.Response(text=f"<DeleteResult>{said}</DeleteResult>")]
    a, b = await store.delete_many([Doomed("a"), Doomed("b")])
    assert a is True
    assert isinstance(b, StoreRefused)
    assert b.key == "b"


async def test_a_key_that_xml_cannot_hold_has_a_request_of_its_own(stub: Stub, store: S3Store) -> None:
    await store.probe()
    doomed = [Doomed("a\x01b", await store.put("a\x01b", [b"x"])), Doomed("c", await store.put("c", [b"y"]))]
    assert await store.delete_many(doomed) == [True, True]
    assert not stub.objects
