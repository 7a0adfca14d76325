"""Passwords of SASL/PLAIN, compared with the users' SCRAM credentials, and the ones that were lately right. Pure.

Laws: every comparison computes one PBKDF2 for each SCRAM mechanism, whether the user exists, has both credentials or
was found early. A password that was right is remembered as a keyed hash for `REMEMBERED_MS`, and only while the user
has exactly the credentials that it was compared with. Memory is bounded by `USERS_MAX`.
"""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.access.scram_credentials import ScramCredential, password_matches
from kafscale.frontdoor.authentication.credentials import Candidate

REMEMBERED_MS: Final = 60_000
USERS_MAX: Final = 10_000

Matches = Callable[[ScramCredential, str], bool]


def is_password(found: Sequence[Candidate], password: str, matches: Matches = password_matches) -> bool:
    """Whether the password fits a credential. It is slow on purpose, so call it in a thread. A user with two
    credentials
    may have two passwords."""
    results = [(matches(one.credential, password), one.revision is not None) for one in found]
    return any(fits and stored for fits, stored in results)


def is_known(found: Sequence[Candidate]) -> bool:
    return any(one.revision is not None for one in found)


@dataclass(frozen=True, slots=True)
class _Entry:
    digest: bytes
    revisions: tuple[int | None, ...]
    until_ms: int


class RememberedPasswords:
    def __init__(self, key: bytes, users_max: int = USERS_MAX) -> None:
        """`key` is random, and known to this process alone."""
        self._key = key
        self._users_max = users_max
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def knows(self, user: str, password: str, found: Sequence[Candidate], now_ms: int) -> bool:
        """Whether this password was right lately, for these credentials."""
        entry = self._entries.get(user)
        if entry is None:
            return False
        if now_ms >= entry.until_ms or entry.revisions != _revisions(found):
            del self._entries[user]
            return False
        return hmac.compare_digest(entry.digest, self._digest(user, password))

    def remember(self, user: str, password: str, found: Sequence[Candidate], now_ms: int) -> None:
        """The password was right for these credentials, which may have changed since."""
        self._entries[user] = _Entry(self._digest(user, password), _revisions(found), now_ms + REMEMBERED_MS)
        self._entries.move_to_end(user)
        if len(self._entries) > self._users_max:
            self._entries.popitem(last=False)

    def _digest(self, user: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{user}\0{password}".encode(), hashlib.sha256)


def _revisions(found: Sequence[Candidate]) -> tuple[int | None, ...]:
    return tuple(one.revision for one in found)
