"""SCRAM credentials: what is stored of a password, and how it is made (RFC 5802, RFC 7677; Kafka's ScramFormatter).

Kafka applies no SASLprep: a password is its UTF-8 bytes. StoredKey and ServerKey let a server verify a client, but not
log in as that client. Random numbers are arguments.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

ITERATIONS_DEFAULT: Final = 4_096
"""What kafka-configs uses if none are given, and the least that Kafka accepts."""
SALT_BITS: Final = 130
_BASE_36: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(IntEnum):
    """The codes are those of DescribeUserScramCredentials."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def sasl_name(self) -> str:
        """The name in SaslHandshake: `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The hash function's name in hashlib."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What is kept of a password. The keys are left out of its repr, so that no log shows them."""

    mechanism: ScramMechanism
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def credential_of_password(
    mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int = ITERATIONS_DEFAULT
) -> ScramCredential:
    """Slow on purpose (some milliseconds): for a thread. `salt` is `salt_of` a fresh random number."""
    salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
    return credential_of_salted(mechanism, salted, salt=salt, iterations=iterations)


def credential_of_salted(
    mechanism: ScramMechanism, salted_password: bytes, *, salt: bytes, iterations: int
) -> ScramCredential:
    """Of what AlterUserScramCredentials sends: the client has done the slow part (ScramControlManager)."""
    client_key = mechanism.hmac(salted_password, b"Client Key")
    return ScramCredential(
        mechanism=mechanism,
        salt=salt,
        stored_key=mechanism.hash(client_key),
        server_key=mechanism.hmac(salted_password, b"Server Key"),
        iterations=iterations,
    )


def password_matches(credential: ScramCredential, password: str) -> bool:
    """For SASL/PLAIN, which is checked with the same credentials. Slow on purpose: for a thread."""
    tried = credential_of_password(
        credential.mechanism, password, salt=credential.salt, iterations=credential.iterations
    )
    return hmac.compare_digest(tried.stored_key, credential.stored_key)


def salt_of(number: int) -> bytes:
    """A salt from a random number of 130 bits, in the form that Kafka's clients give it: base 36, as ASCII."""
    assert 0 <= number < 1 << SALT_BITS, "a salt is made of 130 bits"
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = _BASE_36[digit] + digits
    return digits.encode()
