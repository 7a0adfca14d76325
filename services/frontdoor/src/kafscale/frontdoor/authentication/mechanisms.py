"""The server's side of the mechanisms, as the machine asks for it: SCRAM by access.scram, PLAIN, OAUTHBEARER. Pure.

Laws: a message is at most `MESSAGE_BYTES_MAX` long, and one with a token `TOKEN_BYTES_MAX`. A longer one is refused
before anything is computed with it. Passwords and tokens appear in no repr. After a failure of OAUTHBEARER the client
gets RFC 7628's challenge, and then, whatever it sends, the refusal, as from Kafka's OAuthBearerSaslServer.
"""

import re
from collections.abc import Callable
from typing import Final, assert_never

from kafscale.access.scram import Authenticated, Challenge, Failed, Failure, ScramServer
from kafscale.access.scram_credentials import ScramCredential, ScramMechanism
from kafscale.frontdoor.authentication.credentials import CredentialSource
from kafscale.frontdoor.authentication.steps import (
    Cause,
    PasswordCheck,
    Proceed,
    Proved,
    Refused,
    Step,
    TokenCheck,
    Unavailable,
    Verdict,
    Verify,
)

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
SCRAM: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
MECHANISMS: Final = (*SCRAM, PLAIN, OAUTHBEARER)

MESSAGE_BYTES_MAX: Final = 4_096
TOKEN_BYTES_MAX: Final = 32 << 10
EXTENSIONS_MAX: Final = 64
INVALID_TOKEN: Final = '{"status":"invalid_token"}'  # noqa: S105  (what a client gets)
STALE: Final = "the stored users are not known to be current"

_SCRAM_CAUSES: Final = {
    Failure.MALFORMED: Cause.MALFORMED,
    Failure.CHANNEL_BINDING: Cause.CHANNEL_BINDING,
    Failure.TOKEN: Cause.DELEGATION,
    Failure.AUTHORIZATION_ID: Cause.AUTHORIZATION_ID,
    Failure.NONCE: Cause.NONCE,
    Failure.UNKNOWN_USER: Cause.UNKNOWN_USER,
    Failure.PROOF: Cause.WRONG_PASSWORD,
    Failure.ENDED: Cause.ENDED,
}
_BEARER: Final = re.compile(r"bearer +(?P<token>[-_.a-zA-Z0-9]+)", re.IGNORECASE)
_AUTHORIZATION_ID: Final = re.compile(r"a=(?P<name>(?:[^=,]|=2C|=3D)+)")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")


class ScramExchange:
    def __init__(self, mechanism: ScramMechanism, source: CredentialSource, server_nonce: str) -> None:
        """`server_nonce` is random and fresh."""
        self._source = source
        self._server = ScramServer(
            mechanism,
            self._lookup(mechanism),
            server_nonce=server_nonce,
            decoy_key=source.decoy_key,
            forms=source.forms(mechanism),
        )

    def _lookup(self, mechanism: ScramMechanism) -> Callable[[str], ScramCredential | None]:
        def credential(user: str) -> ScramCredential | None:
            stored = self._source.credential(user, mechanism)
            return None if stored is None else stored.credential

        return credential

    def receive(self, message: bytes) -> Step:
        if not self._source.fresh:
            return Unavailable(STALE)
        if len(message) > MESSAGE_BYTES_MAX:
            return Refused(Cause.MALFORMED)
        answer = self._server.receive(message)
        match answer:
            case Challenge(token):
                return Proceed(token)
            case Authenticated(token, user):
                return Proved(user, token)
            case Failed(why, user):
                return Refused(_SCRAM_CAUSES[why], user)
            case _ as never:
                assert_never(never)

    def verified(self, verdict: Verdict) -> Step:
        raise AssertionError("SCRAM needs no check")


class PlainExchange:
    """RFC 4616: one message, `[authzid] NUL authcid NUL passwd`."""

    def __init__(self, source: CredentialSource) -> None:
        self._source = source

    def receive(self, message: bytes) -> Step:
        if not self._source.fresh:
            return Unavailable(STALE)
        if len(message) > MESSAGE_BYTES_MAX:
            return Refused(Cause.MALFORMED)
        try:
            parts = message.decode().split("\0")
        except UnicodeDecodeError:
            return Refused(Cause.MALFORMED)
        if len(parts) != 3 or not parts[1] or not parts[2]:
            return Refused(Cause.MALFORMED)
        authorization_id, user, password = parts
        if authorization_id not in ("", user):
            return Refused(Cause.AUTHORIZATION_ID, user)
        return Verify(PasswordCheck(user, password))

    def verified(self, verdict: Verdict) -> Step:
        return verdict


class BearerExchange:
    """RFC 7628: one message with the token; after a failure a second one, which has no content."""

    def __init__(self) -> None:
        self._refused: Refused | None = None

    def receive(self, message: bytes) -> Step:
        if self._refused is not None:
            return Refused(self._refused.cause, self._refused.user, INVALID_TOKEN)
        if len(message) > TOKEN_BYTES_MAX:
            return Refused(Cause.LENGTH)
        check = parse_bearer(message)
        return Refused(Cause.MALFORMED) if check is None else Verify(check)

    def verified(self, verdict: Verdict) -> Step:
        if not isinstance(verdict, Refused):
            return verdict
        self._refused = verdict
        return Proceed(INVALID_TOKEN.encode())


def parse_bearer(message: bytes) -> TokenCheck | None:
    """The client's first message: `n,[a=authzid],^Aauth=Bearer token[^Aname=value...]^A^A`. None: it has another form.

    Extensions (KIP-342) are read and not used.
    """
    try:
        header, separator, rest = message.decode().partition("\x01")
    except UnicodeDecodeError:
        return None
    fields = header.split(",", 3)
    if rest.count("\x01") > EXTENSIONS_MAX:
        return None
    if not separator or len(fields) != 3 or fields[0] != "n" or fields[2] or not rest.endswith("\x01\x01"):
        return None
    authorization_id = ""
    if fields[1]:
        named = _AUTHORIZATION_ID.fullmatch(fields[1])
        if named is None:
            return None
        authorization_id = named["name"].replace("=2C", ",").replace("=3D", "=")
    pairs = [pair.partition("=") for pair in rest[:-2].split("\x01")]
    values = {name: value for name, _, value in pairs}
    if len(values) != len(pairs) or not all(_EXTENSION_NAME.fullmatch(name) for name in values):
        return None
    found = _BEARER.fullmatch(values.get("auth", ""))
    return None if found is None else TokenCheck(found["token"], authorization_id)
