"""The state table of a login: what each request does in each state, as in Kafka's SaslServerAuthenticator."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.frontdoor.authentication.machine import (
    PASS,
    Action,
    Answer,
    Await,
    HangUp,
    Reject,
    Rules,
    SaslMachine,
)
from kafscale.frontdoor.authentication.steps import (
    Cause,
    PasswordCheck,
    Proceed,
    Proved,
    Refused,
    Step,
    Unavailable,
    Verdict,
    Verify,
)
from kafscale.frontdoor.connection import TOKEN_HEADER, Framing
from kafscale.wire.apis import ApiKey
from kafscale.wire.buffers import Buffer
from kafscale.wire.errors import ErrorCode, WireError
from kafscale.wire.headers import RequestHeader
from kafscale.wire.schema import sasl_authenticate, sasl_handshake
from login_harness import API_VERSIONS, AUTHENTICATE, HANDSHAKE, METADATA, authenticate_body, handshake_body

EVERY_API = sorted(int(key) for key in ApiKey)
SESSION_MS = 10_000


@dataclass
class Scripted:
    """A mechanism in which the client says what happens."""

    verdicts: list[Verdict] = field(default_factory=list)

    def receive(self, message: bytes) -> Step:
        word, _, rest = message.decode().partition(" ")
        match word:
            case "more":
                return Proceed(b"go on")
            case "check":
                return Verify(PasswordCheck(rest, "secret"))
            case "away":
                return Unavailable("away")
            case "yes":
                name, _, lifetime = rest.partition(" ")
                return Proved(name, b"welcome", int(lifetime) if lifetime else None)
            case _:
                return Refused(Cause.WRONG_PASSWORD, "alice", rest or None)

    def verified(self, verdict: Verdict) -> Step:
        self.verdicts.append(verdict)
        return verdict


def versions(body: memoryview, version: int) -> tuple[Buffer, ErrorCode]:
    if bytes(body) == b"broken":
        raise WireError("ApiVersionsRequest", "broken")
    code = ErrorCode.NONE if version <= 4 else ErrorCode.UNSUPPORTED_VERSION
    return b"versions", code


class Client:
    def __init__(self, max_reauth_ms: int = 0, *mechanisms: str) -> None:
        names = mechanisms or ("A", "B")
        rules = Rules(
            mechanisms=dict.fromkeys(names, Scripted), versions=versions, max_reauth_ms=max_reauth_ms
        )
        self.machine = SaslMachine(rules)
        self.now_ms = 1_000

    def ask(self, key: int, version: int = 0, body: bytes = b"") -> Action:
        return self.machine.receive(RequestHeader(key, version, 7, "c"), memoryview(body), self.now_ms)

    def handshake(self, mechanism: str = "A", version: int = 1) -> Action:
        return self.ask(HANDSHAKE, version, handshake_body(mechanism, min(version, 1)))

    def say(self, words: str, version: int = 2) -> Action:
        return self.ask(AUTHENTICATE, version, authenticate_body(words.encode(), version))

    def token(self, words: str) -> Action:
        return self.machine.receive(TOKEN_HEADER, memoryview(words.encode()), self.now_ms)

    def login(self, words: str = "yes alice") -> Action:
        self.handshake()
        return self.say(words)


def handshaken(action: Action, version: int = 1) -> sasl_handshake.SaslHandshakeResponse:
    assert isinstance(action, Answer | Reject)
    assert action.body is not None
    return sasl_handshake.decode_response(b"".join(map(bytes, action.body)), version)


def authenticated(action: Action, version: int = 2) -> sasl_authenticate.SaslAuthenticateResponse:
    assert isinstance(action, Answer | Reject)
    assert action.body is not None
    return sasl_authenticate.decode_response(b"".join(map(bytes, action.body)), version)


@pytest.mark.parametrize("key", [key for key in EVERY_API if key not in (API_VERSIONS, HANDSHAKE)])
def test_every_other_api_before_a_login_closes_the_connection(key: int) -> None:
    client = Client()
    assert isinstance(client.ask(key), HangUp)
    assert isinstance(client.handshake(), HangUp), "and nothing comes after that"


def test_after_versions_were_answered_only_a_handshake_is_accepted() -> None:
    client = Client()
    assert client.ask(API_VERSIONS) == Answer([b"versions"])
    assert isinstance(client.ask(API_VERSIONS), HangUp)
    client = Client()
    client.ask(API_VERSIONS)
    assert isinstance(client.ask(METADATA), HangUp)
    client = Client()
    client.ask(API_VERSIONS)
    assert handshaken(client.handshake()).error_code == 0


def test_versions_that_were_refused_may_be_asked_for_again() -> None:
    client = Client()
    assert client.ask(API_VERSIONS, 99) == Answer([b"versions"], ErrorCode.UNSUPPORTED_VERSION)
    assert client.ask(API_VERSIONS, 0) == Answer([b"versions"])


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (API_VERSIONS, 0, b"broken"),
        (HANDSHAKE, 1, b"\x00\x09cut"),
        (HANDSHAKE, 2, handshake_body("A")),
        (HANDSHAKE, -1, handshake_body("A")),
    ],
)
def test_a_request_that_cannot_be_read_closes_the_connection(key: int, version: int, body: bytes) -> None:
    assert isinstance(Client().ask(key, version, body), HangUp)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("mechanism", ["GSSAPI", "a", "", "PLAIN"])
def test_an_unknown_mechanism_is_answered_with_the_enabled_ones_and_closed(
    mechanism: str, version: int
) -> None:
    client = Client()
    action = client.handshake(mechanism, version)
    assert isinstance(action, Reject)
    assert action.refused.cause is Cause.MECHANISM
    answer = handshaken(action, version)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["A", "B"])
    assert isinstance(client.handshake(), HangUp)


def test_a_login_with_headers() -> None:
    client = Client()
    assert client.machine.framing is Framing.SINGLE
    assert handshaken(client.handshake()).mechanisms == ["A", "B"]
    assert client.machine.framing is Framing.SINGLE
    assert authenticated(client.say("more")).auth_bytes == b"go on"
    action = client.say("yes alice")
    answer = authenticated(action)
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"welcome", 0)
    assert isinstance(action, Answer)
    assert action.began is not None
    assert (action.began.principal, action.began.mechanism, action.began.renewed) == (
        "User:alice",
        "A",
        False,
    )
    assert client.machine.framing is Framing.PIPELINED


def test_a_login_with_bare_tokens() -> None:
    client = Client()
    assert handshaken(client.handshake(version=0), 0).error_code == 0
    assert client.machine.framing is Framing.TOKENS
    assert client.token("more") == Answer([b"go on"])
    action = client.token("yes alice")
    assert isinstance(action, Answer)
    assert (action.body, action.began is not None) == ([b"welcome"], True)
    assert client.machine.framing is Framing.PIPELINED


def test_a_refusal_of_a_bare_token_has_no_answer() -> None:
    client = Client()
    client.handshake(version=0)
    assert client.token("no") == Reject(Refused(Cause.WRONG_PASSWORD, "alice"))
    assert isinstance(client.token("yes alice"), HangUp)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_wrong_credentials_have_one_sentence(version: int) -> None:
    client = Client()
    client.handshake()
    action = client.say("no", version)
    assert isinstance(action, Reject)
    assert action.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    answer = authenticated(action, version)
    assert answer.error_code == 58
    assert answer.error_message == (
        "Authentication failed during authentication due to invalid credentials with SASL mechanism A"
    )
    assert isinstance(client.say("yes alice"), HangUp)


@pytest.mark.parametrize("key", [key for key in EVERY_API if key not in (AUTHENTICATE, HANDSHAKE)])
def test_another_api_in_place_of_a_token_closes_the_connection(key: int) -> None:
    client = Client()
    client.handshake()
    assert isinstance(client.ask(key), HangUp)


def test_a_second_handshake_in_place_of_a_token_is_an_illegal_state() -> None:
    client = Client()
    client.handshake()
    action = client.handshake()
    assert isinstance(action, Reject)
    assert action.refused.cause is Cause.ILLEGAL_STATE
    assert handshaken(action).error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize(
    ("version", "body"), [(3, b""), (-1, b""), (2, b"\xff\xff\xff\xff\xff"), (0, b"\x00")]
)
def test_a_token_request_that_cannot_be_read_closes_the_connection(version: int, body: bytes) -> None:
    client = Client()
    client.handshake()
    assert isinstance(client.ask(AUTHENTICATE, version, body), HangUp)


def test_a_check_decides_later() -> None:
    client = Client()
    client.handshake()
    assert client.say("check alice") == Await(PasswordCheck("alice", "secret"))
    assert isinstance(client.machine.verified(Proved("alice"), 5), Answer)
    assert client.machine.complete
    client = Client()
    client.handshake()
    client.say("check alice")
    assert isinstance(client.machine.verified(Refused(Cause.WRONG_PASSWORD), 5), Reject)
    assert not client.machine.complete


def test_who_cannot_be_checked_is_not_refused() -> None:
    client = Client()
    client.handshake()
    assert client.say("away") == HangUp("away", unavailable=True)


# ---- after the login


def test_afterwards_requests_pass_and_those_of_sasl_too() -> None:
    client = Client()
    client.login()
    for key in EVERY_API:
        assert client.ask(key) is PASS, "the gateway answers ILLEGAL_SASL_STATE to late calls of SASL"


@pytest.mark.parametrize(
    ("max_reauth_ms", "token_ms", "lifetime_ms"),
    [
        (0, None, 0),
        (5_000, None, 5_000),
        (0, 7_000, 7_000),
        (5_000, 7_000, 5_000),
        (9_000, 7_000, 7_000),
        (9, -5, 0),
    ],
)
def test_a_session_lasts_as_long_as_the_shorter_of_setting_and_token(
    max_reauth_ms: int, token_ms: int | None, lifetime_ms: int
) -> None:
    client = Client(max_reauth_ms)
    answer = authenticated(client.login(f"yes alice {'' if token_ms is None else token_ms}".rstrip()))
    assert answer.session_lifetime_ms == lifetime_ms
    client.now_ms += lifetime_ms
    assert client.ask(METADATA) is PASS
    client.now_ms += 1
    ends = max_reauth_ms or token_ms is not None
    assert client.ask(METADATA) == (HangUp("the session has expired", expired=True) if ends else PASS)


def test_a_session_is_renewed_by_the_same_user_with_the_same_mechanism() -> None:
    client = Client(SESSION_MS)
    client.login()
    client.now_ms += SESSION_MS + 5_000
    assert handshaken(client.handshake()).error_code == 0, "also after it has expired"
    action = client.say("yes alice")
    assert isinstance(action, Answer)
    assert action.began is not None
    assert action.began.renewed
    client.now_ms += SESSION_MS
    assert client.ask(METADATA) is PASS


def test_during_a_renewal_no_request_passes() -> None:
    client = Client(SESSION_MS)
    client.login()
    client.handshake()
    assert isinstance(client.ask(METADATA), HangUp)


def test_another_user_cannot_take_over_a_connection() -> None:
    client = Client(SESSION_MS)
    client.login()
    client.handshake()
    action = client.say("yes bob")
    assert authenticated(action).error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )
    assert isinstance(action, Reject)
    assert action.refused.cause is Cause.PRINCIPAL_CHANGED
    assert client.machine.session is not None
    assert client.machine.session.principal == "User:alice"


def test_another_mechanism_is_found_out_at_the_next_token() -> None:
    for version in (0, 1):
        client = Client(SESSION_MS)
        client.login()
        assert handshaken(client.handshake("B", version), version).error_code == 0
        action = client.say("yes alice") if version else client.token("yes alice")
        assert action == Reject(Refused(Cause.MECHANISM_CHANGED, "alice"))


def test_a_failed_renewal_says_so() -> None:
    client = Client(SESSION_MS)
    client.login()
    client.handshake()
    assert "during re-authentication due to" in str(authenticated(client.say("no")).error_message)


def test_a_session_is_renewed_at_most_once_a_second() -> None:
    client = Client(SESSION_MS)
    client.login()
    client.login()
    client.now_ms += 999
    assert client.handshake() is PASS, "an illegal state for the gateway"
    client.now_ms += 1
    assert isinstance(client.handshake(), Answer)


def test_an_early_renewal_of_an_expired_session_closes_the_connection() -> None:
    client = Client(10)
    client.login()
    client.login()
    client.now_ms += 500
    assert client.handshake() == HangUp("the session has expired", expired=True)


# ---- at random

KEYS = st.sampled_from([API_VERSIONS, HANDSHAKE, AUTHENTICATE, METADATA, 0, 1])
WORDS = st.sampled_from(["more", "no", "away", "yes alice", "yes bob", "check alice", "yes alice 1500"])
EVENTS = st.one_of(
    st.tuples(st.just("ask"), KEYS, st.integers(-1, 3)),
    st.tuples(st.just("handshake"), st.sampled_from(["A", "B", "C"]), st.integers(0, 1)),
    st.tuples(st.just("say"), WORDS, st.integers(0, 2)),
    st.tuples(st.just("token"), WORDS, st.just(0)),
    st.tuples(st.just("wait"), st.integers(0, 3_000), st.just(0)),
)


@given(st.lists(EVENTS, max_size=12), st.sampled_from([0, 2_000]))
def test_nothing_passes_before_a_proof_and_nothing_after_the_end(
    events: list[tuple[str, object, int]], max_reauth_ms: int
) -> None:
    client = Client(max_reauth_ms)
    proved = ended = False
    principals = set()
    for what, value, version in events:
        if what == "wait":
            client.now_ms += int(str(value))
            continue
        if client.machine.framing is Framing.TOKENS:  # then the connection reads nothing else
            action = client.token(str(value))
        elif what == "token":
            continue
        elif what == "ask":
            action = client.ask(int(str(value)), version)
        else:
            action = getattr(client, what)(value, version)
        if isinstance(action, Await):
            action = client.machine.verified(Proved("alice"), client.now_ms)
        assert not ended or isinstance(action, HangUp)
        assert proved or action is not PASS
        proved = proved or (isinstance(action, Answer) and action.began is not None)
        ended = ended or isinstance(action, HangUp | Reject)
        if client.machine.session is not None:
            principals.add(client.machine.session.principal)
    assert len(principals) <= 1, "a connection is that of one user"
