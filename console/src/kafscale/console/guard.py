"""Which requests the console answers at all, and the headers of every answer. Pure.

Law S1: a request whose Host is not a name of this console gets 403 before anything else. Otherwise a web site could
point its name at 127.0.0.1 and read the console through a visitor's browser (DNS rebinding).

Law S2: a request that is not a plain read needs a JSON body, the header MARKER, and an Origin that is the console's
own. A page of another site can send none of them without a permission that this server never gives (CORS).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})
MARKER: Final = "X-KafScale-Console"
MARK: Final = "1"
JSON: Final = "application/json"
SAFE: Final = frozenset({"GET", "HEAD"})
_SAME_SITE: Final = frozenset({"same-origin", "none"})
"""Values of Sec-Fetch-Site. `none`: the person typed the address."""


@dataclass(frozen=True, slots=True)
class Door:
    """Where the console is. `hosts`: its names without a port. `only`: if set, the one `scheme://host[:port]` that the
    proxy in front of it has; other Hosts are refused."""

    hosts: frozenset[str]
    tls: bool = False
    only: str | None = None

    @property
    def encrypted(self) -> bool:
        """Whether browsers reach it by https."""
        return self.tls or (self.only is not None and self.only.startswith("https://"))

    def origin(self, host: str) -> str | None:
        """Of a request with this Host; None if the Host is not the console's."""
        if self.only is not None:
            return self.only if host.lower() == urlsplit(self.only).netloc else None
        return f"{'https' if self.tls else 'http'}://{host}" if _name(host) in self.hosts else None


@dataclass(frozen=True, slots=True)
class Refusal:
    status: HTTPStatus
    error: str
    sentence: str


def refusal(door: Door, method: str, headers: Mapping[str, str]) -> Refusal | None:
    """None: the request may go on. `headers` are looked up without regard to case, as aiohttp's are."""
    origin = door.origin(headers.get("Host", ""))
    if origin is None:
        return Refusal(HTTPStatus.FORBIDDEN, "wrong_host", "the console does not have this name")
    site = headers.get("Sec-Fetch-Site")
    if method in SAFE:
        # A link from another site may open a page, and nothing else of another site may read.
        if site in (None, *_SAME_SITE) or headers.get("Sec-Fetch-Mode") == "navigate":
            return None
        return Refusal(HTTPStatus.FORBIDDEN, "other_site", "another site asked, not the console's own page")
    if headers.get("Origin") != origin or site not in (None, "same-origin"):
        return Refusal(HTTPStatus.FORBIDDEN, "other_site", "another site asked, not the console's own page")
    if headers.get(MARKER) != MARK:
        return Refusal(HTTPStatus.FORBIDDEN, "no_marker", f"a change needs the header {MARKER}: {MARK}")
    if headers.get("Content-Type", "").partition(";")[0].strip().lower() != JSON:
        return Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "not_json", f"the body must be {JSON}")
    return None


def policy(inline: str) -> str:
    """The Content-Security-Policy of a page with this one inline script."""
    digest = b64encode(sha256(inline.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )


def answer_headers(door: Door, csp: str) -> dict[str, str]:
    """Of every answer."""
    found = {
        "Content-Security-Policy": csp,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
    if door.encrypted:
        found["Strict-Transport-Security"] = "max-age=31536000"
    return found


def _name(host: str) -> str:
    """Without the port. `[::1]:8480` is `[::1]`."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() else host).lower()
