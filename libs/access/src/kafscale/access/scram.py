"""The server's side of SASL/SCRAM: client-first, server-first, client-final, server-final (RFC 5802; ScramSaslServer).

States and what a message does in them:
- FIRST: a good client-first message → server-first, FINAL. Everything else → failure, ENDED.
- FINAL: a client-final message with the right nonce and proof → server-final, ENDED. Everything else → failure, ENDED.
- ENDED: every message → failure.

A user who does not exist gets a salt and fails at the proof, after the same computation. As in Kafka, there is no
SASLprep, names are ASCII with `=2C` for a comma and `=3D` for an equals sign, and the channel binding flag is `n`.
Unlike Kafka, the server compares the channel binding in client-final, verifies the client's own bytes with all
extensions, and refuses delegation tokens, because it has none.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from hmac import compare_digest
from typing import Final

from kafscale.access.decoys import USUAL, Weights, decoy_credential
from kafscale.access.scram_credentials import ScramCredential, ScramMechanism

Credentials = Callable[[str], ScramCredential | None]
"""The credential of a user for the mechanism, from what is in memory. None: there is no such user."""

_NAME: Final = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_NONCE: Final = rb"[\x21-\x2b\x2d-\x7e]+"
_EXTENSION: Final = rb",[A-Za-z]+=[\x01-\x2b\x2d-\x7f]+"
_BASE_64: Final = rb"[A-Za-z0-9/+]*={0,2}"
_CLIENT_FIRST: Final = re.compile(
    rb"(?P<header>(?P<flag>n|y|p=[A-Za-z0-9.-]+),(?:a=(?P<authzid>%b))?,)"
    rb"(?P<bare>n=(?P<name>%b),r=(?P<nonce>%b)(?P<extensions>(?:%b)*))" % (_NAME, _NAME, _NONCE, _EXTENSION)
)
_CLIENT_FINAL: Final = re.compile(
    rb"(?P<bare>c=(?P<binding>%b),r=(?P<nonce>%b)(?:%b)*?),p=(?P<proof>%b)"
    % (_BASE_64, _NONCE, _EXTENSION, _BASE_64)
)


class Failure(Enum):
    """Why a client was refused: for the audit log and the metrics. The client gets the same sentence for all causes."""

    MALFORMED = "malformed message"
    CHANNEL_BINDING = "channel binding is not supported"
    TOKEN = "delegation tokens are not supported"  # noqa: S105  (a sentence)
    AUTHORIZATION_ID = "the authorization id is not the user"
    NONCE = "the nonce is not the server's"
    UNKNOWN_USER = "no such user"
    PROOF = "wrong password"
    ENDED = "the exchange has ended"


@dataclass(frozen=True, slots=True)
class Challenge:
    """The server-first message: the client is asked for its proof."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The server-final message, and the user's name: the principal is `User:name`."""

    token: bytes
    user: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The connection is answered SASL_AUTHENTICATION_FAILED. `user` is set if the client has named one."""

    why: Failure
    user: str | None = None


@dataclass(frozen=True, slots=True)
class _Exchange:
    """What the first two messages have fixed."""

    user: str
    credential: ScramCredential
    known: bool
    header: bytes
    nonce: bytes
    signed: bytes
    """client-first-bare and server-first, joined by a comma."""


class ScramServer:
    """One authentication. `server_nonce` is random, fresh, and printable ASCII without commas."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        credentials: Credentials,
        *,
        server_nonce: str,
        decoy_key: bytes,
        forms: Weights = USUAL,
    ) -> None:
        self._mechanism = mechanism
        self._credentials = credentials
        self._server_nonce = server_nonce.encode()
        self._decoy_key = decoy_key
        self._forms = forms
        self._exchange: _Exchange | None = None
        self._decoy: ScramCredential | None = None
        self._ended = False
        assert re.fullmatch(_NONCE, self._server_nonce), (
            "the server's nonce has a character that SCRAM forbids"
        )

    def receive(self, message: bytes) -> Challenge | Authenticated | Failed:
        """The answer to the next message. A mistake of the client is a value, never an exception."""
        if self._ended:
            return Failed(Failure.ENDED)
        answer = self._first(message) if self._exchange is None else self._final(message, self._exchange)
        self._ended = not isinstance(answer, Challenge)
        return answer

    def _first(self, message: bytes) -> Challenge | Failed:
        found = _CLIENT_FIRST.fullmatch(message)
        if found is None:
            return Failed(Failure.MALFORMED)
        user = _unescaped(found["name"])
        if found["flag"] != b"n":
            return Failed(Failure.CHANNEL_BINDING, user)
        if b"tokenauth=true" in found["extensions"].lower().split(b","):
            return Failed(Failure.TOKEN, user)
        if found["authzid"] is not None and _unescaped(found["authzid"]) != user:
            return Failed(Failure.AUTHORIZATION_ID, user)
        # Both are computed for every user, so that the time does not show who exists. The decoy is also kept for every
        # user: it would be freed here for users who exist only, which takes time.
        decoy = self._decoy = decoy_credential(
            self._mechanism, user, key=self._decoy_key, weights=self._forms
        )
        held = self._credentials(user)
        credential = decoy if held is None else held
        nonce = found["nonce"] + self._server_nonce
        token = b"r=%b,s=%b,i=%d" % (nonce, b64encode(credential.salt), credential.iterations)
        self._exchange = _Exchange(
            user, credential, held is not None, found["header"], nonce, b"%b,%b" % (found["bare"], token)
        )
        return Challenge(token)

    def _final(self, message: bytes, exchange: _Exchange) -> Authenticated | Failed:
        found = _CLIENT_FINAL.fullmatch(message)
        proof = None if found is None else _decoded(found["proof"])
        binding = None if found is None else _decoded(found["binding"])
        if found is None or proof is None or binding is None:
            return Failed(Failure.MALFORMED, exchange.user)
        if binding != exchange.header:
            return Failed(Failure.CHANNEL_BINDING, exchange.user)
        if not compare_digest(found["nonce"], exchange.nonce):
            return Failed(Failure.NONCE, exchange.user)
        signed = b"%b,%b" % (exchange.signed, found["bare"])
        proved = self._proves(exchange.credential, signed, proof)
        signature = self._mechanism.hmac(exchange.credential.server_key, signed)
        if not exchange.known:
            return Failed(Failure.UNKNOWN_USER, exchange.user)
        if not proved:
            return Failed(Failure.PROOF, exchange.user)
        return Authenticated(b"v=" + b64encode(signature), exchange.user)

    def _proves(self, credential: ScramCredential, signed: bytes, proof: bytes) -> bool:
        """True if the proof is the client key, hidden by the signature: its hash is the StoredKey."""
        signature = self._mechanism.hmac(credential.stored_key, signed)
        if len(proof) != len(signature):
            return False
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        return compare_digest(self._mechanism.hash(client_key), credential.stored_key)


def _unescaped(name: bytes) -> str:
    """The user's name. The pattern has checked that an equals sign begins `=2C` or `=3D`."""
    return name.decode("ascii").replace("=2C", ",").replace("=3D", "=")


def _decoded(text: bytes) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None
