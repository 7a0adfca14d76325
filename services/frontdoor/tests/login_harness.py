"""Users, tokens and clients of logins: a fake source of credentials, an issuer of tokens, a client without a socket."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from struct import pack, unpack_from
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from door_harness import Cluster, FakeClient, settled, until
from kafscale.access.decoys import Forms, Weights
from kafscale.access.scram_credentials import (
    SALT_BITS,
    ScramCredential,
    ScramMechanism,
    credential_of_password,
    salt_of,
)
from kafscale.frontdoor.api import Backend
from kafscale.testkit.scram_client import ScramClient
from kafscale.wire.headers import decode_response_header
from kafscale.wire.schema import api_versions, metadata, sasl_authenticate, sasl_handshake

API_VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA = 18, 17, 36, 3
ALICE, PASSWORD = "alice", "alice-secret"
ISSUER, AUDIENCE = "https://issuer.example", "kafscale"


@dataclass(frozen=True)
class Stored:
    credential: ScramCredential
    revision: int


LEAST_SALT = 1 << (SALT_BITS - 1)
"""Salts have the usual length, because the length of an answer changes its time."""


@dataclass
class FakeCredentials:
    """Implements CredentialSource."""

    users: dict[tuple[str, ScramMechanism], Stored] = field(default_factory=dict)
    fresh: bool = True
    decoy_key: bytes = b"decoy"
    revision: int = 0

    def add(self, user: str, password: str, *mechanisms: ScramMechanism, iterations: int = 4_096) -> None:
        for mechanism in mechanisms or ScramMechanism:
            self.revision += 1
            credential = credential_of_password(
                mechanism, password, salt=salt_of(LEAST_SALT + self.revision), iterations=iterations
            )
            self.users[user, mechanism] = Stored(credential, self.revision)

    def remove(self, user: str) -> None:
        for mechanism in ScramMechanism:
            self.users.pop((user, mechanism), None)

    def forms(self, mechanism: ScramMechanism) -> Weights:
        forms = Forms()
        for (_, each), stored in self.users.items():
            if each is mechanism:
                forms.replace(None, stored.credential)
        return forms.weights

    def credential(self, user: str, mechanism: ScramMechanism) -> Stored | None:
        return self.users.get((user, mechanism))


def alice() -> FakeCredentials:
    found = FakeCredentials()
    found.add(ALICE, PASSWORD)
    return found


class Issuer:
    """Signs tokens. `jwks` is what it publishes: an RSA key `rsa` and an EC key `ec`."""

    def __init__(self) -> None:
        self.rsa = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        self.ec = ec.generate_private_key(ec.SECP256R1())

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [
            self.entry("rsa", jwt.algorithms.RSAAlgorithm.to_jwk(self.rsa.public_key(), as_dict=True)),
            self.entry("ec", jwt.algorithms.ECAlgorithm.to_jwk(self.ec.public_key(), as_dict=True)),
        ]

    @staticmethod
    def entry(kid: str, key: dict[str, Any], **more: object) -> dict[str, Any]:
        public = {name: value for name, value in key.items() if name != "key_ops"}
        return {**public, "kid": kid, "use": "sig", **more}

    @property
    def jwks(self) -> bytes:
        return json.dumps({"keys": self.entries}).encode()

    def claims(self, **claims: object) -> dict[str, Any]:
        """None leaves a claim out."""
        now_s = int(time.time())
        whole = {"iss": ISSUER, "aud": AUDIENCE, "sub": ALICE, "exp": now_s + 3_600, "nbf": now_s, **claims}
        return {name: value for name, value in whole.items() if value is not None}

    def token(
        self,
        *,
        kid: str | None = "rsa",
        alg: str = "RS256",
        headers: dict[str, Any] | None = None,
        **claims: object,
    ) -> str:
        key = self.ec if alg.startswith("ES") else self.rsa
        named = {} if kid is None else {"kid": kid}
        return jwt.encode(self.claims(**claims), key, algorithm=alg, headers={**named, **(headers or {})})


def bearer(token: str, authorization_id: str = "") -> bytes:
    named = f"a={authorization_id}" if authorization_id else ""
    return f"n,{named},\x01auth=Bearer {token}\x01\x01".encode()


def plain(user: str = ALICE, password: str = PASSWORD, authorization_id: str = "") -> bytes:
    return f"{authorization_id}\0{user}\0{password}".encode()


def scram(user: str = ALICE, password: str = PASSWORD, hash_name: str = "sha256", **more: str) -> ScramClient:
    return ScramClient(hash_name, user, password, "clientnonce", **more)


def handshake_body(mechanism: str, version: int = 1) -> bytes:
    request = sasl_handshake.SaslHandshakeRequest(mechanism=mechanism)
    return b"".join(map(bytes, sasl_handshake.encode_request(request, version)))


def authenticate_body(token: bytes, version: int = 2) -> bytes:
    request = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=token)
    return b"".join(map(bytes, sasl_authenticate.encode_request(request, version)))


def versions_body(version: int = 3) -> bytes:
    request = api_versions.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return b"".join(map(bytes, api_versions.encode_request(request, version)))


class LoginClient(FakeClient):
    """A client of a listener with logins."""

    def __init__(self, cluster: Cluster, listener: str = "PLAINTEXT") -> None:
        assert cluster.door.authentication is not None
        super().__init__(cluster.door, cluster.door.authentication.of(listener, encrypted=True))

    def handshake(self, mechanism: str = "SCRAM-SHA-256", version: int = 1) -> int:
        return self.ask(HANDSHAKE, version, handshake_body(mechanism, version))

    def authenticate(self, token: bytes, version: int = 2) -> int:
        return self.ask(AUTHENTICATE, version, authenticate_body(token, version))

    def versions_asked(self) -> int:
        return self.ask(API_VERSIONS, 3, versions_body())

    def send_token(self, token: bytes) -> None:
        """Without a request header."""
        self.feed(pack(">i", len(token)) + token)

    @property
    def frames(self) -> list[bytes]:
        """Every answer so far, with its header."""
        found, out, position = [], bytes(self.transport.out), 0
        while position < len(out):
            (size,) = unpack_from(">i", out, position)
            found.append(out[position + 4 : position + 4 + size])
            position += 4 + size
        return found

    def _body(self, number: int = -1) -> tuple[bytes, int]:
        data = self.frames[number]
        (correlation_id,) = unpack_from(">i", data)
        key, version = self.versions[correlation_id]
        _, offset = decode_response_header(data, key, version)
        return data[offset:], version

    @property
    def handshaken(self) -> sasl_handshake.SaslHandshakeResponse:
        """The last answer."""
        return sasl_handshake.decode_response(*self._body())

    @property
    def authenticated(self) -> sasl_authenticate.SaslAuthenticateResponse:
        """The last answer."""
        return sasl_authenticate.decode_response(*self._body())

    @property
    def principal(self) -> str:
        return self.connection.caller.principal


USERS = alice()
EVERY = "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN"
METADATA_BODY = b"".join(map(bytes, metadata.encode_request(metadata.MetadataRequest(topics=[]), 9)))


@asynccontextmanager
async def door(credentials: FakeCredentials = USERS, **settings: Any) -> AsyncIterator[Cluster]:
    """Refusals come at once, unless a test is about their delay."""
    chosen = {"connection_failed_authentication_delay_ms": 0, "sasl_enabled_mechanisms": EVERY, **settings}
    async with Cluster.running(credentials=credentials, **chosen) as cluster:
        cluster.serve(Backend.ADMIN, 1)
        yield cluster


def lines(logs: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in logs if line["event"] == event]


async def answered(client: LoginClient, count: int) -> None:
    await until(lambda: len(client.frames) >= count)


async def scram_login(client: LoginClient, *, hash_name: str = "sha256", **more: str) -> None:
    before = len(client.frames)
    user = scram(hash_name=hash_name, **more)
    client.handshake(f"SCRAM-SHA-{hash_name.removeprefix('sha')}")
    await answered(client, before + 1)
    client.authenticate(user.first())
    await answered(client, before + 2)
    client.authenticate(user.final(client.authenticated.auth_bytes))
    await answered(client, before + 3)


async def plain_login(client: LoginClient, **more: str) -> None:
    before = len(client.frames)
    client.handshake("PLAIN")
    await answered(client, before + 1)
    client.authenticate(plain(**more))
    await answered(client, before + 2)


async def ask_admin(cluster: Cluster, client: LoginClient) -> Any:
    """A request that a service answers; the header with which it got there."""
    stream = cluster.stream(Backend.ADMIN, 1, "control")
    before = len(stream.sent)
    client.ask(METADATA, 9, METADATA_BODY)
    await until(lambda: len(stream.sent) > before)
    stream.sent[-1].reply(b"four")
    await settled()
    return stream.sent[-1].meta
