"""The login of one connection: requests and tokens in, what to do with them out. Pure (KIP-43, 152, 368;
Kafka's SaslServerAuthenticator and KafkaChannel).

Laws: before COMPLETE no request passes to the gateway. Only ApiVersions, SaslHandshake and SaslAuthenticate are decoded
before it. Nothing is read behind a request until its answer has left (connection.py), so each request meets the state
that the answer before it has left. After a refusal nothing is accepted.

| state | accepts |
|---|---|
| FIRST | ApiVersions, SaslHandshake; everything else closes the connection |
| VERSIONS_ANSWERED | SaslHandshake; everything else closes the connection |
| TOKENS | SaslAuthenticate, or bare tokens after SaslHandshake 0 |
| VERIFYING | the verdict of a check |
| OTHER_MECHANISM | nothing: a re-authentication named another mechanism, and ends |
| COMPLETE | everything; SaslHandshake begins a re-authentication if sessions expire, at most once a second |
| ENDED | nothing |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from kafscale.access.principals import Principal, user
from kafscale.frontdoor.authentication.steps import (
    Cause,
    Check,
    MechanismExchange,
    Proceed,
    Proved,
    Refused,
    Start,
    Step,
    Unavailable,
    Verdict,
    Verify,
)
from kafscale.frontdoor.connection import Framing
from kafscale.wire.apis import ApiKey, api_label
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.headers import RequestHeader
from kafscale.wire.schema import sasl_authenticate, sasl_handshake

REAUTHENTICATE_EVERY_MS: Final = 1_000
API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
SASL_HANDSHAKE: Final = int(ApiKey.SASL_HANDSHAKE)
SASL_AUTHENTICATE: Final = int(ApiKey.SASL_AUTHENTICATE)
HANDSHAKE_VERSION_MAX: Final = 1
AUTHENTICATE_VERSION_MAX: Final = 2


Versions = Callable[[memoryview, int], tuple[Buffer, ErrorCode]]
"""Request body, version → the body of an ApiVersions answer, and the error in it. Raises WireError."""


class State(Enum):
    FIRST = "first"
    VERSIONS_ANSWERED = "versions answered"
    TOKENS = "tokens"
    VERIFYING = "verifying"
    OTHER_MECHANISM = "other mechanism"
    COMPLETE = "complete"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Of one listener. `mechanisms`: by name, in the order in which clients see them. `max_reauth_ms`: 0 if only tokens
    end sessions."""

    mechanisms: Mapping[str, Start]
    versions: Versions
    max_reauth_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Who the client is. `expires_ms`: on the clock of `now_ms`; None: never. `renewed`: by a re-authentication."""

    principal: Principal
    mechanism: str
    expires_ms: int | None
    renewed: bool


@dataclass(frozen=True, slots=True)
class Pass:
    """The request goes to the gateway."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The request is answered at once. `began`: with this answer the client is logged in."""

    body: list[Buffer]
    code: ErrorCode = ErrorCode.NONE
    began: Session | None = None


@dataclass(frozen=True, slots=True)
class Reject:
    """After the delay of failed logins the request is answered, if there is a body, and the connection is closed."""

    refused: Refused
    body: list[Buffer] | None = None
    code: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class Await:
    """The request waits for the verdict of a check."""

    check: Check


@dataclass(frozen=True, slots=True)
class HangUp:
    """The connection is closed at once. `unavailable`: the client may be right, and tries again."""

    reason: str
    expired: bool = False
    unavailable: bool = False


Action = Pass | Answer | Reject | Await | HangUp
PASS: Final = Pass()


