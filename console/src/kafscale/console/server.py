"""The console's HTTP server: guard, session, rights, handler, in this order."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import orjson
from aiohttp import web
from kafscale.access.acl import ResourceType
from kafscale.client.admin_client import KafkaTrouble
from kafscale.client.topics import find_topics
from kafscale.console.answers import (
    Lines,
    Problem,
    Row,
    forbidden,
    not_found,
    outcome_unknown,
    problem_of,
)
from kafscale.console.assets import Asset, Assets, read_assets
from kafscale.console.certificate import Certificate
from kafscale.console.connections import HEAD_S, Connections
from kafscale.console.counts import LEFT, Counts, probed
from kafscale.console.decode.registry import Registry
from kafscale.console.decode.schemas import Schemas
from kafscale.console.direct.stores import Stores
from kafscale.console.guard import LOOPBACK, Door, answer_headers, refusal
from kafscale.console.logins import CALLS_MAX, Entrance, Login, Logins
from kafscale.console.rights import Admits, Needs
from kafscale.console.routes import API, Call, Route, Site, check_names, decoded
from kafscale.console.settings import ConsoleSettings
from kafscale.console.table import served
from kafscale.operations.sentences import Trouble
from kafscale.runtime.addresses import join_address

COOKIE: Final = "kafscale-console"
COOKIE_TLS: Final = "__Host-kafscale-console"
CALLS_IN_PROGRESS_MAX: Final = 32
CALL_TIMEOUT_S: Final = 30.0
STOP_TIMEOUT_S: Final = 3.0
KEEPALIVE_S: Final = 30.0
HEAD_BYTES_MAX: Final = 16 * 1024
BODY_BYTES_MAX: Final = 8 * 1024 * 1024
JSON: Final = "application/json"
JSON_LINES: Final = "application/x-ndjson"
log: Final = logging.getLogger(__name__)


@dataclass(slots=True)
class _Strangers:
    """All who have no login, and may only ask for one."""

    calls: int = 0


class Server:
    def __init__(self, site: Site, door: Door, assets: Assets) -> None:
        self._site, self._assets = site, assets
        self.door = door
        """A renewed certificate changes its names, and nothing else of it."""
        self._headers = answer_headers(door, assets.csp)
        self._cookie = COOKIE_TLS if door.encrypted else COOKIE
        self._calls, self._strangers = 0, _Strangers()
        self.connections: Connections | None = None
        """Of the listener."""
        self.counts = Counts()
        self.counts.watch(
            connections=lambda: len(self.connections or ()),
            sessions=lambda: len(site.logins.sessions),
            calls=lambda: self._calls,
            tails=lambda: site.tails.count,
            decoded={} if site.schemas is None else site.schemas.outcomes,
        )

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._counted, self._guarded], client_max_size=BODY_BYTES_MAX)
        app.on_response_prepare.append(self._with_headers)
        for row in served(read_only=self._site.settings.read_only, direct=self._site.stores is not None):
            app.router.add_route(row.method, API + row.path, self._handler(row))
        app.router.add_route("*", "/api/{rest:.*}", self._no_route)
        app.router.add_get("/assets/{path:.*}", self._asset)
        app.router.add_get("/{path:.*}", self._page)
        return app

    @web.middleware
    async def _counted(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if self.connections is not None:
            self.connections.head_arrived(request.protocol)
        status, began_s = LEFT, time.monotonic()
        try:
            response = await handler(request)
            status = str(response.status)
        finally:
            self.counts.ended(request, status, time.monotonic() - began_s)
        return response

    @web.middleware
    async def _guarded(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if (refused := refusal(self.door, request.method, request.headers)) is not None:
            return failure(Problem(refused.status, refused.error, refused.sentence))
        try:
            return await handler(request)
        except Problem as problem:
            return failure(problem)
        except KafkaTrouble as trouble:
            return failure(problem_of(trouble))
        except web.HTTPException as wrong:  # aiohttp's own: no such method, a body that is too large
            return failure(Problem(HTTPStatus(wrong.status), "refused", f"{wrong.reason.lower()}"))
        except Exception:  # a bug of one screen must not end the others; it is logged whole
            log.exception("a request failed", extra={"path": request.path})
            sentence = "the console has a bug here; its log has the details"
            return failure(Problem(HTTPStatus.INTERNAL_SERVER_ERROR, "bug", sentence))

    async def _with_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(self._headers)
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.pop("Server", None)

    def _handler(self, row: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            call = self._call(request)
            check_names([*call.path.values(), *call.query.values()])
            login = call.person
            if row.needs is not Admits.ANYBODY and login is None:
                raise Problem(HTTPStatus.UNAUTHORIZED, "no_login", "log in first")
            async with self._room(login):
                async with asyncio.timeout(CALL_TIMEOUT_S):
                    if isinstance(row.needs, Needs):
                        await admit(row.needs, call)
                    if row.body is not None:
                        call.body = decoded(await self._body(request, row), row.body, row.body_has_names)
                    answer = await row.handler(call)
                    said = None if row.audit is None else row.audit(call)
                    if said is not None:  # before the first byte of the answer is sent
                        self._site.audit.read(row.path, call.login.user, call.peer, said)
                if isinstance(answer, Lines) and not answer.waits:
                    return await _send_lines(request, answer)
            if isinstance(answer, Lines):
                return await _send_lines(request, answer)
            response = _json(answer)
            self._set_cookie(response, call.new_session)
            return response

        async def timed(request: web.Request) -> web.StreamResponse:
            try:
                return await handle(request)
            except TimeoutError:
                raise too_late(row) from None

        return timed

    def _call(self, request: web.Request) -> Call:
        session_id = request.cookies.get(self._cookie)
        return Call(
            site=self._site,
            path=dict(request.match_info),
            query=dict(request.query),
            session_id=session_id,
            peer=request.remote or "",
            person=self._site.logins.of(session_id),
        )

    async def _body(self, request: web.Request, row: Route) -> bytes:
        body = await request.read()
        if len(body) > row.body_bytes_max:
            sentence = f"the body has more than {row.body_bytes_max:,} bytes"
            raise Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", sentence)
        return body

    @asynccontextmanager
    async def _room(self, login: Login | None) -> AsyncIterator[None]:
        """Bounds what runs at once, of one login and of all. Those without a login share the room of one."""
        who = self._strangers if login is None else login
        if self._calls >= CALLS_IN_PROGRESS_MAX or who.calls >= CALLS_MAX:
            sentence = "too many requests are in progress; try again in a moment"
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, "busy", sentence)
        self._calls += 1
        who.calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            who.calls -= 1

    def _set_cookie(self, response: web.Response, session_id: str | None) -> None:
        secure = self.door.encrypted
        if session_id:
            response.set_cookie(
                self._cookie, session_id, httponly=True, samesite="Strict", path="/", secure=secure
            )
        elif session_id is not None:
            response.del_cookie(self._cookie, path="/", secure=secure, httponly=True, samesite="Strict")

    async def _no_route(self, request: web.Request) -> web.StreamResponse:
        raise not_found(f"the console has no {request.method} {request.path}")

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        asset = self._assets.by_path.get(request.match_info["path"])
        if asset is None:
            raise not_found("the console has no such file")
        return _file(request, asset)

    async def _page(self, request: web.Request) -> web.StreamResponse:
        """The same page for every address; its script shows the screen."""
        return _file(request, self._assets.page)


async def admit(needs: Needs, call: Call) -> None:
    """Raises Problem if the login may not."""
    resource = needs.resource(call.path)
    await call.login.learn([resource])
    if not call.login.allows(resource, needs.operation):
        if resource[0] is ResourceType.TOPIC:
            await call.kafka(find_topics, [resource[1]])  # it says better whether the topic exists
        name = f" '{resource[1]}'" if needs.parameter is not None else ""
        who = f"user {call.login.user}" if call.login.user else "this login"
        kind = resource[0].name.lower()
        raise forbidden(f"{who} may not {needs.operation.name} {kind}{name}")


def too_late(row: Route) -> Problem:
    """After CALL_TIMEOUT_S. The thread of the call goes on."""
    sentence = f"the cluster did not answer within {CALL_TIMEOUT_S:.0f} s"
    if row.changes:
        return outcome_unknown(f"{sentence}; the change may still take effect: look before you try again")
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "no_answer", f"{sentence}; try again in a moment")


def _json(answer: Any) -> web.Response:
    return web.Response(body=orjson.dumps(answer), content_type=JSON)


def failure(problem: Problem) -> web.Response:
    found: Row = {"error": problem.error, "sentence": problem.sentence}
    return web.Response(status=problem.status, body=orjson.dumps(found), content_type=JSON)


def _file(request: web.Request, asset: Asset) -> web.Response:
    etag = f'"{asset.etag}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if request.headers.get("If-None-Match") == etag:
        return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    return web.Response(body=asset.body, content_type=asset.content_type, charset="utf-8", headers=headers)


async def _send_lines(request: web.Request, answer: Lines) -> web.StreamResponse:
    """A problem after the first line is the last line: {error, sentence}."""
    response = web.StreamResponse(headers={"Content-Type": JSON_LINES})
    await response.prepare(request)
    try:
        async for item in answer.items:
            await response.write(orjson.dumps(item) + b"\n")
    except Problem as problem:
        await response.write(orjson.dumps({"error": problem.error, "sentence": problem.sentence}) + b"\n")
    except ConnectionResetError:
        return response  # the reader has left
    finally:
        if isinstance(answer.items, AsyncGenerator):  # at once, and not when it is collected
            await answer.items.aclose()
    await response.write_eof()
    return response


def door_of(settings: ConsoleSettings, names: Collection[str] = ()) -> Door:
    """`names`: those of the certificate, which the console also has."""
    hosts = {*LOOPBACK, *names}
    if not settings.on_loopback:
        hosts.add(join_address(settings.listen, 0).rpartition(":")[0])
    only = None if settings.published_on_loopback else settings.behind_proxy
    return Door(frozenset(hosts), settings.tls, only)


def schemas_of(settings: ConsoleSettings) -> Schemas | None:
    """Raises Trouble if the file of the login cannot be used."""
    if settings.schema_registry is None:
        return None
    login = None
    if (file := settings.schema_registry_login) is not None:
        try:
            user, colon, password = file.read_text("utf-8").strip().partition(":")
        except (OSError, UnicodeDecodeError) as wrong:
            raise Trouble(f"{file} cannot be read: {wrong}") from wrong
        if not colon or not user:
            raise Trouble(f"{file} must have user:password")
        login = user, password
    return Schemas(Registry(settings.schema_registry, login))


@asynccontextmanager
async def serving(entrance: Entrance, settings: ConsoleSettings) -> AsyncIterator[str]:
    """Yields the address while the console runs. Raises Trouble if it cannot listen."""
    certificate = None
    try:
        if settings.certificate is not None and settings.key is not None:
            certificate = Certificate(settings.certificate, settings.key)
    except (OSError, ValueError) as wrong:  # SSLError is an OSError
        raise Trouble(f"the certificate cannot be used: {wrong}") from wrong
    # Python's own default is six threads on two cores, and a page of records may take one for seconds.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(CALLS_IN_PROGRESS_MAX, "call"))
    stores = None if settings.target is None else Stores(settings.target)
    schemas = schemas_of(settings)
    site = Site(settings=settings, logins=Logins(entrance), stores=stores, schemas=schemas)
    server = Server(site, door_of(settings, certificate.names if certificate else ()), read_assets())
    try:
        async with _listening(server, settings, certificate) as address, AsyncExitStack() as stack:
            if settings.http_listen is not None:
                try:
                    await stack.enter_async_context(probed(server.counts, settings.http_listen))
                except OSError as taken:
                    raise Trouble(f"cannot listen on {settings.http_listen}: {taken.strerror}") from taken
            yield settings.behind_proxy or f"{'https' if settings.tls else 'http'}://{address}"
    finally:
        if stores is not None:
            await stores.close()
        if schemas is not None:
            await schemas.close()
        site.audit.close()


@asynccontextmanager
async def _listening(
    server: Server, settings: ConsoleSettings, certificate: Certificate | None
) -> AsyncIterator[str]:
    """Yields host:port. Raises Trouble."""
    runner = web.AppRunner(
        server.application(),
        access_log=None,
        handler_cancellation=True,
        keepalive_timeout=KEEPALIVE_S,
        shutdown_timeout=STOP_TIMEOUT_S,
        max_line_size=HEAD_BYTES_MAX,
        max_field_size=HEAD_BYTES_MAX,
    )
    await runner.setup()
    assert runner.server is not None, "a runner that is set up has one"
    connections = server.connections = Connections(runner.server)
    tls: dict[str, Any] = {}
    if certificate is not None:
        tls = {"ssl": certificate.context, "ssl_handshake_timeout": HEAD_S}
    loop = asyncio.get_running_loop()
    watch = None
    if certificate is not None:
        renewed = partial(_rename, server, settings, certificate)
        watch = loop.create_task(certificate.watch(renewed))
    try:
        try:
            listener = await loop.create_server(connections, settings.listen, settings.port, **tls)
        except OSError as taken:
            raise Trouble(_taken(settings, taken)) from taken
        try:
            yield join_address(*listener.sockets[0].getsockname()[:2])
        finally:
            listener.close()
    finally:
        if watch is not None:
            watch.cancel()
        connections.close()
        await runner.cleanup()


def _rename(server: Server, settings: ConsoleSettings, certificate: Certificate) -> None:
    """A renewed certificate may have other names."""
    server.door = door_of(settings, certificate.names)


def _taken(settings: ConsoleSettings, error: OSError) -> str:
    where = join_address(settings.listen, settings.port)
    if error.errno == errno.EADDRINUSE:
        return (
            f"port {settings.port} is in use by another program; choose another: --port {settings.port + 1}"
        )
    return f"cannot listen on {where}: {error.strerror}"


async def serve(entrance: Entrance, settings: ConsoleSettings, announce: Callable[[str], None]) -> None:
    """Until SIGINT or SIGTERM. Raises Trouble if it cannot listen."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serving(entrance, settings) as url:
        announce(f"{url}/")
        await stop.wait()
