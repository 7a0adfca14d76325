"""Logins at the front door: nothing reaches the gateway before one, and they are bounded and recorded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from struct import pack
from typing import Any

import pytest
import structlog
from door_harness import Cluster, settled, until
from kafscale.frontdoor.api import Backend
from kafscale.frontdoor.apis import SERVED
from kafscale.frontdoor.connection import Framing
from kafscale.frontdoor.listeners.connection_limits import UnauthenticatedConnections
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import api_versions, sasl_authenticate, sasl_handshake
from login_harness import (
    ALICE,
    API_VERSIONS,
    AUDIENCE,
    AUTHENTICATE,
    EVERY,
    HANDSHAKE,
    ISSUER,
    METADATA,
    METADATA_BODY,
    PASSWORD,
    Issuer,
    LoginClient,
    alice,
    answered,
    ask_admin,
    authenticate_body,
    bearer,
    door,
    handshake_body,
    lines,
    plain,
    plain_login,
    scram,
    scram_login,
)

REFUSED = "Authentication failed during authentication due to invalid credentials with SASL mechanism "


# ---- logging in


@pytest.mark.parametrize("hash_name", ["sha256", "sha512"])
async def test_a_client_with_scram_becomes_its_user(hash_name: str) -> None:
    async with door() as cluster:
        client = LoginClient(cluster)
        assert client.principal == "User:ANONYMOUS"
        await scram_login(client, hash_name=hash_name)
        assert (client.authenticated.error_code, client.principal) == (0, "User:alice")
        assert (await ask_admin(cluster, client)).principal == "User:alice"


async def test_a_client_with_plain_becomes_its_user_and_its_password_is_remembered() -> None:
    async with door() as cluster:
        for _ in range(2):
            client = LoginClient(cluster)
            await plain_login(client)
            assert (client.authenticated.error_code, client.principal) == (0, "User:alice")
            assert (await ask_admin(cluster, client)).principal == "User:alice"


async def test_a_client_with_a_token_becomes_its_user_until_the_token_ends(tmp_path: Path) -> None:
    issuer = Issuer()
    (tmp_path / "keys.json").write_bytes(issuer.jwks)
    bearers = {
        "sasl_enabled_mechanisms": "OAUTHBEARER",
        "sasl_oauthbearer_jwks_endpoint_url": (tmp_path / "keys.json").as_uri(),
        "sasl_oauthbearer_expected_issuer": ISSUER,
        "sasl_oauthbearer_expected_audience": AUDIENCE,
    }
    async with door(**bearers) as cluster:
        client = LoginClient(cluster)
        client.handshake("OAUTHBEARER")
        await settled()
        client.authenticate(bearer(issuer.token()))
        await answered(client, 2)
        assert client.principal == "User:alice"
        assert 3_590_000 < client.authenticated.session_lifetime_ms <= 3_600_000
        refused = LoginClient(cluster)
        refused.handshake("OAUTHBEARER")
        await settled()
        refused.authenticate(bearer(issuer.token(aud="other")))
        await answered(refused, 2)
        assert (refused.authenticated.error_code, refused.authenticated.auth_bytes) == (
            0,
            b'{"status":"invalid_token"}',
        )
        refused.authenticate(b"\x01")
        await until(lambda: refused.hung_up)
        assert (refused.authenticated.error_code, refused.authenticated.error_message) == (
            58,
            '{"status":"invalid_token"}',
        )
        assert cluster.door.gateway.metrics.token_keys_read.value > 0


async def test_versions_are_the_same_as_for_everybody() -> None:
    async with door() as cluster:
        client, other = LoginClient(cluster), cluster.client()
        client.versions_asked()
        other.ask(API_VERSIONS, 3, b"\x05test\x021\x00")
        await settled()
        assert client.frames == [bytes(other.transport.out)[4:]]
        shown = {
            one.api_key: one.max_version
            for one in api_versions.decode_response(client.frames[0][4:], 3).api_keys
        }
        assert (shown[HANDSHAKE], shown[AUTHENTICATE]) == (1, 2)
        await scram_login(client)
        assert client.principal == "User:alice"


async def test_bare_tokens_after_the_first_version_of_the_handshake() -> None:
    async with door() as cluster:
        client, user = LoginClient(cluster), scram()
        client.handshake("SCRAM-SHA-256", version=0)
        await answered(client, 1)
        client.send_token(user.first())
        await answered(client, 2)
        client.send_token(user.final(client.frames[1]))
        await answered(client, 3)
        user.check(client.frames[2])
        client.versions_asked()
        await answered(client, 4)
        assert client.principal == "User:alice"
        assert (await ask_admin(cluster, client)).principal == "User:alice"


# ---- attacks before a login


@pytest.mark.parametrize("key", sorted(set(SERVED) - {API_VERSIONS, HANDSHAKE}))
async def test_no_api_is_served_before_a_login(key: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async with door() as cluster:
        monkeypatch.setattr(cluster.door.gateway, "dispatch", forbidden)
        for before in ("nothing", "versions", "handshake"):
            client = LoginClient(cluster)
            if before == "versions":
                client.versions_asked()
            elif before == "handshake":
                client.handshake()
            await settled()
            client.ask(key, SERVED[key].versions[1], b"")
            await settled()
            assert client.hung_up
            assert len(client.frames) == (before != "nothing")


def forbidden(*_: object) -> None:
    raise AssertionError("before a login nothing reaches the gateway")


async def test_requests_that_are_pipelined_behind_a_login_wait_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are read by the rules that hold then: after a refusal not at all."""
    async with door() as cluster:
        good, bad = LoginClient(cluster), LoginClient(cluster)
        for client, password in ((good, PASSWORD), (bad, "wrong")):
            client.feed(
                client.frame(HANDSHAKE, 1, handshake_body("PLAIN"))
                + client.frame(AUTHENTICATE, 2, authenticate_body(plain(password=password)))
                + client.frame(METADATA, 9, METADATA_BODY)
            )
        stream = cluster.stream(Backend.ADMIN, 1, "control")
        await until(lambda: bad.hung_up and len(stream.sent) == 1)
        assert stream.sent[0].meta.principal == "User:alice"
        assert (len(good.frames), bad.authenticated.error_code) == (2, 58)


