"""Who is logged in: ids, expiry and bounds. Pure: the caller draws the ids and reads the clock.

Laws: a login always gets a new id. An id ends IDLE_S after its last use and AGE_S after the login, whatever it does.
There are at most SESSIONS_MAX ids and USER_SESSIONS_MAX of one user; the one that was unused for longest goes first.
Nothing is stored, so a restart ends all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

ID_BYTES: Final = 32
IDLE_S: Final = 30 * 60.0
AGE_S: Final = 12 * 3_600.0
SESSIONS_MAX: Final = 256
USER_SESSIONS_MAX: Final = 64

L = TypeVar("L")


@dataclass(slots=True)
class _Session(Generic[L]):
    user: str
    login: L
    began_s: float
    used_s: float


class Sessions(Generic[L]):
    """L: what a login gave, such as the client of this user. `ended` gets it when its session is over."""

    def __init__(self, ended: Callable[[L], None]) -> None:
        self._ended = ended
        self._by_id: dict[str, _Session[L]] = {}
        """In the order of their last use."""

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, new_id: str, user: str, login: L, now_s: float) -> None:
        assert new_id not in self._by_id, "256 random bits do not repeat"
        self.expire(now_s)
        mine = [key for key, each in self._by_id.items() if each.user == user]
        if len(mine) >= USER_SESSIONS_MAX:
            self.end(mine[0])
        if len(self._by_id) >= SESSIONS_MAX:
            self.end(next(iter(self._by_id)))
        self._by_id[new_id] = _Session(user, login, now_s, now_s)

    def find(self, session_id: str, now_s: float) -> L | None:
        """The login, which counts as used now."""
        self.expire(now_s)
        session = self._by_id.pop(session_id, None)
        if session is None:
            return None
        session.used_s = now_s
        self._by_id[session_id] = session
        return session.login

    def end(self, session_id: str) -> None:
        session = self._by_id.pop(session_id, None)
        if session is not None:
            self._ended(session.login)

    def expire(self, now_s: float) -> None:
        over = [
            key
            for key, each in self._by_id.items()
            if now_s - each.used_s >= IDLE_S or now_s - each.began_s >= AGE_S
        ]
        for key in over:
            self.end(key)
