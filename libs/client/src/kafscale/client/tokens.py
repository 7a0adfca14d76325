"""Tokens for OAUTHBEARER: from a file, or from an issuer for a client's id and secret (RFC 6749, section 4.4).

As Kafka's OAuthBearerLoginCallbackHandler: `sasl.oauthbearer.token.endpoint.url` is `file:///…` or `https://…`. A
token is not looked into; the server does that.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlencode, urlsplit

TIMEOUT_S: Final = 15.0
ANSWER_BYTES_MAX: Final = 1 << 20
FILE_LIFETIME_S: Final = 300.0
"""After this time the file is read again: another program may have renewed it."""
_OK: Final = 200


class TokenTrouble(Exception):
    """There is no token. The text says why, and has no secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSource:
    url: str
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    scope: str | None = None

    def __post_init__(self) -> None:
        kind = urlsplit(self.url).scheme
        if kind not in ("file", "https"):
            raise TokenTrouble("sasl.oauthbearer.token.endpoint.url must be https://… or file:///…")
        if kind == "https" and not (self.client_id and self.client_secret):
            raise TokenTrouble("OAUTHBEARER needs clientId and clientSecret in sasl.jaas.config")


def fetch_token(source: TokenSource) -> tuple[str, float]:
    """The token, and the time in seconds (of the epoch) at which it must be fetched again. Blocks.

    Raises TokenTrouble.
    """
    import http.client

    url = urlsplit(source.url)
    try:
        if url.scheme == "file":
            return Path(unquote(url.path)).read_text("ascii").strip(), time.time() + FILE_LIFETIME_S
        answer = _asked(source)
    except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
        raise TokenTrouble(f"no token from {url.scheme}://{url.netloc}{url.path}: {error}") from error
    token, lifetime_s = answer.get("access_token"), answer.get("expires_in", FILE_LIFETIME_S)
    if not isinstance(token, str) or not isinstance(lifetime_s, int | float):
        raise TokenTrouble(f"the answer of {url.netloc} has no access_token")
    return token, time.time() + lifetime_s


def _asked(source: TokenSource) -> dict[str, object]:
    """The issuer's answer. No redirect is followed: the secret is for this address alone."""
    import http.client
    import ssl

    url = urlsplit(source.url)
    assert url.hostname is not None, "an https address has a host"
    secret = b64encode(f"{source.client_id}:{source.client_secret}".encode()).decode()
    form = {"grant_type": "client_credentials"} | ({"scope": source.scope} if source.scope else {})
    headers = {
        "Authorization": f"Basic {secret}",
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    connection = http.client.HTTPSConnection(
        url.hostname, url.port, timeout=TIMEOUT_S, context=ssl.create_default_context()
    )
    try:
        path = url.path or "/"
        connection.request("POST", f"{path}?{url.query}" if url.query else path, urlencode(form), headers)
        answer = connection.getresponse()
        body = answer.read(ANSWER_BYTES_MAX)
    finally:
        connection.close()
    if answer.status != _OK:
        raise TokenTrouble(f"{url.netloc} answers {answer.status} to the request for a token")
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
