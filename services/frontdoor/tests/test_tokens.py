"""JSON Web Tokens: what is accepted, every attack of RFC 8725 that a header can carry, and every claim."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from kafscale.frontdoor.authentication.steps import Cause, Proved, Refused
from kafscale.frontdoor.authentication.tokens import (
    KEYS_MAX,
    LIFETIME_MS_MAX,
    KeysWrong,
    TokenRules,
    UnknownKey,
    check_token,
    parse_keys,
)
from login_harness import ALICE, AUDIENCE, ISSUER, Issuer

ISSUED_BY = Issuer()
STRANGER = Issuer()
KEYS = parse_keys(ISSUED_BY.jwks)
RULES = TokenRules(issuer=ISSUER, audiences=(AUDIENCE, "another"))


def check(token: str, rules: TokenRules = RULES, authorization_id: str = "") -> Proved | Refused | UnknownKey:
    return check_token(token, KEYS, rules, authorization_id=authorization_id, wall_ms=int(time.time() * 1000))


def cause(token: str, **more: Any) -> Cause:
    verdict = check(token, **more)
    assert isinstance(verdict, Refused)
    return verdict.cause


def forged(header: dict[str, Any], key: bytes | None = None, **claims: object) -> str:
    """Signed by hand, because the library would not: with HMAC, or not at all."""
    parts = [json.dumps(part).encode() for part in ({"typ": "JWT", **header}, ISSUED_BY.claims(**claims))]
    signed = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    signature = b"" if key is None else hmac.digest(key, signed.encode(), hashlib.sha256)
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


@pytest.mark.parametrize("alg", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256"])
def test_signatures_by_rsa_and_elliptic_curves_are_accepted(alg: str) -> None:
    verdict = check(ISSUED_BY.token(alg=alg, kid="ec" if alg == "ES256" else "rsa"))
    assert isinstance(verdict, Proved)
    assert verdict.user == ALICE
    assert verdict.lifetime_ms is not None
    assert 3_590_000 < verdict.lifetime_ms <= 3_600_000


@pytest.mark.parametrize(
    ("curve", "name", "alg"), [(ec.SECP384R1(), "P-384", "ES384"), (ec.SECP521R1(), "P-521", "ES512")]
)
def test_the_other_curves_too(curve: ec.EllipticCurve, name: str, alg: str) -> None:
    key = ec.generate_private_key(curve)
    entry = Issuer.entry("k", jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True))
    assert entry["crv"] == name
    keys = parse_keys(json.dumps({"keys": [entry]}).encode())
    token = jwt.encode(ISSUED_BY.claims(), key, algorithm=alg, headers={"kid": "k"})
    assert isinstance(check_token(token, keys, RULES, authorization_id="", wall_ms=0), Proved)


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE"])
def test_a_token_without_signature_is_refused(alg: str) -> None:
    assert cause(forged({"alg": alg, "kid": "rsa"})) is Cause.ALGORITHM
    assert check(forged({"alg": alg})) == UnknownKey()


def test_a_hmac_with_the_public_key_is_refused() -> None:
    public = ISSUED_BY.rsa.public_key()
    for text in (
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    ):
        assert cause(forged({"alg": "HS256", "kid": "rsa"}, text)) is Cause.ALGORITHM


def test_an_algorithm_of_another_type_of_key_is_refused() -> None:
    assert cause(ISSUED_BY.token(alg="ES256", kid="rsa")) is Cause.ALGORITHM
    assert cause(ISSUED_BY.token(alg="RS256", kid="ec")) is Cause.ALGORITHM


@pytest.mark.parametrize("where", ["jku", "x5u", "jwk", "x5c"])
def test_the_header_of_a_token_brings_no_key(where: str) -> None:
    entry = STRANGER.entries[0]
    brought = {
        "jku": "https://evil.example/keys",
        "x5u": "https://evil.example/c",
        "jwk": entry,
        "x5c": ["MII"],
    }
    assert cause(STRANGER.token(headers={where: brought[where]})) is Cause.SIGNATURE
    assert check(STRANGER.token(kid="new", headers={where: brought[where]})) == UnknownKey()


@pytest.mark.parametrize(
    "odd",
    [
        {"kid": ["a"]},
        {"kid": {"a": 1}},
        {"kid": 7},
        {"alg": ["RS256"]},
        {"alg": {}},
        {"use": ["sig"]},
        {"key_ops": 7},
        {"kty": ["RSA"]},
        {"crv": ["P-256"], "kty": "EC"},
        {"n": 7},
        {"n": ""},
        {"e": "AA"},
        {"x5c": 7, "n": None},
    ],
)
def test_an_odd_key_is_left_out_and_the_others_stay(odd: dict[str, Any]) -> None:
    good, other = ISSUED_BY.entries
    keys = parse_keys(json.dumps({"keys": [{**good, "kid": "odd", **odd}, other, 7, None, "text"]}).encode())
    assert list(keys.by_kid) == ["ec"]
    with pytest.raises(KeysWrong):
        parse_keys(json.dumps({"keys": [{**good, **odd}]}).encode())


@pytest.mark.parametrize(
    "name", ["a\ud800", "\udfff", "c\0d", "a\nb", "a\x1b[31m", "a\x7f", "a\x85", "a\u2028b", "a\u2029b"]
)
def test_a_name_with_control_codes_or_surrogates_is_refused(name: str) -> None:
    assert check(ISSUED_BY.token(sub=name)) == Refused(Cause.NAME)


@pytest.mark.parametrize("name", ["José", "名前", "a b", "😀", "system:serviceaccount:secret-manager:job"])
def test_other_names_are_principals(name: str) -> None:
    verdict = check(ISSUED_BY.token(sub=name))
    assert isinstance(verdict, Proved)
    assert verdict.user == name


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ({"aud": "other"}, Cause.AUDIENCE),
        ({"aud": []}, Cause.CLAIM),
        ({"aud": 7}, Cause.AUDIENCE),
        ({"aud": None}, Cause.CLAIM),
        ({"iss": "https://evil.example"}, Cause.ISSUER),
        ({"iss": ISSUER + "/"}, Cause.ISSUER),
        ({"iss": [ISSUER]}, Cause.ISSUER),
        ({"iss": None}, Cause.CLAIM),
        ({"exp": None}, Cause.CLAIM),
        ({"exp": 1}, Cause.EXPIRED),
        ({"exp": "9999999999"}, Cause.CLAIM),
        ({"exp": "soon"}, Cause.MALFORMED),
        ({"exp": []}, Cause.MALFORMED),
        ({"exp": 1e999}, Cause.MALFORMED),
        ({"nbf": 9_999_999_999}, Cause.EXPIRED),
        ({"sub": None}, Cause.CLAIM),
        ({"sub": ""}, Cause.CLAIM),
        ({"sub": 7}, Cause.CLAIM),
        ({"sub": "x" * 2_000}, Cause.CLAIM),
    ],
)
def test_what_a_token_must_say(claims: dict[str, Any], expected: Cause) -> None:
    assert cause(signed_as_is(claims)) is expected


def signed_as_is(claims: dict[str, Any]) -> str:
    """Without the library's checks of claims."""
    body = json.dumps(ISSUED_BY.claims(**claims)).encode()
    return jwt.api_jws.encode(body, ISSUED_BY.rsa, algorithm="RS256", headers={"kid": "rsa"})