class SaslMachine:
    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._state = State.FIRST
        self._exchange: MechanismExchange | None = None
        self._version = 0  # of the last SaslAuthenticate
        self._with_headers = False
        self._handshake_ms: int | None = None  # of the last re-authentication
        self.mechanism = ""
        self.session: Session | None = None

    @property
    def complete(self) -> bool:
        return self._state is State.COMPLETE

    @property
    def framing(self) -> Framing:
        """How the next frame is read."""
        if self._state is State.COMPLETE:
            return Framing.PIPELINED
        waits_for_token = self._state in (State.TOKENS, State.VERIFYING, State.OTHER_MECHANISM)
        return Framing.TOKENS if waits_for_token and not self._with_headers else Framing.SINGLE

    def receive(self, header: RequestHeader, body: memoryview, now_ms: int) -> Action:
        match self._state:
            case State.COMPLETE:
                return self._established(header, body, now_ms)
            case State.FIRST | State.VERSIONS_ANSWERED:
                return self._negotiate(header, body)
            case State.TOKENS:
                return self._token(header, body, now_ms)
            case State.OTHER_MECHANISM if header.api_key == SASL_AUTHENTICATE:
                return self._reject(Refused(Cause.MECHANISM_CHANGED, self._known_user))
            case State.OTHER_MECHANISM:
                return self._hang_up(f"{api_label(header.api_key)} during re-authentication")
            case State.VERIFYING | State.ENDED:
                return self._hang_up("a request after the end of the login")
            case _ as never:
                assert_never(never)

    def verified(self, verdict: Verdict, now_ms: int) -> Action:
        """The verdict of the check that the last action asked for."""
        assert self._state is State.VERIFYING, "a verdict belongs to a check"
        assert self._exchange is not None
        self._state = State.TOKENS
        return self._follow(self._exchange.verified(verdict), now_ms)

    # ---- what arrives

    def _established(self, header: RequestHeader, body: memoryview, now_ms: int) -> Action:
        assert self.session is not None
        expires_ms = self.session.expires_ms
        if expires_ms is None:
            return PASS
        if header.api_key == SASL_HANDSHAKE and self._may_begin(now_ms):
            self._handshake_ms = now_ms
            return self._handshake(header, body)
        if now_ms > expires_ms:
            return self._hang_up("the session has expired", expired=True)
        return PASS

    def _may_begin(self, now_ms: int) -> bool:
        return self._handshake_ms is None or now_ms - self._handshake_ms >= REAUTHENTICATE_EVERY_MS

    def _negotiate(self, header: RequestHeader, body: memoryview) -> Action:
        if header.api_key == SASL_HANDSHAKE:
            return self._handshake(header, body)
        if header.api_key != API_VERSIONS or self._state is not State.FIRST:
            return self._hang_up(f"{api_label(header.api_key)} before authentication")
        try:
            answer, code = self._rules.versions(body, header.api_version)
        except WireError as error:
            return self._hang_up(str(error))
        if code is ErrorCode.NONE:
            self._state = State.VERSIONS_ANSWERED
        return Answer([answer], code)

    def _handshake(self, header: RequestHeader, body: memoryview) -> Action:
        version = header.api_version
        if not 0 <= version <= HANDSHAKE_VERSION_MAX:
            return self._hang_up(f"SaslHandshake {version} is not supported")
        try:
            mechanism = sasl_handshake.decode_request(body, version).mechanism
        except WireError as error:
            return self._hang_up(str(error))
        self._with_headers = version >= 1
        start = self._rules.mechanisms.get(mechanism)
        if start is None:
            self.mechanism = ""
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return self._reject(
                Refused(Cause.MECHANISM, self._known_user), self._handshake_answer(version, code), code
            )
        if self.session is not None and mechanism != self.session.mechanism:
            self._state = State.OTHER_MECHANISM
        else:
            self.mechanism = mechanism
            self._exchange = start()
            self._state = State.TOKENS
        return Answer(self._handshake_answer(version, ErrorCode.NONE))

    def _token(self, header: RequestHeader, body: memoryview, now_ms: int) -> Action:
        assert self._exchange is not None
        if not self._with_headers:
            return self._follow(self._exchange.receive(bytes(body)), now_ms)
        version = header.api_version
        if header.api_key == SASL_HANDSHAKE and 0 <= version <= HANDSHAKE_VERSION_MAX:
            code = ErrorCode.ILLEGAL_SASL_STATE
            refused = Refused(Cause.ILLEGAL_STATE, self._known_user)
            empty = sasl_handshake.SaslHandshakeResponse(error_code=int(code))
            return self._reject(refused, sasl_handshake.encode_response(empty, version), code)
        if header.api_key != SASL_AUTHENTICATE or not 0 <= version <= AUTHENTICATE_VERSION_MAX:
            return self._hang_up(f"{api_label(header.api_key)} {version} during SASL authentication")
        try:
            message = sasl_authenticate.decode_request(body, version).auth_bytes
        except WireError as error:
            return self._hang_up(str(error))
        self._version = version
        return self._follow(self._exchange.receive(bytes(message)), now_ms)

    # ---- what the mechanism says

    def _follow(self, step: Step, now_ms: int) -> Action:
        match step:
            case Proceed(token):
                return Answer(self._token_answer(token))
            case Verify(check):
                self._state = State.VERIFYING
                return Await(check)
            case Proved():
                return self._succeed(step, now_ms)
            case Refused():
                return self._fail(step)
            case Unavailable(why):
                return self._hang_up(why, unavailable=True)
            case _ as never:
                assert_never(never)

    def _succeed(self, proved: Proved, now_ms: int) -> Action:
        principal = user(proved.user)
        if self.session is not None and principal != self.session.principal:
            before, after = (one.replace(":", ".", 1) for one in (self.session.principal, principal))
            message = f"Cannot change principals during re-authentication from {before}: {after}"
            return self._fail(Refused(Cause.PRINCIPAL_CHANGED, proved.user, message))
        lifetime_ms = self._lifetime_ms(proved.lifetime_ms)
        self.session = Session(
            principal=principal,
            mechanism=self.mechanism,
            expires_ms=None if lifetime_ms is None else now_ms + lifetime_ms,
            renewed=self.session is not None,
        )
        body = self._token_answer(proved.token, lifetime_ms or 0)
        self._state = State.COMPLETE
        self._exchange = None
        return Answer(body, began=self.session)

    def _lifetime_ms(self, credential_ms: int | None) -> int | None:
        limits = [self._rules.max_reauth_ms] if self._rules.max_reauth_ms > 0 else []
        if credential_ms is not None:
            limits.append(max(0, credential_ms))
        return min(limits, default=None)

    def _fail(self, refused: Refused) -> Action:
        if not self._with_headers:
            return self._reject(refused)
        phase = "authentication" if self.session is None else "re-authentication"
        sentence = f"Authentication failed during {phase} due to invalid credentials with SASL mechanism "
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        response = sasl_authenticate.SaslAuthenticateResponse(
            error_code=int(code), error_message=refused.message or sentence + self.mechanism
        )
        return self._reject(refused, sasl_authenticate.encode_response(response, self._version), code)

    # ---- answers

    @property
    def _known_user(self) -> str | None:
        return None if self.session is None else self.session.principal.partition(":")[2]

    def _handshake_answer(self, version: int, code: ErrorCode) -> list[Buffer]:
        response = sasl_handshake.SaslHandshakeResponse(
            error_code=int(code), mechanisms=list(self._rules.mechanisms)
        )
        return sasl_handshake.encode_response(response, version)

    def _token_answer(self, token: bytes, lifetime_ms: int = 0) -> list[Buffer]:
        if not self._with_headers:
            return [token]
        response = sasl_authenticate.SaslAuthenticateResponse(
            auth_bytes=token, session_lifetime_ms=lifetime_ms
        )
        return sasl_authenticate.encode_response(response, self._version)

    def _reject(
        self, refused: Refused, body: list[Buffer] | None = None, code: ErrorCode = ErrorCode.NONE
    ) -> Reject:
        self._end()
        return Reject(refused, body, code)

    def _hang_up(self, reason: str, *, expired: bool = False, unavailable: bool = False) -> HangUp:
        self._end()
        return HangUp(reason, expired, unavailable)

    def _end(self) -> None:
        self._state = State.ENDED
        self._exchange = None
