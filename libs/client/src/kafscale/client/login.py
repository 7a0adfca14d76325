"""The client's side of SASL, for requests that `request.py` writes. Pure: tokens in, tokens out.

Law: the client has logged in only when the server has proved that it knows the user's keys (SCRAM). A server cannot
make the client compute without end.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Generator
from hashlib import pbkdf2_hmac
from hmac import compare_digest
from typing import Final

from kafscale.access.scram_credentials import ITERATIONS_DEFAULT, ScramMechanism, credential_of_salted
from kafscale.client.security import PasswordLogin

ITERATIONS_MAX: Final = 1_000_000

Tokens = Generator[bytes, bytes, None]
"""Yields what the client sends, and is sent what the server answers. It returns after a good end."""


class LoginFailed(OSError):
    """The server refuses the login, or it is not a server that knows the user."""


def tokens_of(login: PasswordLogin, nonce: str) -> Tokens:
    """`nonce` is random and fresh."""
    if login.mechanism == "PLAIN":
        return _plain(login)
    return _scram(login, nonce)


def bearer(token: str) -> Tokens:
    """OAUTHBEARER (RFC 7628). A server that refuses the token says so, and gets an empty message before it ends."""
    refused = yield b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
    if refused:
        yield b"\x01"
        raise LoginFailed("the server refuses the token")


def _plain(login: PasswordLogin) -> Tokens:
    yield b"\0" + login.user.encode() + b"\0" + login.password.encode()


def _scram(login: PasswordLogin, nonce: str) -> Tokens:
    """RFC 5802, without SASLprep, as Kafka's ScramSaslClient."""
    mechanism = next(each for each in ScramMechanism if each.sasl_name == login.mechanism)
    bare = f"n={login.user.replace('=', '=3D').replace(',', '=2C')},r={nonce}".encode()
    challenge = yield b"n,," + bare
    salt, iterations, whole_nonce = _read_challenge(challenge, nonce)
    salted = pbkdf2_hmac(mechanism.hash_name, login.password.encode(), salt, iterations)
    credential = credential_of_salted(mechanism, salted, salt=salt, iterations=iterations)
    final = b"c=biws,r=" + whole_nonce
    signed = b",".join((bare, challenge, final))
    signature = mechanism.hmac(credential.stored_key, signed)
    client_key = mechanism.hmac(salted, b"Client Key")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    proved = yield final + b",p=" + b64encode(proof)
    if not compare_digest(proved, b"v=" + b64encode(mechanism.hmac(credential.server_key, signed))):
        raise LoginFailed("the server does not know the user's keys")


def _read_challenge(challenge: bytes, nonce: str) -> tuple[bytes, int, bytes]:
    """Salt, iterations, and both nonces. A server could ask for few iterations to guess the password later."""
    fields = dict(part.partition(b"=")[::2] for part in challenge.split(b","))
    try:
        salt, iterations = b64decode(fields[b"s"], validate=True), int(fields[b"i"])
        whole_nonce = fields[b"r"]
    except (KeyError, ValueError):
        raise LoginFailed("the server's challenge is not SCRAM's") from None
    if not whole_nonce.startswith(nonce.encode()) or len(whole_nonce) == len(nonce):
        raise LoginFailed("the server's nonce does not begin with the client's")
    if not ITERATIONS_DEFAULT <= iterations <= ITERATIONS_MAX:
        raise LoginFailed(f"the server asks for {iterations} iterations")
    return salt, iterations, whole_nonce
