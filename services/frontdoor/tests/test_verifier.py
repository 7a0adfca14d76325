"""The slow checks of logins: few at a time, a bounded queue, verdicts once, new keys for a token that needs them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
from door_harness import until
from kafscale.access.scram_credentials import ScramCredential, password_matches
from kafscale.frontdoor.authentication import verifier as module
from kafscale.frontdoor.authentication.key_source import RENEW_EVERY_MS, KeySource
from kafscale.frontdoor.authentication.passwords import Matches, RememberedPasswords
from kafscale.frontdoor.authentication.steps import (
    Cause,
    PasswordCheck,
    Proved,
    Refused,
    TokenCheck,
    Unavailable,
    Verdict,
)
from kafscale.frontdoor.authentication.tokens import TokenRules
from kafscale.frontdoor.authentication.verifier import BROKEN, BUSY, NO_KEYS, Verifier
from kafscale.runtime.metrics import Level
from kafscale.testkit.clock import ManualClock
from login_harness import ALICE, AUDIENCE, ISSUER, PASSWORD, FakeCredentials, Issuer, alice

GOOD = PasswordCheck(ALICE, PASSWORD)


class Documents:
    """What the issuer publishes; None: it is away."""

    def __init__(self, document: bytes | None) -> None:
        self.document = document
        self.times = 0

    def __call__(self) -> bytes:
        self.times += 1
        if self.document is None:
            raise OSError("away")
        return self.document


class Bench:
    def __init__(
        self, tasks: asyncio.TaskGroup, users: FakeCredentials, matches: Matches, documents: Documents
    ) -> None:
        self.users = users
        self.clock = ManualClock()
        self.pending = Level()
        self.threads = ThreadPoolExecutor(module.THREADS)
        self.verdicts: list[Verdict] = []
        keys = KeySource(documents, clock=self.clock, tasks=tasks, threads=self.threads, read_at=Level())
        self.verifier = Verifier(
            users,
            clock=self.clock,
            tasks=tasks,
            threads=self.threads,
            remembered=RememberedPasswords(b"key"),
            keys=keys,
            rules=TokenRules(issuer=ISSUER, audiences=(AUDIENCE,)),
            pending=self.pending,
            matches=matches,
            pending_max=8,
        )

    def start(self, check: PasswordCheck | TokenCheck) -> module.Pending | None:
        return self.verifier.start(check, self.verdicts.append, lambda: None)

    async def verdict(self, check: PasswordCheck | TokenCheck) -> Verdict:
        self.verdicts.clear()
        self.start(check)
        await until(lambda: bool(self.verdicts))
        (verdict,) = self.verdicts
        return verdict


@asynccontextmanager
async def bench(matches: Matches = password_matches, document: bytes | None = None) -> AsyncIterator[Bench]:
    async with asyncio.TaskGroup() as tasks:
        made = Bench(tasks, alice(), matches, Documents(document))
        try:
            yield made
        finally:
            made.threads.shutdown()


class Held:
    """A comparison that waits until a test lets it go on."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.running = self.most = 0
        self._lock = threading.Lock()

    def __call__(self, credential: ScramCredential, password: str) -> bool:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.gate.wait(20)
        with self._lock:
            self.running -= 1
        return password == PASSWORD


async def test_passwords_are_checked_with_the_scram_credentials() -> None:
    async with bench() as one:
        assert await one.verdict(GOOD) == Proved(ALICE)
        assert await one.verdict(PasswordCheck(ALICE, "wrong")) == Refused(Cause.WRONG_PASSWORD, ALICE)
        assert await one.verdict(PasswordCheck("nobody", PASSWORD)) == Refused(Cause.UNKNOWN_USER, "nobody")