async def test_a_pipelined_bare_token_is_no_request() -> None:
    async with door() as cluster:
        client = LoginClient(cluster)
        token = plain()
        client.feed(client.frame(HANDSHAKE, 0, handshake_body("PLAIN", 0)) + pack(">i", len(token)) + token)
        await answered(client, 2)
        assert (client.frames[1], client.principal) == (b"", "User:alice")


async def test_a_raw_token_of_gssapi_closes_the_connection() -> None:
    async with door() as cluster:
        client = LoginClient(cluster)
        client.send_token(b"\x60\x82\x02\x3e\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02")
        await settled()
        assert (client.hung_up, client.frames) == (True, [])


async def test_a_frame_is_small_before_a_login_and_large_after_it() -> None:
    async with door(sasl_server_max_receive_size=1024) as cluster:
        client = LoginClient(cluster)
        client.feed(pack(">i", 1025))
        assert client.hung_up
        client = LoginClient(cluster)
        await scram_login(client)
        client.feed(pack(">i", 1 << 20) + b"\x00\x03\x00\x09")
        assert not client.hung_up


async def test_a_recorded_login_does_not_open_another_connection() -> None:
    async with door() as cluster:
        user, tokens = scram(), []
        for replayed in (False, True):
            client = LoginClient(cluster)
            client.handshake()
            await answered(client, 1)
            if not replayed:
                tokens.append(user.first())
            client.authenticate(tokens[0])
            await answered(client, 2)
            if not replayed:
                tokens.append(user.final(client.authenticated.auth_bytes))
            client.authenticate(tokens[1])
            await answered(client, 3)
            assert client.authenticated.error_code == (58 if replayed else 0)
            assert client.principal == ("User:ANONYMOUS" if replayed else "User:alice")


