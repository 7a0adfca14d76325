"""The slow checks of logins: PBKDF2 and signatures in a few threads, with a bounded queue.

Laws: at most `THREADS` checks compute at a time and at most `PENDING_MAX` wait or compute. A login beyond that is
unavailable, not refused, so that its client tries again. A password that was right lately needs no thread. A verdict is
given once, and never after `abandon`.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeVar, assert_never

import structlog
from kafscale.access.scram_credentials import password_matches
from kafscale.frontdoor.authentication.credentials import Candidate, CredentialSource, candidates
from kafscale.frontdoor.authentication.key_source import KeySource
from kafscale.frontdoor.authentication.passwords import Matches, RememberedPasswords, is_known, is_password
from kafscale.frontdoor.authentication.steps import (
    Cause,
    Check,
    PasswordCheck,
    Proved,
    Refused,
    TokenCheck,
    Unavailable,
    Verdict,
)
from kafscale.frontdoor.authentication.tokens import KeySet, TokenRules, UnknownKey, check_token
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Level

log = structlog.get_logger("kafscale.frontdoor.logins")

THREADS: Final = 2
PENDING_MAX: Final = 256
BUSY: Final = Unavailable("too many logins are being checked")
NO_KEYS: Final = Unavailable("the keys of OAUTHBEARER have not been read yet")
BROKEN: Final = Unavailable("the check failed")

T = TypeVar("T")
Done = Callable[[Verdict], None]


class Pending:
    """A check that has begun; an exchange's call (exchange.py)."""

    def __init__(self, expire: Callable[[], None]) -> None:
        self._expire = expire
        self.task: asyncio.Task[None] | None = None

    def abandon(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def expire(self) -> None:
        self.abandon()
        self._expire()


class Verifier:
    def __init__(
        self,
        source: CredentialSource,
        *,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        threads: Executor,
        remembered: RememberedPasswords,
        keys: KeySource | None = None,
        rules: TokenRules | None = None,
        pending: Level,
        matches: Matches = password_matches,
        pending_max: int = PENDING_MAX,
    ) -> None:
        """`keys` and `rules`: None without OAUTHBEARER."""
        self._source = source
        self._clock = clock
        self._tasks = tasks
        self._threads = threads
        self._remembered = remembered
        self._keys = keys
        self._rules = rules
        self._matches = matches
        self._pending_max = pending_max
        self._pending = pending

    def start(self, check: Check, done: Done, expire: Callable[[], None]) -> Pending | None:
        """`done` is called now, and the result is None, or it is called later. `expire`: the request's time is over."""
        found: tuple[Candidate, ...] = ()
        if isinstance(check, PasswordCheck):
            found = candidates(self._source, check.user)
            if self._remembered.knows(check.user, check.password, found, self._clock.now_ms()):
                done(Proved(check.user))
                return None
        if self._pending.value >= self._pending_max:
            done(BUSY)
            return None
        self._pending.value += 1
        pending = Pending(expire)
        pending.task = self._tasks.create_task(self._run(check, found, done))
        pending.task.add_done_callback(self._left)
        return pending

    def _left(self, _: object) -> None:
        self._pending.value -= 1

    async def _run(self, check: Check, found: tuple[Candidate, ...], done: Done) -> None:
        try:
            verdict = await self._verdict(check, found)
        except Exception as error:  # noqa: BLE001  (libraries read foreign texts here, which must not end the process)
            # Not its message, which may quote a secret.
            log.error("check of a login failed", check=type(check).__name__, error=type(error).__name__)
            verdict = BROKEN
        done(verdict)

    async def _verdict(self, check: Check, found: tuple[Candidate, ...]) -> Verdict:
        match check:
            case PasswordCheck():
                return await self._check_password(check, found)
            case TokenCheck():
                return await self._check_token(check)
            case _ as never:
                assert_never(never)

    async def _check_password(self, check: PasswordCheck, found: tuple[Candidate, ...]) -> Verdict:
        if await self._in_thread(partial(is_password, found, check.password, self._matches)):
            self._remembered.remember(check.user, check.password, found, self._clock.now_ms())
            return Proved(check.user)
        return Refused(Cause.WRONG_PASSWORD if is_known(found) else Cause.UNKNOWN_USER, check.user)

    async def _check_token(self, check: TokenCheck) -> Verdict:
        assert self._keys is not None
        keys = self._keys.keys or await self._keys.newer()
        if keys is None:
            return NO_KEYS
        verdict = await self._try_token(check, keys)
        if isinstance(verdict, UnknownKey):
            newer = await self._keys.newer()
            if newer is not None and newer is not keys:
                verdict = await self._try_token(check, newer)
        return Refused(Cause.UNKNOWN_KEY) if isinstance(verdict, UnknownKey) else verdict

    async def _try_token(self, check: TokenCheck, keys: KeySet) -> Proved | Refused | UnknownKey:
        assert self._rules is not None
        return await self._in_thread(
            partial(
                check_token,
                check.token,
                keys,
                self._rules,
                authorization_id=check.authorization_id,
                wall_ms=self._clock.wall_ms(),
            )
        )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)
