"""Requests by hand with TLS and a login. The server's side of SCRAM is that of front doors."""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from kafscale.access.protocol import SecurityProtocol
from kafscale.access.scram import Authenticated, Challenge, ScramServer
from kafscale.access.scram_credentials import ScramMechanism, credential_of_password
from kafscale.client.login import LoginFailed, bearer, tokens_of
from kafscale.client.request import request
from kafscale.client.security import ClientSecurity, PasswordLogin, Pem
from kafscale.client.tokens import FILE_LIFETIME_S, TokenSource, TokenTrouble, fetch_token
from kafscale.testkit.authority import Authority
from kafscale.wire.headers import decode_request_header
from kafscale.wire.schema import list_groups, sasl_authenticate, sasl_handshake

PASSWORD = "correct, horse=battery"
USER = "al,i=ce"
SALT = b"w7qexy5ng3rkkzoqoy8hjzkyus"
GROUPS_VERSION = 5


def server_of(mechanism: ScramMechanism, password: str = PASSWORD) -> ScramServer:
    known = {USER: credential_of_password(mechanism, password, salt=SALT)}
    return ScramServer(mechanism, known.get, server_nonce="server", decoy_key=b"k" * 32)


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_a_client_logs_in_at_the_servers_side_of_scram(mechanism: ScramMechanism) -> None:
    server = server_of(mechanism)
    tokens = tokens_of(PasswordLogin(mechanism.sasl_name, USER, PASSWORD), "nonce")
    challenge = server.receive(next(tokens))
    assert isinstance(challenge, Challenge)
    verdict = server.receive(tokens.send(challenge.token))
    assert isinstance(verdict, Authenticated)
    assert verdict.user == USER
    with pytest.raises(StopIteration):
        tokens.send(verdict.token)


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"r=nonceserver,s=c2FsdA==,i=4095", "4095 iterations"),
        (b"r=nonceserver,s=c2FsdA==,i=2000000000", "2000000000 iterations"),
        (b"r=nonce,s=c2FsdA==,i=4096", "nonce"),
        (b"r=serverserver,s=c2FsdA==,i=4096", "nonce"),
        (b"r=nonceserver,s=c2FsdA==", "not SCRAM's"),
        (b"r=nonceserver,s=?,i=4096", "not SCRAM's"),
        (b"e=unknown-user", "not SCRAM's"),
    ],
)
def test_a_client_ends_at_a_challenge_that_no_honest_server_sends(challenge: bytes, reason: str) -> None:
    tokens = tokens_of(PasswordLogin("SCRAM-SHA-256", "alice", PASSWORD), "nonce")
    next(tokens)
    with pytest.raises(LoginFailed, match=reason):
        tokens.send(challenge)


def test_a_server_that_does_not_know_the_user_is_not_believed() -> None:
    tokens = tokens_of(PasswordLogin("SCRAM-SHA-256", "alice", PASSWORD), "nonce")
    next(tokens)
    tokens.send(b"r=nonceserver,s=c2FsdA==,i=4096")
    with pytest.raises(LoginFailed, match="does not know"):
        tokens.send(b"v=AAAA")


def test_a_refused_token_is_acknowledged_before_the_end() -> None:
    tokens = bearer("t.o.ken")
    assert next(tokens) == b"n,,\x01auth=Bearer t.o.ken\x01\x01"
    assert tokens.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(LoginFailed):
        tokens.send(b"")