async def test_an_unknown_mechanism_gets_the_list_and_the_end() -> None:
    async with door() as cluster:
        client = LoginClient(cluster)
        client.handshake("GSSAPI")
        await until(lambda: client.hung_up)
        assert client.handshaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert client.handshaken.mechanisms == EVERY.split(",")


@pytest.mark.parametrize("wrong", [{"password": "wrong"}, {"user": "nobody"}])
async def test_wrong_credentials_get_one_sentence_and_the_end(wrong: dict[str, str]) -> None:
    async with door() as cluster:
        client = LoginClient(cluster)
        await plain_login(client, **wrong)
        await until(lambda: client.hung_up)
        said = client.authenticated
        assert (said.error_code, said.error_message, said.auth_bytes) == (58, REFUSED + "PLAIN", b"")
        client = LoginClient(cluster)
        await scram_login(client, **wrong)
        await until(lambda: client.hung_up)
        assert (client.authenticated.error_code, client.authenticated.error_message) == (
            58,
            REFUSED + "SCRAM-SHA-256",
        )
        assert client.principal == "User:ANONYMOUS"


async def test_the_answer_to_wrong_credentials_is_delayed() -> None:
    async with door(connection_failed_authentication_delay_ms=10_000) as cluster:
        client = LoginClient(cluster)
        client.handshake("SCRAM-SHA-256")
        await settled()
        client.authenticate(b"nonsense")
        client.versions_asked()
        await settled()
        assert (len(client.frames), client.hung_up) == (1, False)
        client.leave()


async def test_the_delay_ends(audit: list[dict[str, Any]]) -> None:
    async with door(connection_failed_authentication_delay_ms=30) as cluster:
        client = LoginClient(cluster)
        client.handshake("SCRAM-SHA-256")
        await settled()
        client.authenticate(b"nonsense")
        assert lines(audit, "authentication failed")
        assert not client.hung_up
        await until(lambda: client.hung_up)
        assert client.authenticated.error_code == 58


# ---- calls of SASL in other places


async def test_calls_of_sasl_to_a_listener_without_logins_are_an_illegal_state() -> None:
    async with door() as cluster:
        client = cluster.client()
        for version in (0, 1):
            client.ask(HANDSHAKE, version, handshake_body("PLAIN", version))
        for version in (0, 1, 2):
            client.ask(AUTHENTICATE, version, authenticate_body(b"x", version))
        await settled()
        bodies = [answer.body for answer in client.answers]
        for version in (0, 1):
            said = sasl_handshake.decode_response(bodies[version], version)
            assert (said.error_code, said.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
        for version in (0, 1, 2):
            late = sasl_authenticate.decode_response(bodies[2 + version], version)
            assert late.error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert late.error_message == "SaslAuthenticate request received after successful authentication"
        assert not client.hung_up


async def test_they_are_after_a_login_whose_session_does_not_end() -> None:
    async with door() as cluster:
        client = LoginClient(cluster)
        await scram_login(client)
        client.handshake()
        await answered(client, 4)
        assert client.handshaken.error_code == ErrorCode.ILLEGAL_SASL_STATE
        client.authenticate(b"x")
        await answered(client, 5)
        assert client.authenticated.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert not client.hung_up


# ---- bounds


async def test_a_login_that_takes_too_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with door(authentication_timeout_ms=1_000) as cluster:
        silent, half = LoginClient(cluster), LoginClient(cluster)
        half.handshake()
        known = LoginClient(cluster)
        await scram_login(known)
        await until(lambda: silent.hung_up and half.hung_up)
        assert cluster.door.gateway.metrics.hung_up.labels("authentication_timeout").value == 2
        assert not known.hung_up


async def test_frames_of_unauthenticated_connections_do_not_count_as_those_of_clients() -> None:
    async with door(memory_bytes=16 << 20) as cluster:
        gateway = cluster.door.gateway
        for _ in range(40):
            client = LoginClient(cluster)
            client.feed(pack(">i", 500_000) + bytes(100_000))
        assert gateway.requests.used_bytes == 0
        assert gateway.unauthenticated.memory.used_bytes > 0
        known = cluster.client()
        known.feed(known.frame(METADATA, 9, METADATA_BODY))
        stream = cluster.stream(Backend.ADMIN, 1, "control")
        await until(lambda: len(stream.sent) == 1)


async def test_what_a_client_holds_is_counted_once_it_has_logged_in() -> None:
    async with door() as cluster:
        gateway = cluster.door.gateway
        client = LoginClient(cluster)
        await plain_login(client)
        assert (gateway.unauthenticated.memory.used_bytes, gateway.requests.used_bytes) == (0, 0)
        client.feed(pack(">i", 1 << 20) + b"\x00\x03" + bytes(200_000))
        assert gateway.requests.used_bytes > 200_000
        assert gateway.unauthenticated.memory.used_bytes == 0
        client.leave()
        assert gateway.requests.used_bytes == 0


async def test_silent_connections_do_not_keep_out_those_that_log_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UnauthenticatedConnections.__init__, "__kwdefaults__", {"connections_max": 10})
    async with door(frontdoor_address_memory_percent=100) as cluster:
        known = LoginClient(cluster)
        await scram_login(known)
        silent = [LoginClient(cluster) for _ in range(15)]
        assert [one.hung_up for one in silent] == [True] * 5 + [False] * 10
        late = LoginClient(cluster)
        await scram_login(late)
        assert late.principal == "User:alice"
        assert not known.hung_up, "its place is its own"
        assert len(cluster.door.gateway.unauthenticated) == 9
        late.leave()
        assert len(cluster.door.gateway.unauthenticated) == 9