async def test_a_password_that_was_right_needs_no_thread_for_a_while() -> None:
    work: list[str] = []

    def counted(credential: ScramCredential, password: str) -> bool:
        work.append(password)
        return password_matches(credential, password)

    async with bench(counted) as one:
        await one.verdict(GOOD)
        assert len(work) == 2
        assert one.start(GOOD) is None
        assert one.verdicts[-1] == Proved(ALICE)
        assert len(work) == 2
        for _ in range(2):
            wrong = await one.verdict(PasswordCheck(ALICE, "wrong"))
            assert wrong == Refused(Cause.WRONG_PASSWORD, ALICE), "a wrong one is never remembered"
        assert len(work) == 6
        one.users.add(ALICE, "new")
        assert await one.verdict(GOOD) == Refused(Cause.WRONG_PASSWORD, ALICE)


async def test_few_checks_compute_at_a_time_and_the_queue_is_bounded() -> None:
    held = Held()
    async with bench(held) as one:
        for _ in range(8):
            assert one.start(GOOD) is not None
        assert one.start(GOOD) is None
        assert one.verdicts == [BUSY]
        await until(lambda: held.running == module.THREADS)
        assert one.pending.value == 8
        held.gate.set()
        await until(lambda: one.verdicts.count(Proved(ALICE)) == 8)
        await until(lambda: one.pending.value == 0)
        assert held.most == module.THREADS


async def test_a_client_that_leaves_gets_no_verdict_and_frees_its_place() -> None:
    held = Held()
    async with bench(held) as one:
        started = [one.start(GOOD) for _ in range(8)]
        for pending in started[2:]:
            assert pending is not None
            pending.abandon()
        await until(lambda: one.pending.value == 2)
        held.gate.set()
        await until(lambda: one.pending.value == 0)
        assert one.verdicts == [Proved(ALICE)] * 2


async def test_a_check_whose_time_is_over_ends() -> None:
    expired: list[bool] = []
    held = Held()
    async with bench(held) as one:
        pending = one.verifier.start(GOOD, one.verdicts.append, lambda: expired.append(True))
        assert pending is not None
        pending.expire()
        held.gate.set()
        await until(lambda: one.pending.value == 0)
        assert (expired, one.verdicts) == ([True], [])


async def test_a_library_that_fails_ends_neither_the_process_nor_the_client_and_tells_nobody_the_secret(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(_: ScramCredential, password: str) -> bool:
        raise RuntimeError(password)

    async with bench(fails) as one:
        assert await one.verdict(GOOD) == BROKEN
    shown = capsys.readouterr()
    assert "RuntimeError" in shown.out + shown.err
    assert PASSWORD not in shown.out + shown.err


async def test_a_token_with_a_new_key_waits_for_the_issuer_s_new_keys() -> None:
    old, new = Issuer(), Issuer()
    documents = Documents(old.jwks)
    async with asyncio.TaskGroup() as tasks:
        one = Bench(tasks, alice(), password_matches, documents)
        assert isinstance(await one.verdict(TokenCheck(old.token(), "")), Proved)
        documents.document = new.jwks.replace(b'"rsa"', b'"new"')
        token = TokenCheck(new.token(kid="new"), "")
        assert await one.verdict(token) == Refused(Cause.UNKNOWN_KEY), "ten seconds have not passed"
        one.clock.advance(RENEW_EVERY_MS)
        assert isinstance(await one.verdict(token), Proved)
        assert await one.verdict(TokenCheck(old.token(), "")) == Refused(Cause.UNKNOWN_KEY)
        assert documents.times == 2
        one.threads.shutdown()


async def test_without_keys_nobody_is_refused() -> None:
    async with bench(document=None) as one:
        verdict = await one.verdict(TokenCheck(Issuer().token(), ""))
        assert verdict == NO_KEYS
        assert isinstance(verdict, Unavailable)


async def test_a_token_of_another_name_than_the_authorization_id_is_refused() -> None:
    issuer = Issuer()
    async with bench(document=issuer.jwks) as one:
        assert await one.verdict(TokenCheck(issuer.token(), "bob")) == Refused(Cause.AUTHORIZATION_ID, ALICE)
