"""An issuer of tokens for SASL/OAUTHBEARER: its keys at /jwks, and /token for the grant of client credentials.

Law: it speaks https alone, with a certificate of its own CA, as issuers do.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from kafscale.testkit.authority import Authority

AUDIENCE = "kafscale"
TOKEN_S = 3_600
KEY_ID = "e2e"
REQUEST_BYTES_MAX = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIssuer:
    """`secrets`: of the clients that get tokens, by their names."""

    url: str
    ca: Path
    key: rsa.RSAPrivateKey = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)

    @property
    def jwks_url(self) -> str:
        return f"{self.url}/jwks"

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def jwks(self) -> bytes:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return json.dumps({"keys": [{**public, "kid": KEY_ID, "use": "sig"}]}).encode()

    def token(self, user: str) -> str:
        now_s = int(time.time())
        claims = {"iss": self.url, "aud": AUDIENCE, "sub": user, "iat": now_s, "exp": now_s + TOKEN_S}
        return jwt.encode(claims, self.key, algorithm="RS256", headers={"kid": KEY_ID})

    def grant(self, authorization: str) -> bytes | None:
        """The answer to a client that names itself with HTTP's Basic scheme; None: it has another secret."""
        name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if self.secrets.get(name) != secret:
            return None
        granted = {"access_token": self.token(name), "token_type": "Bearer", "expires_in": TOKEN_S}
        return json.dumps(granted).encode()


@contextmanager
def issuing(folder: Path, secrets: Mapping[str, str]) -> Iterator[TokenIssuer]:
    """Runs in the block."""
    authority = Authority(folder)
    files = authority.issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        url = f"https://localhost:{server.server_address[1]}"
        issuer = TokenIssuer(url=url, ca=authority.ca, key=key, secrets=secrets)
        server.RequestHandlerClass = _handler(issuer)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()


def _handler(issuer: TokenIssuer) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            self._answer(issuer.jwks() if self.path == "/jwks" else None, 404)

        def do_POST(self) -> None:
            self.rfile.read(min(int(self.headers.get("Content-Length", 0)), REQUEST_BYTES_MAX))
            self._answer(issuer.grant(self.headers.get("Authorization", "")), 401)

        def _answer(self, document: bytes | None, refusal: int) -> None:
            if document is None:
                self.send_error(refusal)
                return
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(document)))
            self.end_headers()
            self.wfile.write(document)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Says nothing: a client's request has a secret."""

    return Handler