def test_one_of_several_audiences_is_enough() -> None:
    assert isinstance(check(ISSUED_BY.token(aud=["x", "another"])), Proved)


def test_clocks_may_differ_by_the_skew() -> None:
    now_s = int(time.time())
    late = ISSUED_BY.token(exp=now_s - 20)
    verdict = check(late)
    assert isinstance(verdict, Proved)
    assert verdict.lifetime_ms is not None
    assert verdict.lifetime_ms < 0, "the session ends at once"
    assert isinstance(check(ISSUED_BY.token(nbf=now_s + 20)), Proved)
    assert cause(ISSUED_BY.token(exp=now_s - 40)) is Cause.EXPIRED
    strict = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), skew_s=0)
    assert cause(late, rules=strict) is Cause.EXPIRED


def test_an_end_in_the_far_future_fits_into_the_answer() -> None:
    verdict = check(signed_as_is({"exp": 10**30}))
    assert verdict == Proved(ALICE, lifetime_ms=LIFETIME_MS_MAX)
    assert cause(signed_as_is({"exp": 10**400})) is Cause.MALFORMED


def test_the_name_may_be_in_another_claim() -> None:
    rules = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), sub_claim="client_id")
    verdict = check(ISSUED_BY.token(client_id="job-7"), rules=rules)
    assert isinstance(verdict, Proved)
    assert verdict.user == "job-7"


