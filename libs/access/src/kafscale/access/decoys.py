"""Credentials of users who do not exist: what a client learns of them is what it learns of users who exist. Pure.

SCRAM's first answer shows the salt and the iterations, before the client has proved anything. Their form shows who
made the credential: Java draws 130 bits as base 36, librdkafka 64 bytes, and an operator chooses the iterations.
So a decoy takes the form of credentials that are stored.

Laws: a decoy depends on the name, on the secret `key` and on the forms that are stored, so a client that asks twice, or
asks two front doors, sees the same. Each form has decoys roughly in proportion to the users who have it: proportions
are rounded to powers of two, so that a new user seldom changes the decoy of another name. When they do change, only
names move to or from the form that changed (weighted rendezvous hashing).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.access.scram_credentials import (
    ITERATIONS_DEFAULT,
    SALT_BITS,
    ScramCredential,
    ScramMechanism,
    salt_of,
)

FORMS_MAX: Final = 16
"""The most frequent forms are used. Each costs a keyed hash for each login."""
_KAFKA: Final = "kafka"
"""A number of 130 bits in base 36: 24 to 26 characters, nearly always."""
_BYTES: Final = "bytes"
_KAFKA_LENGTH_MIN: Final = 20
_BASE_36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_ALPHABETS: Final[Mapping[str, bytes]] = {
    "hexadecimal": b"0123456789abcdef",
    "base 36": _BASE_36.encode(),
    "base 64": b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/=",
    "printable": bytes(range(0x20, 0x7F)),
    _BYTES: bytes(range(256)),
}


@dataclass(frozen=True, slots=True, order=True)
class Form:
    """What the first answer shows of a credential. `length`: bytes of the salt; 0 in Kafka's form, where it varies."""

    alphabet: str
    length: int
    iterations: int


Weights = Sequence[tuple[Form, int]]
"""Forms, and how many decoys each has in proportion to the others."""
USUAL: Final[Weights] = ((Form(_KAFKA, 0, ITERATIONS_DEFAULT), 1),)
"""Of a cluster without users."""


class Forms:
    """Of the stored credentials of one mechanism."""

    def __init__(self) -> None:
        self._counts: Counter[Form] = Counter()
        self._weights: Weights | None = USUAL

    def replace(self, old: ScramCredential | None, new: ScramCredential | None) -> None:
        """A credential was stored, replaced or removed."""
        if old is not None:
            self._counts[form_of(old)] -= 1
        if new is not None:
            self._counts[form_of(new)] += 1
        self._weights = None

    @property
    def weights(self) -> Weights:
        if self._weights is None:
            self._counts = +self._counts  # without those that no credential has any more
            found = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))[:FORMS_MAX]
            self._weights = tuple((form, 1 << (count.bit_length() - 1)) for form, count in found) or USUAL
        return self._weights


def form_of(credential: ScramCredential) -> Form:
    salt, iterations = credential.salt, credential.iterations
    if _is_kafkas(salt):
        return Form(_KAFKA, 0, iterations)
    alphabet = next(name for name, letters in _ALPHABETS.items() if not salt.translate(None, letters))
    return Form(alphabet, len(salt), iterations)


def _is_kafkas(salt: bytes) -> bool:
    """Whether `salt_of` may have made it."""
    if len(salt) < _KAFKA_LENGTH_MIN or salt.startswith(b"0") or salt.translate(None, _ALPHABETS["base 36"]):
        return False
    return int(salt, 36) < 1 << SALT_BITS


def decoy_credential(
    mechanism: ScramMechanism, user: str, *, key: bytes, weights: Weights = USUAL
) -> ScramCredential:
    """The credential of a user who does not exist. No password fits it."""
    secret = mechanism.hmac(key, f"{mechanism.sasl_name}:{user}".encode())
    form = _chosen(mechanism, secret, weights)
    return ScramCredential(
        mechanism=mechanism,
        salt=_salt(mechanism, mechanism.hmac(secret, b"Salt"), form),
        stored_key=mechanism.hmac(secret, b"Stored Key"),
        server_key=mechanism.hmac(secret, b"Server Key"),
        iterations=form.iterations,
    )


def _chosen(mechanism: ScramMechanism, secret: bytes, weights: Weights) -> Form:
    """The form with the least -ln(random)/weight, where the random number is that of the name and the form."""

    def score(form: Form, weight: int) -> float:
        name = f"Form:{form.alphabet}:{form.length}:{form.iterations}"
        drawn = int.from_bytes(mechanism.hmac(secret, name.encode())[:6], "big")
        return -math.log((drawn + 1) / (1 << 48)) / weight

    return min((score(form, weight), form) for form, weight in weights)[1]


def _salt(mechanism: ScramMechanism, seed: bytes, form: Form) -> bytes:
    if form.alphabet == _KAFKA:
        return salt_of(int.from_bytes(seed, "big") % (1 << SALT_BITS))
    letters = _ALPHABETS[form.alphabet]
    drawn = b""
    while len(drawn) < 2 * form.length:
        drawn += mechanism.hmac(seed, len(drawn).to_bytes(4, "big"))
    pairs = (int.from_bytes(drawn[at : at + 2], "big") for at in range(0, 2 * form.length, 2))
    return bytes(letters[pair % len(letters)] for pair in pairs)