async def test_stale_users_are_no_reason_to_refuse_a_client(audit: list[dict[str, Any]]) -> None:
    users = alice()
    async with door(users) as cluster:
        known = LoginClient(cluster)
        await scram_login(known)
        users.fresh = False
        client = LoginClient(cluster)
        client.handshake("PLAIN")
        await settled()
        client.authenticate(plain())
        await settled()
        assert (client.hung_up, len(client.frames)) == (True, 1), "closed without an error code"
        counts = cluster.door.gateway.metrics.authentications
        assert counts.labels("PLAIN", "unavailable").value == 1
        assert lines(audit, "login not possible")
        assert not known.hung_up


async def test_a_client_that_leaves_during_a_check_leaves_nothing_behind() -> None:
    async with door() as cluster:
        client = LoginClient(cluster)
        client.handshake("PLAIN")
        await settled()
        client.authenticate(plain(password="wrong"))
        assert cluster.door.gateway.metrics.pending_authentications.value == 1
        client.leave()
        await until(lambda: cluster.door.gateway.metrics.pending_authentications.value == 0)
        assert client.connection.exchanges == {}
        assert cluster.door.gateway.unauthenticated.memory.used_bytes == 0


# ---- what is recorded


async def test_the_audit_log_has_logins_and_failures_with_their_cause(audit: list[dict[str, Any]]) -> None:
    async with door() as cluster:
        await plain_login(LoginClient(cluster))
        for name, password in (("nobody", "x"), (ALICE, "wrong"), (ALICE, "wrong")):
            await plain_login(LoginClient(cluster), user=name, password=password)
        counts = cluster.door.gateway.metrics.authentications
        assert counts.labels("PLAIN", "authenticated").value == 1
        assert counts.labels("PLAIN", "refused").value == 3
    (good,) = lines(audit, "authenticated")
    assert good["log_level"] == "info"
    assert {name: good[name] for name in ("principal", "mechanism", "host", "listener", "client_id")} == {
        "principal": "User:alice",
        "mechanism": "PLAIN",
        "host": "127.0.0.1",
        "listener": "PLAINTEXT",
        "client_id": "test",
    }
    failed = [
        (line["cause"], line["user"], line.get("repeated")) for line in lines(audit, "authentication failed")
    ]
    assert failed == [
        ("no such user", "nobody", None),
        ("wrong password", ALICE, None),
        ("wrong password", ALICE, 1),
    ]