def test_the_authorization_id_is_the_name() -> None:
    assert isinstance(check(ISSUED_BY.token(), authorization_id=ALICE), Proved)
    assert cause(ISSUED_BY.token(), authorization_id="bob") is Cause.AUTHORIZATION_ID


def test_critical_extensions_are_refused() -> None:
    assert cause(ISSUED_BY.token(headers={"crit": ["exp"], "exp": 1})) is Cause.MALFORMED
    assert cause(ISSUED_BY.token(headers={"crit": ["b64"], "b64": False})) is Cause.MALFORMED


def test_a_changed_token_is_refused() -> None:
    header, payload, signature = ISSUED_BY.token().split(".")
    other = ISSUED_BY.token(sub="admin").split(".")[1]
    assert cause(f"{header}.{other}.{signature}") is Cause.SIGNATURE
    assert cause(f"{header}.{payload}.") is Cause.SIGNATURE


def test_a_token_without_kid_may_use_the_only_key() -> None:
    assert check(ISSUED_BY.token(kid=None)) == UnknownKey()
    keys = parse_keys(json.dumps({"keys": ISSUED_BY.entries[:1]}).encode())
    token = ISSUED_BY.token(kid=None)
    assert isinstance(check_token(token, keys, RULES, authorization_id="", wall_ms=0), Proved)


@pytest.mark.parametrize(
    "header", [{"kid": 7}, {"kid": ["rsa"]}, {"kid": "rsa", "alg": ["RS256"]}, {"kid": {}, "alg": {}}]
)
def test_a_header_with_other_types_is_refused(header: dict[str, Any]) -> None:
    assert isinstance(check(forged({"alg": "RS256", **header})), Refused)


@given(st.text(st.sampled_from(".-_abcAZ09"), max_size=80))
def test_no_text_breaks_the_check(text: str) -> None:
    assert isinstance(check(text), Refused | UnknownKey)


# ---- the set of keys


def usable(*entries: object) -> set[str | None]:
    try:
        return set(parse_keys(json.dumps({"keys": [*entries]}).encode()).by_kid)
    except KeysWrong:
        return set()


def test_keys_of_other_kinds_are_left_out() -> None:
    good = ISSUED_BY.entries[0]
    small = rsa.generate_private_key(public_exponent=65_537, key_size=1_024)
    small_entry = Issuer.entry("small", jwt.algorithms.RSAAlgorithm.to_jwk(small.public_key(), as_dict=True))
    okp = jwt.algorithms.OKPAlgorithm.to_jwk(ed25519.Ed25519PrivateKey.generate().public_key(), as_dict=True)
    private = Issuer.entry("private", jwt.algorithms.RSAAlgorithm.to_jwk(ISSUED_BY.rsa, as_dict=True))
    others = [
        small_entry,
        private,
        Issuer.entry("okp", okp),
        {**good, "kid": "encryption", "use": "enc"},
        {**good, "kid": "wrapping", "key_ops": ["wrapKey"]},
        {**good, "kid": "hmac", "alg": "HS256"},
        {**good, "kid": "list", "alg": ["RS256"]},
        {"kid": "oct", "kty": "oct", "k": "c2VjcmV0", "alg": "HS256"},
        {"kid": "curve", "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"},
        {"kid": "broken", "kty": "RSA", "n": "!", "e": "AQAB"},
        {"kid": "typeless"},
        7,
        None,
    ]
    for other in others:
        assert usable(other) == set()
    assert usable(good, *others) == {"rsa"}


def test_a_key_that_names_an_algorithm_verifies_no_other() -> None:
    keys = parse_keys(json.dumps({"keys": [{**ISSUED_BY.entries[0], "alg": "RS512"}]}).encode())
    for alg, kind in (("RS512", Proved), ("RS256", Refused), ("PS512", Refused)):
        verdict = check_token(ISSUED_BY.token(alg=alg), keys, RULES, authorization_id="", wall_ms=0)
        assert isinstance(verdict, kind)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{}",
        b"[]",
        b'{"keys": {}}',
        b'{"keys": []}',
        b"\xff",
        b"[" * 100_000,
        b'{"keys": [%s]}' % b",".join([b"{}"] * (KEYS_MAX + 1)),
    ],
)
def test_a_document_that_is_no_set_of_keys_is_refused(document: bytes) -> None:
    with pytest.raises(KeysWrong):
        parse_keys(document)
