"""The server's side of SCRAM: RFC 7677's example, a client from the RFC as oracle, and what an attacker may send."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.scram import Authenticated, Challenge, Credentials, Failed, Failure, ScramServer
from kafscale.access.scram_credentials import (
    ScramCredential,
    ScramMechanism,
    credential_of_password,
    credential_of_salted,
    password_matches,
    salt_of,
)
from kafscale.testkit.scram_client import ScramClient

SHA_256, SHA_512 = ScramMechanism
SALT = b"w7qexy5ng3rkkzoqoy8hjzkyus"
KEY = b"a secret of the cluster"
NONCE = "3rfcNHYJY1ZVvWVs7j"
ITERATIONS = 5  # a test of the protocol needs no slow hash


def credential(mechanism: ScramMechanism = SHA_256, password: str = "pencil") -> ScramCredential:
    return credential_of_password(mechanism, password, salt=SALT, iterations=ITERATIONS)


def server(mechanism: ScramMechanism = SHA_256, credentials: Credentials | None = None) -> ScramServer:
    """By default one user exists: `user` with the password `pencil`."""
    known = {"user": credential(mechanism)}
    return ScramServer(mechanism, credentials or known.get, server_nonce=NONCE, decoy_key=KEY)


def client(mechanism: ScramMechanism = SHA_256, user: str = "user", password: str = "pencil") -> ScramClient:
    return ScramClient(mechanism.hash_name, user, password, "fyko+d2lbbFgONRv9qkxdawL")


def challenged(one: ScramServer, first: bytes) -> bytes:
    answer = one.receive(first)
    assert isinstance(answer, Challenge), answer
    return answer.token


def test_the_example_of_rfc_7677() -> None:
    stored = credential_of_password(
        SHA_256, "pencil", salt=base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), iterations=4096
    )
    one = ScramServer(
        SHA_256, {"user": stored}.get, server_nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0", decoy_key=KEY
    )
    nonce = b"rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert one.receive(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == Challenge(
        b"r=" + nonce + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = b"c=biws,r=" + nonce + b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert one.receive(final) == Authenticated(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", "user")


names = st.text(st.characters(min_codepoint=1, max_codepoint=127), min_size=1)
passwords = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.sampled_from(ScramMechanism), names, passwords, passwords)
def test_a_client_of_the_rfc_is_let_in_with_its_password_alone(
    mechanism: ScramMechanism, user: str, password: str, other: str
) -> None:
    known = {user: credential(mechanism, password)}
    for tried in (password, other):
        one, peer = server(mechanism, known.get), client(mechanism, user, tried)
        answer = one.receive(peer.final(challenged(one, peer.first())))
        if tried == password:
            assert isinstance(answer, Authenticated)
            assert answer.user == user
            peer.check(answer.token)
        else:
            assert answer == Failed(Failure.PROOF, user)


def test_passwords_are_compared_without_normalisation() -> None:
    composed, decomposed = "é", "e\u0301"
    one, peer = server(credentials={"user": credential(password=composed)}.get), client(password=decomposed)
    assert one.receive(peer.final(challenged(one, peer.first()))) == Failed(Failure.PROOF, "user")


def test_commas_and_equals_signs_in_names_are_escaped() -> None:
    one = server(credentials={"a=2C,b": credential()}.get)
    peer = client(user="a=2C,b")
    first = peer.first()
    assert first.startswith(b"n,,n=a=3D2C=2Cb,")
    answer = one.receive(peer.final(challenged(one, first)))
    assert isinstance(answer, Authenticated)
    assert answer.user == "a=2C,b"


def test_extensions_are_ignored_and_signed() -> None:
    one, peer = server(), client()
    peer.extensions = ",tokenauth=false,x=y"
    answer = one.receive(peer.final(challenged(one, peer.first()), extensions=",z=1"))
    assert isinstance(answer, Authenticated)
    peer.check(answer.token)


FIRST = [
    (b"", Failure.MALFORMED),
    (b"\xff\xfe", Failure.MALFORMED),
    (b"n,,n=,r=abc", Failure.MALFORMED),
    (b"n,,n=us=er,r=abc", Failure.MALFORMED),
    (b"n,,n=us=2cer,r=abc", Failure.MALFORMED),
    ("n,,n=é,r=abc".encode(), Failure.MALFORMED),
    (b"n,,n=user,r=", Failure.MALFORMED),
    (b"n,,n=user,r=a b", Failure.MALFORMED),
    (b"n,,n=user", Failure.MALFORMED),
    (b"n,,m=must,n=user,r=abc", Failure.MALFORMED),
    (b"n,,n=user,r=abc\n", Failure.MALFORMED),
    (b"n,,n=user,r=abc,tokenauth=true", Failure.TOKEN),
    (b"n,,n=user,r=abc,x=y,tokenauth=TRUE", Failure.TOKEN),
    (b"n,a=admin,n=user,r=abc", Failure.AUTHORIZATION_ID),
    (b"y,,n=user,r=abc", Failure.CHANNEL_BINDING),
    (b"p=tls-unique,,n=user,r=abc", Failure.CHANNEL_BINDING),
]


@pytest.mark.parametrize(("message", "why"), FIRST)
def test_a_first_message_that_is_refused(message: bytes, why: Failure) -> None:
    one = server()
    answer = one.receive(message)
    assert isinstance(answer, Failed)
    assert answer.why is why
    assert answer.user == (None if why is Failure.MALFORMED else "user")


def test_an_authorization_id_that_is_the_user_is_accepted() -> None:
    one, peer = server(), client()
    peer.header = "n,a=user,"
    assert isinstance(one.receive(peer.final(challenged(one, peer.first()))), Authenticated)


def finals(good: bytes) -> list[tuple[bytes, Failure]]:
    """Final messages that differ from a good one."""
    bare, _, proof = good.rpartition(b",p=")
    nonce = bare.partition(b",r=")[2]
    return [
        (b"", Failure.MALFORMED),
        (bare, Failure.MALFORMED),
        (b"%b,p=%b" % (bare, proof[:-1]), Failure.MALFORMED),
        (b"%b,p=" % bare, Failure.PROOF),
        (b"%b,p=AAAA" % bare, Failure.PROOF),
        (b"%b,p=%b" % (bare, base64.b64encode(bytes(32))), Failure.PROOF),
        (b"%b,x=y,p=%b" % (bare, proof), Failure.PROOF),
        (b"c=biws,r=%b,p=%b" % (nonce[:-1], proof), Failure.NONCE),
        (b"c=biws,r=%bX,p=%b" % (nonce, proof), Failure.NONCE),
        (b"c=biws,r=%b,p=%b" % (NONCE.encode(), proof), Failure.NONCE),
        (b"c=eSws,r=%b,p=%b" % (nonce, proof), Failure.CHANNEL_BINDING),
        (b"c=,r=%b,p=%b" % (nonce, proof), Failure.CHANNEL_BINDING),
    ]


@pytest.mark.parametrize("number", range(12))
def test_a_final_message_that_is_refused(number: int) -> None:
    one, peer = server(), client()
    good = peer.final(challenged(one, peer.first()))
    message, why = finals(good)[number]
    assert one.receive(message) == Failed(why, "user")
    assert one.receive(good) == Failed(Failure.ENDED)


def test_messages_of_another_exchange_are_refused() -> None:
    one, peer = server(), client()
    final = peer.final(challenged(one, peer.first()))
    assert isinstance(one.receive(final), Authenticated)
    assert one.receive(final) == Failed(Failure.ENDED)
    known = {"user": credential()}
    again = ScramServer(SHA_256, known.get, server_nonce="another", decoy_key=KEY)
    challenged(again, peer.first())
    assert again.receive(final) == Failed(Failure.NONCE, "user")


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_no_message_raises(first: bytes, second: bytes) -> None:
    one = server()
    assert isinstance(one.receive(first), Challenge | Failed)
    one = server()
    challenged(one, b"n,,n=user,r=abc")
    assert isinstance(one.receive(second), Failed)


def test_a_user_who_does_not_exist_is_challenged_and_fails_at_the_proof() -> None:
    peer = client(user="nobody")
    salts = set()
    for _ in range(2):
        one = server()
        token = challenged(one, peer.first())
        final = peer.final(token)
        salts.add(peer.fields["s"])
        assert one.receive(final) == Failed(Failure.UNKNOWN_USER, "nobody")
    assert len(salts) == 1
    assert peer.fields["i"] == "4096"


def test_the_computation_is_the_same_for_known_and_unknown_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts the keyed hashes, which are nearly all of the time."""
    calls: list[str] = []
    real = ScramMechanism.hmac

    def counted(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
        calls.append(f"{len(data) // 64}")
        return real(mechanism, key, data)

    monkeypatch.setattr(ScramMechanism, "hmac", counted)
    counts = []
    for user in ("user", "none"):
        one, peer = server(), client(user=user, password="wrong")
        final = peer.final(challenged(one, peer.first()))
        assert isinstance(one.receive(final), Failed)
        counts.append(list(calls))
        calls.clear()
    assert counts[0] == counts[1]


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_credential_of_the_salted_password_is_that_of_the_password(mechanism: ScramMechanism) -> None:
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, b"pencil", SALT, ITERATIONS)
    assert credential_of_salted(mechanism, salted, salt=SALT, iterations=ITERATIONS) == credential(mechanism)
    assert password_matches(credential(mechanism), "pencil")
    assert not password_matches(credential(mechanism), "Pencil")


def test_no_repr_shows_a_secret() -> None:
    assert repr(credential()) == f"ScramCredential(mechanism={SHA_256!r}, iterations={ITERATIONS})"


def test_mechanisms_have_kafka_s_codes_and_names() -> None:
    assert [(int(mechanism), mechanism.sasl_name) for mechanism in ScramMechanism] == [
        (1, "SCRAM-SHA-256"),
        (2, "SCRAM-SHA-512"),
    ]


@given(st.integers(0, (1 << 130) - 1))
def test_a_salt_is_the_number_in_base_36(number: int) -> None:
    assert int(salt_of(number), 36) == number
    assert len(salt_of((1 << 130) - 1)) == 26


def test_a_server_nonce_that_scram_forbids_is_our_own_mistake() -> None:
    with pytest.raises(AssertionError, match="forbids"):
        ScramServer(SHA_256, lambda _: None, server_nonce="a,b", decoy_key=KEY)
