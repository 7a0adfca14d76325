"""Mechanisms as the machine sees them: attacks on SCRAM, forms of PLAIN and OAUTHBEARER, equal work for all names."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.scram_credentials import ScramCredential, ScramMechanism, password_matches
from kafscale.frontdoor.authentication.credentials import candidates
from kafscale.frontdoor.authentication.mechanisms import (
    INVALID_TOKEN,
    MESSAGE_BYTES_MAX,
    TOKEN_BYTES_MAX,
    BearerExchange,
    PlainExchange,
    ScramExchange,
    parse_bearer,
)
from kafscale.frontdoor.authentication.passwords import (
    REMEMBERED_MS,
    RememberedPasswords,
    is_known,
    is_password,
)
from kafscale.frontdoor.authentication.steps import (
    Cause,
    PasswordCheck,
    Proceed,
    Proved,
    Refused,
    Step,
    TokenCheck,
    Unavailable,
    Verify,
)
from kafscale.testkit.scram_client import ScramClient
from login_harness import ALICE, PASSWORD, FakeCredentials, alice, bearer, plain, scram

SHA_256, SHA_512 = ScramMechanism
NONCE = "servernonce"
USERS = alice()
NAMES = [bytes([65 + number % 26]) * (number // 26 + 1) for number in range(70)]
MANY_EXTENSIONS = b"n,,\x01auth=Bearer x" + b"".join(b"\x01%b=1" % name for name in NAMES) + b"\x01\x01"


def exchange(nonce: str = NONCE, mechanism: ScramMechanism = SHA_256) -> ScramExchange:
    return ScramExchange(mechanism, USERS, nonce)


def challenge(server: ScramExchange, client: ScramClient) -> bytes:
    step = server.receive(client.first())
    assert isinstance(step, Proceed)
    return step.token


# ---- SCRAM


def test_a_challenge_has_the_form_of_the_stored_credentials() -> None:
    users = FakeCredentials()
    users.add(ALICE, PASSWORD, iterations=8_192)
    for user in (ALICE, "nobody"):
        client = ScramClient(SHA_256.hash_name, user, PASSWORD, "clientnonce")
        step = ScramExchange(SHA_256, users, NONCE).receive(client.first())
        assert isinstance(step, Proceed)
        client.final(step.token)
        assert client.fields["i"] == "8192"


@pytest.mark.parametrize(("mechanism", "hash_name"), [(SHA_256, "sha256"), (SHA_512, "sha512")])
def test_scram_proves_a_user_and_the_server(mechanism: ScramMechanism, hash_name: str) -> None:
    client, server = scram(hash_name=hash_name), exchange(mechanism=mechanism)
    step = server.receive(client.final(challenge(server, client)))
    assert isinstance(step, Proved)
    client.check(step.token)
    assert (step.user, step.lifetime_ms) == (ALICE, None)


def test_a_recorded_login_cannot_be_replayed() -> None:
    client, server = scram(), exchange("first")
    recorded = client.first(), client.final(challenge(server, client))
    replayed = exchange("second")
    assert isinstance(replayed.receive(recorded[0]), Proceed)
    assert replayed.receive(recorded[1]) == Refused(Cause.NONCE, ALICE)


@pytest.mark.parametrize("nonce", ["clientnonce", NONCE, "clientnonceservernonc", "clientnonceservernoncee"])
def test_an_altered_nonce_is_refused(nonce: str) -> None:
    client, server = scram(), exchange()
    assert server.receive(client.final(challenge(server, client), nonce=nonce)) == Refused(Cause.NONCE, ALICE)


def test_downgraded_iterations_spoil_the_proof() -> None:
    client, server = scram(), exchange()
    lowered = challenge(server, client).replace(b"i=4096", b"i=1")
    assert server.receive(client.final(lowered)) == Refused(Cause.WRONG_PASSWORD, ALICE)


@pytest.mark.parametrize("header", ["y,,", "p=tls-unique,,", "p=tls-exporter,,"])
def test_flags_of_channel_binding_are_refused(header: str) -> None:
    step = exchange().receive(scram(header=header).first())
    assert step == Refused(Cause.CHANNEL_BINDING, ALICE)


def test_a_channel_binding_that_differs_from_the_first_message_is_refused() -> None:
    client, server = scram(), exchange()
    token = challenge(server, client)
    client.header = "y,,"
    assert server.receive(client.final(token)) == Refused(Cause.CHANNEL_BINDING, ALICE)


def test_the_proof_of_another_mechanism_s_credential_is_wrong() -> None:
    client, server = scram(hash_name="sha512"), exchange()
    assert server.receive(client.final(challenge(server, client))) == Refused(Cause.WRONG_PASSWORD, ALICE)


@pytest.mark.parametrize(
    ("client", "cause"),
    [
        (scram(password="wrong"), Cause.WRONG_PASSWORD),
        (scram(user="nobody"), Cause.UNKNOWN_USER),
        (scram(extensions=",tokenauth=true"), Cause.DELEGATION),
        (scram(header="n,a=bob,"), Cause.AUTHORIZATION_ID),
    ],
)
def test_who_is_refused_and_why(client: ScramClient, cause: Cause) -> None:
    server = exchange()
    step = server.receive(client.first())
    if isinstance(step, Proceed):
        step = server.receive(client.final(step.token))
    assert isinstance(step, Refused)
    assert (step.cause, step.message) == (cause, None)


def test_a_long_message_is_not_read() -> None:
    name = "a" * MESSAGE_BYTES_MAX
    assert exchange().receive(f"n,,n={name},r=x".encode()) == Refused(Cause.MALFORMED)
    assert PlainExchange(USERS).receive(plain(user=name)) == Refused(Cause.MALFORMED)


# ---- PLAIN


@pytest.mark.parametrize(
    ("message", "step"),
    [
        (plain(), Verify(PasswordCheck(ALICE, PASSWORD))),
        (plain(authorization_id=ALICE), Verify(PasswordCheck(ALICE, PASSWORD))),
        (plain(user="ümläut"), Verify(PasswordCheck("ümläut", PASSWORD))),
        (plain(authorization_id="bob"), Refused(Cause.AUTHORIZATION_ID, ALICE)),
        (plain(user=""), Refused(Cause.MALFORMED)),
        (plain(password=""), Refused(Cause.MALFORMED)),
        (plain(password="a\0b"), Refused(Cause.MALFORMED)),
        (b"alice\0secret", Refused(Cause.MALFORMED)),
        (b"", Refused(Cause.MALFORMED)),
        (b"\0\xff\0secret", Refused(Cause.MALFORMED)),
    ],
)
def test_the_forms_of_plain(message: bytes, step: Step) -> None:
    assert PlainExchange(USERS).receive(message) == step


def test_nobody_logs_in_with_a_password_while_the_users_are_stale() -> None:
    stale = FakeCredentials(fresh=False)
    assert isinstance(PlainExchange(stale).receive(plain()), Unavailable)
    assert isinstance(ScramExchange(SHA_256, stale, NONCE).receive(scram().first()), Unavailable)


@dataclass
class Counted:
    """Compares passwords, and notes the work."""

    work: list[tuple[ScramMechanism, int]] = field(default_factory=list)

    def __call__(self, credential: ScramCredential, password: str) -> bool:
        self.work.append((credential.mechanism, credential.iterations))
        return password_matches(credential, password)


def test_an_unknown_user_costs_the_same_work_as_a_known_one() -> None:
    users = alice()
    users.add("half", PASSWORD, SHA_512)
    works = []
    for name, password in (
        (ALICE, PASSWORD),
        (ALICE, "wrong"),
        ("half", PASSWORD),
        ("half", "w"),
        ("nobody", "x"),
    ):
        counted = Counted()
        found = candidates(users, name)
        assert is_password(found, password, counted) is (password == PASSWORD)
        assert is_known(found) is (name != "nobody")
        works.append(counted.work)
    assert works == [[(SHA_256, 4_096), (SHA_512, 4_096)]] * 5


def test_a_decoy_is_computed_for_users_who_exist_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    where = "kafscale.frontdoor.authentication.credentials.decoy_credential"
    monkeypatch.setattr(where, lambda mechanism, user, key, weights: made.append(user))
    candidates(USERS, ALICE)
    candidates(USERS, "nobody")
    assert made == [ALICE] * 2 + ["nobody"] * 2


def test_the_password_of_a_decoy_s_keys_is_no_password() -> None:
    found = candidates(USERS, "nobody")
    assert not is_password(found, "any", lambda _credential, _password: True)


# ---- passwords that were right


def test_a_right_password_is_remembered_for_a_minute() -> None:
    found, remembered = candidates(USERS, ALICE), RememberedPasswords(b"key")
    assert not remembered.knows(ALICE, PASSWORD, found, 0)
    remembered.remember(ALICE, PASSWORD, found, 0)
    assert remembered.knows(ALICE, PASSWORD, found, REMEMBERED_MS - 1)
    assert not remembered.knows(ALICE, "wrong", found, 1)
    assert not remembered.knows("bob", PASSWORD, found, 1)
    assert not remembered.knows(ALICE, PASSWORD, found, REMEMBERED_MS)
    assert len(remembered) == 0


def test_it_is_forgotten_when_a_credential_changes() -> None:
    users = alice()
    remembered = RememberedPasswords(b"key")
    remembered.remember(ALICE, PASSWORD, candidates(users, ALICE), 0)
    users.add(ALICE, PASSWORD, SHA_512)
    assert not remembered.knows(ALICE, PASSWORD, candidates(users, ALICE), 1)
    remembered.remember(ALICE, PASSWORD, candidates(users, ALICE), 0)
    users.remove(ALICE)
    assert not remembered.knows(ALICE, PASSWORD, candidates(users, ALICE), 1)


def test_as_many_are_remembered_as_the_bound_says() -> None:
    found, remembered = candidates(USERS, ALICE), RememberedPasswords(b"key", users_max=2)
    for name in ("a", "b", "c"):
        remembered.remember(name, PASSWORD, found, 0)
    assert [remembered.knows(name, PASSWORD, found, 1) for name in ("a", "b", "c")] == [False, True, True]


def test_no_password_and_no_token_is_in_a_repr() -> None:
    remembered = RememberedPasswords(b"key")
    remembered.remember(ALICE, PASSWORD, candidates(USERS, ALICE), 0)
    shown = [
        repr(PasswordCheck(ALICE, PASSWORD)),
        repr(vars(remembered)),
        repr(TokenCheck("abc.def.ghi", "")),
    ]
    assert not any(secret in text for text in shown for secret in (PASSWORD, "abc.def"))


# ---- OAUTHBEARER


@pytest.mark.parametrize(
    ("message", "check"),
    [
        (bearer("a.b.c"), TokenCheck("a.b.c", "")),
        (bearer("a.b.c", "bob=2Cjr=3D"), TokenCheck("a.b.c", "bob,jr=")),
        (b"n,,\x01auth=bearer  x\x01host=h\x01port=9\x01\x01", TokenCheck("x", "")),
        (b"n,,\x01host=h\x01auth=Bearer x\x01\x01", TokenCheck("x", "")),
        (b"n,,\x01auth=Basic x\x01\x01", None),
        (b"n,,\x01auth=Bearer \x01\x01", None),
        (b"n,,\x01auth=Bearer x y\x01\x01", None),
        (b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01", None),
        (b"n,,\x01auth=Bearer x\x01", None),
        (b"n,,\x01auth=Bearer x\x01\x01more", None),
        (b"n,,\x01\x01", None),
        (b"y,,\x01auth=Bearer x\x01\x01", None),
        (b"n,a=,\x01auth=Bearer x\x01\x01", None),
        (b"n,b=bob,\x01auth=Bearer x\x01\x01", None),
        (b"n,,x\x01auth=Bearer x\x01\x01", None),
        (b"n,,auth=Bearer x", None),
        (MANY_EXTENSIONS, None),
        (b"\x01", None),
        (b"", None),
        (b"n,,\x01auth=Bearer \xff\x01\x01", None),
    ],
)
def test_the_forms_of_oauthbearer(message: bytes, check: TokenCheck | None) -> None:
    assert parse_bearer(message) == check
    step = BearerExchange().receive(message)
    assert step == (Refused(Cause.MALFORMED) if check is None else Verify(check))


@given(st.binary(max_size=60))
def test_no_message_breaks_the_mechanisms(message: bytes) -> None:
    for one in (BearerExchange(), PlainExchange(USERS), exchange()):
        step = one.receive(message)
        assert isinstance(step, Proceed | Verify | Refused)


@pytest.mark.parametrize("second", [b"\x01", b"", bearer("a.b.c")])
def test_a_refused_token_is_challenged_first_and_whatever_comes_then_is_refused(second: bytes) -> None:
    one = BearerExchange()
    one.receive(bearer("a.b.c"))
    assert one.verified(Refused(Cause.EXPIRED, ALICE)) == Proceed(INVALID_TOKEN.encode())
    assert one.receive(second) == Refused(Cause.EXPIRED, ALICE, '{"status":"invalid_token"}')


def test_the_verdict_of_a_good_token_stays() -> None:
    one = BearerExchange()
    one.receive(bearer("a.b.c"))
    assert one.verified(Proved(ALICE, lifetime_ms=5)) == Proved(ALICE, lifetime_ms=5)
    assert one.verified(Unavailable("no keys")) == Unavailable("no keys")


def test_a_scram_proof_has_the_length_of_the_hash() -> None:
    client, server = scram(), exchange()
    final = client.final(challenge(server, client))
    short = base64.b64encode(b"short")
    step = server.receive(final[: final.index(b",p=") + 3] + short)
    assert step == Refused(Cause.WRONG_PASSWORD, ALICE)


def test_a_long_token_is_refused_before_it_is_checked() -> None:
    around = len(b"n,,\x01auth=Bearer \x01\x01")
    for more, expected in ((0, Verify), (1, Refused)):
        message = b"n,,\x01auth=Bearer %b\x01\x01" % (b"x" * (TOKEN_BYTES_MAX - around + more))
        step = BearerExchange().receive(message)
        assert isinstance(step, expected)
    assert step == Refused(Cause.LENGTH)
