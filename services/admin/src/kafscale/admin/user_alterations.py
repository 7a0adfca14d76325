"""What AlterUserScramCredentials asks for, checked as Kafka's ScramControlManager does. Pure.

Law: the salted password is turned into StoredKey and ServerKey here, before anything is stored, queued or logged. A
client can log in with a salted password, but not with the two keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafscale.access.scram_credentials import (
    ITERATIONS_DEFAULT,
    ScramCredential,
    ScramMechanism,
    credential_of_salted,
)
from kafscale.admin.plan import Refused
from kafscale.storage.access_keys import USER_CHARS_MAX
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import alter_user_scram_credentials as api

ITERATIONS_MIN: Final = ITERATIONS_DEFAULT
ITERATIONS_MAX: Final = 16_384
SALT_BYTES_MAX: Final = 1_024
ALTERATIONS_MAX: Final = 1_000
"""In one request. Each takes some time of the event loop."""

_E = ErrorCode
TWICE = Refused(_E.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
MISSING = Refused(_E.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
NAMELESS = Refused(_E.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
UNKNOWN_MECHANISM = Refused(_E.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
TOO_FEW = Refused(_E.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
TOO_MANY = Refused(_E.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
LONG_NAME = Refused(_E.UNACCEPTABLE_CREDENTIAL, f"The username has more than {USER_CHARS_MAX} characters")
TOO_MANY_AT_ONCE = Refused(_E.INVALID_REQUEST, f"A request may alter {ALTERATIONS_MAX} credentials at most")
LONG_SALT = Refused(_E.UNACCEPTABLE_CREDENTIAL, f"The salt has more than {SALT_BYTES_MAX} bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """`credential` None deletes that of the mechanism."""

    name: str
    mechanism: ScramMechanism
    credential: ScramCredential | None


@dataclass(frozen=True, slots=True)
class Planned:
    """A user is in one of the two. A user with two alterations has none of them made."""

    alterations: dict[str, Alteration] = field(default_factory=dict)
    refused: dict[str, Refused] = field(default_factory=dict)


def planned(
    deletions: Sequence[api.AlterUserScramCredentialsRequestCredentialDeletion],
    upsertions: Sequence[api.AlterUserScramCredentialsRequestCredentialUpsertion],
    exists: Callable[[str, ScramMechanism], bool],
) -> Planned:
    """In Kafka's order: the first error of a user is the one that counts."""
    plan = Planned()
    if len(deletions) + len(upsertions) > ALTERATIONS_MAX:
        names = [each.name for each in deletions] + [each.name for each in upsertions]
        return Planned(refused=dict.fromkeys(names, TOO_MANY_AT_ONCE))
    for deletion in deletions:
        _add(plan, deletion.name, _deleted(deletion, exists))
    for upsertion in upsertions:
        _add(plan, upsertion.name, _upserted(upsertion))
    return plan


def _add(plan: Planned, name: str, found: Alteration | Refused) -> None:
    if name in plan.refused:
        return
    if plan.alterations.pop(name, None) is not None:
        found = TWICE
    if isinstance(found, Refused):
        plan.refused[name] = found
    else:
        plan.alterations[name] = found


def _deleted(
    deletion: api.AlterUserScramCredentialsRequestCredentialDeletion,
    exists: Callable[[str, ScramMechanism], bool],
) -> Alteration | Refused:
    mechanism = _mechanism(deletion.name, deletion.mechanism)
    if isinstance(mechanism, Refused):
        return mechanism
    if not exists(deletion.name, mechanism):
        return MISSING
    return Alteration(name=deletion.name, mechanism=mechanism, credential=None)


def _upserted(
    upsertion: api.AlterUserScramCredentialsRequestCredentialUpsertion,
) -> Alteration | Refused:
    mechanism = _mechanism(upsertion.name, upsertion.mechanism)
    if isinstance(mechanism, Refused):
        return mechanism
    if upsertion.iterations < ITERATIONS_MIN:
        return TOO_FEW
    if upsertion.iterations > ITERATIONS_MAX:
        return TOO_MANY
    if len(upsertion.salt) > SALT_BYTES_MAX:
        return LONG_SALT
    credential = credential_of_salted(
        mechanism,
        bytes(upsertion.salted_password),
        salt=bytes(upsertion.salt),
        iterations=upsertion.iterations,
    )
    return Alteration(name=upsertion.name, mechanism=mechanism, credential=credential)


def _mechanism(name: str, code: int) -> ScramMechanism | Refused:
    if not name:
        return NAMELESS
    if len(name) > USER_CHARS_MAX:
        return LONG_NAME
    try:
        return ScramMechanism(code)
    except ValueError:
        return UNKNOWN_MECHANISM
