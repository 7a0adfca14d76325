"""JSON Web Tokens of SASL/OAUTHBEARER: the issuer's keys, and what a token must say (RFC 7515, 7517, 7519, 8725). Pure,
except that PyJWT reads the wall clock.

Laws: only signatures by RSA and by elliptic curves count, and a key verifies only the algorithms of its type. So
neither `alg: none` nor a HMAC with the public key is ever tried. The header of a token names a key (`kid`) and never
brings one: `jku`, `x5u`, `jwk` and `x5c` are not read. `exp`, `iss`, `aud` and the claim with the user's name are
required.
"""

import json
import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.exceptions import (
    ExpiredSignatureError,
    ImmatureSignatureError,
    InvalidAlgorithmError,
    InvalidAudienceError,
    InvalidIssuedAtError,
    InvalidIssuerError,
    InvalidSignatureError,
    MissingRequiredClaimError,
    PyJWTError,
)
from kafscale.frontdoor.authentication.steps import Cause, Proved, Refused

RSA_ALGORITHMS: Final = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
CURVES: Final = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}
RSA_BITS_MIN: Final = 2_048
KEYS_MAX: Final = 100
NAME_CHARS_MAX: Final = 1_024
_NO_NAMES: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode's categories of control codes, surrogates and ends of lines. A name with a surrogate has no bytes."""
LIFETIME_MS_MAX: Final = 1 << 53
"""The rest of the time of a token that expires in the far future."""
# What PyJWT and the decoders below it raise about a foreign text.
_BROKEN: Final = (PyJWTError, ValueError, TypeError, KeyError, OverflowError, RecursionError)
_CAUSES: Final[tuple[tuple[type[PyJWTError], Cause], ...]] = (
    (InvalidSignatureError, Cause.SIGNATURE),
    (InvalidAlgorithmError, Cause.ALGORITHM),
    (ExpiredSignatureError, Cause.EXPIRED),
    (ImmatureSignatureError, Cause.EXPIRED),
    (InvalidIssuedAtError, Cause.CLAIM),
    (InvalidIssuerError, Cause.ISSUER),
    (InvalidAudienceError, Cause.AUDIENCE),
    (MissingRequiredClaimError, Cause.CLAIM),
)


class KeysWrong(ValueError):
    """The document is not a set of keys that can be used. The sentence contains nothing of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """`audiences`: a token must name one of them."""

    issuer: str
    audiences: tuple[str, ...]
    sub_claim: str = "sub"
    skew_s: int = 30


@dataclass(frozen=True, slots=True)
class Key:
    """A public key, and the algorithms that it verifies."""

    algorithms: frozenset[str]
    key: jwt.PyJWK = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeySet:
    by_kid: Mapping[str | None, Key]

    def find(self, kid: str | None) -> Key | None:
        """A token that names no key may be signed by the only one that there is."""
        if kid is None and len(self.by_kid) == 1:
            return next(iter(self.by_kid.values()))
        return self.by_kid.get(kid)


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """Newer keys of the issuer may have the token's."""


def parse_keys(document: bytes) -> KeySet:
    """A JWK set. Keys of other kinds, for other uses, or too short are left out. Raises KeysWrong."""
    try:
        entries = json.loads(document)["keys"]
    except _BROKEN as error:
        raise KeysWrong("the document is not a JSON Web Key Set") from error
    if not isinstance(entries, list) or len(entries) > KEYS_MAX:
        raise KeysWrong(f"the document has no list of at most {KEYS_MAX} keys")
    found: dict[str | None, Key] = {}
    for entry in entries:
        key = _key_of(entry)
        if key is not None:
            found[key.key.key_id] = key
    if not found:
        raise KeysWrong("the document has no key that verifies RS, PS or ES signatures")
    return KeySet(found)


def _key_of(entry: object) -> Key | None:
    """None for a key that cannot be used, whatever is odd about it: the others of the document stay good."""
    try:
        return _usable_key(entry) if isinstance(entry, dict) else None
    except Exception:  # noqa: BLE001  (three libraries read a foreign text here)
        return None


def _usable_key(entry: Mapping[str, Any]) -> Key | None:
    if entry.get("use", "sig") != "sig" or "verify" not in entry.get("key_ops", ["verify"]) or "d" in entry:
        return None
    algorithms = _algorithms_of(entry)
    if not algorithms or not isinstance(entry.get("kid"), str | None):
        return None
    key = jwt.PyJWK.from_dict({**entry, "alg": min(algorithms)})
    if isinstance(key.key, RSAPublicKey) and key.key.key_size < RSA_BITS_MIN:
        return None
    return Key(algorithms, key)


def _algorithms_of(entry: Mapping[str, Any]) -> frozenset[str]:
    possible: frozenset[str] = frozenset()
    if entry.get("kty") == "RSA":
        possible = RSA_ALGORITHMS
    elif entry.get("kty") == "EC" and entry.get("crv") in CURVES:
        possible = frozenset({CURVES[entry["crv"]]})
    return possible & {entry["alg"]} if "alg" in entry else possible


def check_token(
    token: str, keys: KeySet, rules: TokenRules, *, authorization_id: str, wall_ms: int
) -> Proved | Refused | UnknownKey:
    """Checks a token. A long one takes some milliseconds, so call it in a thread. `wall_ms`: for the rest of the
    token's
    time."""
    try:
        return _checked(token, keys, rules, authorization_id, wall_ms)
    except _BROKEN as error:
        return Refused(next((cause for kind, cause in _CAUSES if isinstance(error, kind)), Cause.MALFORMED))


def _checked(
    token: str, keys: KeySet, rules: TokenRules, authorization_id: str, wall_ms: int
) -> Proved | Refused | UnknownKey:
    header = jwt.get_unverified_header(token)
    key = keys.find(header.get("kid"))
    if key is None:
        return UnknownKey()
    algorithm = header["alg"]
    if algorithm not in key.algorithms:
        return Refused(Cause.ALGORITHM)
    return _user_of(_claims(token, key, algorithm, rules), rules, authorization_id, wall_ms)


def _claims(token: str, key: Key, algorithm: str, rules: TokenRules) -> Mapping[str, Any]:
    claims: Mapping[str, Any] = jwt.decode(
        token,
        key.key.key,
        algorithms=[algorithm],
        issuer=rules.issuer,
        audience=rules.audiences,
        leeway=rules.skew_s,
        # A subject of another type is no reason to refuse: the name may be in another claim.
        options={"require": ["exp", "iss", "aud"], "verify_sub": False, "verify_jti": False},
    )
    return claims


def _user_of(
    claims: Mapping[str, Any], rules: TokenRules, authorization_id: str, wall_ms: int
) -> Proved | Refused:
    name, expires_s = claims.get(rules.sub_claim), claims["exp"]
    if not isinstance(name, str) or not 0 < len(name) <= NAME_CHARS_MAX:
        return Refused(Cause.CLAIM)
    if not _NO_NAMES.isdisjoint(map(unicodedata.category, name)):
        return Refused(Cause.NAME)
    if isinstance(expires_s, str) or not math.isfinite(expires_s):
        return Refused(Cause.CLAIM, name)
    if authorization_id not in ("", name):
        return Refused(Cause.AUTHORIZATION_ID, name)
    return Proved(name, lifetime_ms=min(int(expires_s * 1000) - wall_ms, LIFETIME_MS_MAX))