async def test_no_secret_is_in_any_log(capfd: pytest.CaptureFixture[str]) -> None:
    """At debug level, with right and wrong credentials, and with messages that cannot be read."""
    secrets = [PASSWORD, "wrong-secret", "sesame"]
    token = Issuer().token()
    with structlog.testing.capture_logs() as logs:
        async with door(log_level="debug") as cluster:
            await plain_login(LoginClient(cluster))
            await plain_login(LoginClient(cluster), password="wrong-secret")
            await scram_login(LoginClient(cluster))
            for message in (
                b"sesame",
                b"\0sesame\0",
                b"n,,n=sesame",
                bearer(token),
                plain(password="sesame\0"),
            ):
                for mechanism in EVERY.split(","):
                    client = LoginClient(cluster)
                    client.handshake(mechanism, version=0)
                    await settled()
                    client.send_token(message)
                    await until(lambda: client.hung_up)  # noqa: B023
            client = LoginClient(cluster)
            client.send_token(plain(password="sesame"))
            await settled()
    assert lines(logs, "authenticated")  # type: ignore[arg-type]
    shown = json.dumps(logs, default=repr) + "".join(capfd.readouterr())
    for secret in (*secrets, *token.split(".")):
        assert secret not in shown.replace('"user": "sesame"', ""), "a name is no secret"


def test_settings_are_checked() -> None:
    complete = {
        "sasl_enabled_mechanisms": "EXTERNAL=OAUTHBEARER;PLAIN,SCRAM-SHA-512",
        "sasl_oauthbearer_jwks_endpoint_url": "https://issuer.example/keys",
        "sasl_oauthbearer_expected_issuer": ISSUER,
        "sasl_oauthbearer_expected_audience": "a, b",
    }
    settings = FrontdoorSettings(**complete)  # type: ignore[arg-type]
    assert settings.sasl_oauthbearer_expected_audience == ("a", "b")
    for name in complete:
        if name != "sasl_enabled_mechanisms":
            with pytest.raises(ValueError, match="OAUTHBEARER needs"):
                FrontdoorSettings(**{each: value for each, value in complete.items() if each != name})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is not one of SCRAM-SHA-256"):
        FrontdoorSettings(sasl_enabled_mechanisms="GSSAPI")
    with pytest.raises(ValueError, match="https:// or file:///"):
        FrontdoorSettings(sasl_oauthbearer_jwks_endpoint_url="http://issuer.example/keys")


async def test_a_password_on_a_plain_line_is_warned_about(audit: list[dict[str, Any]]) -> None:
    async with door(sasl_enabled_mechanisms="A=PLAIN,SCRAM-SHA-256") as cluster:
        authentication = cluster.door.authentication
        assert authentication is not None
        authentication.of("A", encrypted=True)
        authentication.of("B", encrypted=False)
        assert not lines(audit, "passwords of SASL/PLAIN cross the network as plain text")
        assert list(authentication.of("A", encrypted=False).rules.mechanisms) == ["PLAIN"]
        (line,) = lines(audit, "passwords of SASL/PLAIN cross the network as plain text")
        assert line["listener"] == "A"


async def test_without_logins_no_memory_is_set_aside() -> None:
    async with Cluster.running() as without, door() as with_them:
        shares = [one.door.gateway.requests for one in (without, with_them)]
        assert without.door.authentication is None
        assert shares[0]._large.bytes_max > shares[1]._large.bytes_max


async def test_draining_ends_a_login_that_is_under_way() -> None:
    async with door() as cluster:
        client = LoginClient(cluster)
        client.handshake()
        await settled()
        await asyncio.wait_for(cluster.door.gateway.drain(5_000), 5)
        assert client.hung_up


async def test_the_framing_after_a_login_is_that_of_clients() -> None:
    async with door() as cluster:
        client = LoginClient(cluster)
        assert client.connection._machine._framing is Framing.SINGLE
        await plain_login(client)
        assert client.connection._machine._framing is Framing.PIPELINED
