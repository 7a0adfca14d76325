"""Where the front door finds the SCRAM credentials of users, and those that stand in for users who do not exist. Pure.

Law: for every name there is a credential of each mechanism to compute with, of a form that users have, so that a login
by an unknown name looks like one by a known name and costs the same work.
"""

from dataclasses import dataclass
from typing import Protocol

from kafscale.access.decoys import Weights, decoy_credential
from kafscale.access.scram_credentials import ScramCredential, ScramMechanism


class StoredCredential(Protocol):
    @property
    def credential(self) -> ScramCredential: ...

    @property
    def revision(self) -> int:
        """Changes with each write of the credential."""
        ...


class CredentialSource(Protocol):
    """What is in memory of the stored users."""

    @property
    def fresh(self) -> bool:
        """Whether it may still be trusted. If not, nobody logs in with a password."""
        ...

    @property
    def decoy_key(self) -> bytes:
        """The secret that makes the salts of users who do not exist. All front doors of the cluster have the same."""
        ...

    def forms(self, mechanism: ScramMechanism) -> Weights:
        """The forms of the stored credentials, which decoys take."""
        ...

    def credential(self, user: str, mechanism: ScramMechanism) -> StoredCredential | None:
        """The stored credential. None if the user has none, or none that can be read."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A credential that a password is compared with. `revision` is None for a decoy, which no password fits."""

    credential: ScramCredential
    revision: int | None


def candidates(source: CredentialSource, user: str) -> tuple[Candidate, ...]:
    """One credential for each mechanism: the stored one or a decoy, which is computed for every user."""
    found: list[Candidate] = []
    for mechanism in ScramMechanism:
        decoy = decoy_credential(mechanism, user, key=source.decoy_key, weights=source.forms(mechanism))
        stored = source.credential(user, mechanism)
        if stored is None:
            found.append(Candidate(decoy, None))
        else:
            found.append(Candidate(stored.credential, stored.revision))
    return tuple(found)
