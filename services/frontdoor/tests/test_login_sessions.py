"""Sessions after a login: how long they last, and how clients renew them."""

from __future__ import annotations

from typing import Any

from door_harness import settled, until
from kafscale.frontdoor.api import Backend
from login_harness import (
    METADATA,
    METADATA_BODY,
    LoginClient,
    alice,
    answered,
    ask_admin,
    door,
    lines,
    scram,
    scram_login,
)


async def test_a_session_ends_and_another_request_closes_the_connection(audit: list[dict[str, Any]]) -> None:
    async with door(connections_max_reauth_ms=50) as cluster:
        client = LoginClient(cluster)
        await scram_login(client)
        assert client.authenticated.session_lifetime_ms == 50
        clock = cluster.door.gateway.clock
        began_ms = clock.now_ms()
        await until(lambda: clock.now_ms() > began_ms + 50)
        client.ask(METADATA, 9, METADATA_BODY)
        await settled()
        assert client.hung_up
        assert cluster.door.gateway.metrics.expired_sessions.value == 1
        (line,) = lines(audit, "session expired")
        assert line["principal"] == "User:alice"


async def test_the_end_of_the_session_is_known_of_the_client() -> None:
    """A Fetch waits until then at most."""
    async with door(connections_max_reauth_ms=60_000) as cluster:
        client, clock = LoginClient(cluster), cluster.door.gateway.clock
        caller, before_ms = client.connection.caller, clock.now_ms()
        assert caller.session_ends_ms is None
        await scram_login(client)
        assert caller.session_ends_ms is not None
        assert before_ms + 60_000 <= caller.session_ends_ms <= clock.now_ms() + 60_000


async def test_a_session_is_renewed_behind_requests_that_are_in_flight(audit: list[dict[str, Any]]) -> None:
    async with door(connections_max_reauth_ms=60_000) as cluster:
        client = LoginClient(cluster)
        await scram_login(client)
        stream = cluster.stream(Backend.ADMIN, 1, "control")
        client.ask(METADATA, 9, METADATA_BODY)
        await until(lambda: len(stream.sent) == 1)
        client.handshake()
        await settled()
        assert len(client.frames) == 3, "answers keep the order of their requests"
        stream.sent[0].reply(b"four")
        await answered(client, 5)
        user = scram()
        client.authenticate(user.first())
        await answered(client, 6)
        client.authenticate(user.final(client.authenticated.auth_bytes))
        await answered(client, 7)
        assert client.authenticated.session_lifetime_ms == 60_000
        assert (await ask_admin(cluster, client)).principal == "User:alice"
        assert lines(audit, "reauthenticated")
        counts = cluster.door.gateway.metrics.authentications
        assert counts.labels("SCRAM-SHA-256", "authenticated").value == 1
        assert counts.labels("SCRAM-SHA-256", "reauthenticated").value == 1


async def test_a_renewal_as_another_user_ends_the_connection() -> None:
    users = alice()
    users.add("bob", "bob-secret")
    async with door(users, connections_max_reauth_ms=60_000) as cluster:
        client = LoginClient(cluster)
        await scram_login(client)
        await plain_or_scram_as_bob(client)
        await until(lambda: client.hung_up)
        assert client.authenticated.error_code == 58
        assert client.principal == "User:alice"


async def plain_or_scram_as_bob(client: LoginClient) -> None:
    await scram_login(client, user="bob", password="bob-secret")


async def test_a_renewal_that_takes_too_long_is_closed() -> None:
    async with door(authentication_timeout_ms=1_000, connections_max_reauth_ms=60_000) as cluster:
        client = LoginClient(cluster)
        await scram_login(client)
        client.handshake()
        await until(lambda: client.hung_up)
        assert cluster.door.gateway.metrics.hung_up.labels("authentication_timeout").value == 1