class Broker:
    """Answers ListGroups to clients that have logged in by SCRAM-SHA-256, over TLS."""

    def __init__(self, password: str = PASSWORD) -> None:
        self._password = password

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scram = server_of(ScramMechanism.SCRAM_SHA_256, self._password)
        logged_in = False
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                header, at = decode_request_header(frame)
                body: list[bytes | bytearray | memoryview]
                if header.api_key == sasl_handshake.API_KEY:
                    handshake = sasl_handshake.SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"])
                    handshake.error_code = 33 * (b"SCRAM-SHA-256" not in frame)
                    body = [*sasl_handshake.encode_response(handshake, header.api_version)]
                elif header.api_key == sasl_authenticate.API_KEY:
                    asked = sasl_authenticate.decode_request(memoryview(frame)[at:], header.api_version)
                    verdict = scram.receive(bytes(asked.auth_bytes))
                    logged_in = isinstance(verdict, Authenticated)
                    answer = sasl_authenticate.SaslAuthenticateResponse(error_code=58, error_message="no")
                    if isinstance(verdict, Authenticated | Challenge):
                        answer = sasl_authenticate.SaslAuthenticateResponse(auth_bytes=verdict.token)
                    body = [*sasl_authenticate.encode_response(answer, header.api_version)]
                else:
                    assert logged_in
                    group = list_groups.ListGroupsResponseListedGroup(group_id="g")
                    groups = list_groups.ListGroupsResponse(groups=[group])
                    body = [b"\0", *list_groups.encode_response(groups, header.api_version)]
                reply = struct.pack(">i", header.correlation_id) + b"".join(map(bytes, body))
                writer.write(struct.pack(">i", len(reply)) + reply)
        except asyncio.IncompleteReadError:
            pass  # the client has left
        finally:
            writer.close()


async def groups_of(tls: Authority, broker: Broker, security: ClientSecurity) -> list[str]:
    files = tls.issue("127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    async with await asyncio.start_server(broker.serve, "127.0.0.1", 0, ssl=context) as server:
        address = server.sockets[0].getsockname()
        message = list_groups.ListGroupsRequest(states_filter=[], types_filter=[])
        answer = await request(address, list_groups, message, GROUPS_VERSION, security=security)
    return [group.group_id for group in answer.groups]


def security_of(authority: Authority, mechanism: str = "SCRAM-SHA-256") -> ClientSecurity:
    login = PasswordLogin(mechanism, USER, PASSWORD)
    return ClientSecurity(protocol=SecurityProtocol.SASL_SSL, trust=Pem(path=authority.ca), login=login)


async def test_a_request_by_hand_encrypts_and_logs_in(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    assert await groups_of(authority, Broker(), security_of(authority)) == ["g"]


async def test_a_request_by_hand_is_not_sent_without_trust_and_login(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with pytest.raises(LoginFailed, match="no"):
        await groups_of(authority, Broker("another password"), security_of(authority))
    with pytest.raises(LoginFailed, match="the server offers SCRAM-SHA-256, not PLAIN"):
        await groups_of(authority, Broker(), security_of(authority, "PLAIN"))
    with pytest.raises(ssl.SSLCertVerificationError):
        await groups_of(authority, Broker(), security_of(Authority(tmp_path / "other")))


def test_a_token_in_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "to ken"
    source = TokenSource(url=path.as_uri())
    with pytest.raises(TokenTrouble, match="No such file"):
        fetch_token(source)
    for token in ("one", "two"):
        path.write_text(f"{token}\n")
        found, until = fetch_token(source)
        assert found == token
        assert 0 < until - time.time() <= FILE_LIFETIME_S


@contextmanager
def issuer(authority: Authority, status: int, answer: object) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Its address, and what it was asked: authorization and body."""
    asked: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.headers["Authorization"], body))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: object) -> None:
            """To nobody."""

    files = authority.issue("localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"https://localhost:{server.server_port}/token", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_token_comes_from_the_issuer_for_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    with issuer(authority, 200, {"access_token": "abc", "expires_in": 60}) as (url, asked):
        source = TokenSource(url=url, client_id="id", client_secret="hush", scope="kafka")
        token, until = fetch_token(source)
    assert token == "abc"
    assert 0 < until - time.time() <= 60
    assert asked == [("Basic aWQ6aHVzaA==", "grant_type=client_credentials&scope=kafka")]
    token_like = {"access_token": "not for us"}
    for status, answer in ((401, token_like), (302, token_like), (200, {}), (200, [])):
        with issuer(authority, status, answer) as (url, _), pytest.raises(TokenTrouble) as trouble:
            fetch_token(TokenSource(url=url, client_id="id", client_secret="hush"))
        assert "hush" not in str(trouble.value)
    monkeypatch.delenv("SSL_CERT_FILE")
    with issuer(authority, 200, {}) as (url, asked):
        with pytest.raises(TokenTrouble, match="certificate"):
            fetch_token(TokenSource(url=url, client_id="id", client_secret="hush"))
        assert asked == []
