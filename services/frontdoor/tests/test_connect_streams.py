"""Which services a front door with and without a certificate connects to.

Law: with a certificate, a registration that says "no TLS" is not believed unless a setting allows it. Who can write to
etcd could otherwise get the clients' records in plaintext.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc.aio
import pytest
from door_fakes import instance
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.assembly import connect_streams
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.grpc_identity import GrpcIdentity, dial_by
from kafscale.runtime.stream.frame import ReplyStatus, RequestMeta
from kafscale.runtime.stream.options import SERVER_OPTIONS, Stream
from kafscale.runtime.stream.server import InboundRequest, StreamServer
from kafscale.testkit.authority import Authority

KEY = 3


def echo(request: InboundRequest) -> None:
    request.reply([bytes(request.body)])


@asynccontextmanager
async def service(identity: GrpcIdentity | None) -> AsyncIterator[str]:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    StreamServer(bulk={}, control={KEY: echo}).add_to(server)
    if identity is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", identity.server_credentials())
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@pytest.mark.parametrize(
    ("door_has", "service_has", "plaintext_services", "answered"),
    [
        (False, False, False, True),
        (False, True, False, False),
        (True, True, False, True),
        (True, True, True, True),
        (True, False, False, False),
        (True, False, True, True),
    ],
)
async def test_with_a_certificate_only_a_setting_allows_services_without_one(
    tmp_path: Path, door_has: bool, service_has: bool, plaintext_services: bool, answered: bool
) -> None:
    authority = Authority(tmp_path)
    door = GrpcIdentity(authority.role("frontdoor")) if door_has else None
    admin = GrpcIdentity(authority.role("admin")) if service_has else None
    settings = FrontdoorSettings(frontdoor_plaintext_services=plaintext_services)
    async with service(admin) as address:
        registered = replace(instance(Backend.ADMIN, 1, address=address), tls=service_has)
        stream = connect_streams(settings, dial_by(door))(registered, Stream.CONTROL)
        try:
            reply = await stream.send(
                RequestMeta(connection_id=1, api_key=KEY, api_version=0), (b"hi",)
            ).future
        finally:
            await stream.close()
    assert (reply.status is ReplyStatus.FINAL) is answered
