"""What a message of a SASL mechanism leads to, and the values that cross between machine, mechanisms and checks. Pure.

Law: a cause is for the audit log and the metrics. A client learns none of them: it gets the same sentence for all.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol


class Cause(Enum):
    """Why a client was refused."""

    MALFORMED = "malformed message"
    CHANNEL_BINDING = "channel binding is not supported"
    DELEGATION = "delegation tokens are not supported"
    AUTHORIZATION_ID = "the authorization id is not the user"
    NONCE = "the nonce is not the server's"
    UNKNOWN_USER = "no such user"
    WRONG_PASSWORD = "wrong password"  # noqa: S105  (a sentence)
    UNKNOWN_KEY = "no key has the token's kid"
    ALGORITHM = "the token's algorithm is not one of its key"
    SIGNATURE = "wrong signature"
    EXPIRED = "the token has expired, or is not valid yet"
    ISSUER = "another issuer"
    AUDIENCE = "another audience"
    CLAIM = "a claim is missing or has a wrong form"
    NAME = "the name in the token has control codes or surrogates"
    LENGTH = "the token is too long"
    ENDED = "the exchange has ended"
    MECHANISM = "the mechanism is not enabled"
    MECHANISM_CHANGED = "another mechanism than before"
    PRINCIPAL_CHANGED = "another user than before"
    ILLEGAL_STATE = "a request that is not expected now"


@dataclass(frozen=True, slots=True)
class PasswordCheck:
    """Is this the user's password? Slow, because PBKDF2 is."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenCheck:
    """Whose token is this? May need the issuer's new keys. `authorization_id`: empty, or the user that it must be."""

    token: str = field(repr=False)
    authorization_id: str


Check = PasswordCheck | TokenCheck


@dataclass(frozen=True, slots=True)
class Proceed:
    """The next token for the client."""

    token: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Verify:
    """The answer depends on a check, whose verdict the exchange gets."""

    check: Check


@dataclass(frozen=True, slots=True)
class Proved:
    """The client is this user. `lifetime_ms`: how much longer its credential is valid; None: no limit."""

    user: str
    token: bytes = field(default=b"", repr=False)
    lifetime_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """`message`: for the client, in place of the usual sentence. `user`: the name that the client gave."""

    cause: Cause
    user: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Nobody can say now who the client is. It is not refused, because its client would end for good."""

    why: str


Verdict = Proved | Refused | Unavailable
Step = Proceed | Verify | Verdict


class MechanismExchange(Protocol):
    """One login by one mechanism."""

    def receive(self, message: bytes) -> Step:
        """The client's next message. A mistake of the client is a value, never an exception."""
        ...

    def verified(self, verdict: Verdict) -> Step:
        """After `Verify`."""
        ...


Start = Callable[[], MechanismExchange]
