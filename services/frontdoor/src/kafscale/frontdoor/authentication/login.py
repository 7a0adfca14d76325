"""The login of one connection: the shell around the machine. Decides nothing about SASL.

It answers, waits for checks, closes after the delay of failed logins, counts, and writes the audit log.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, assert_never

from kafscale.access.principals import Principal
from kafscale.frontdoor.authentication.machine import (
    PASS,
    Action,
    Answer,
    Await,
    HangUp,
    Pass,
    Reject,
    Rules,
    SaslMachine,
    Session,
)
from kafscale.frontdoor.authentication.steps import Check, Refused, Verdict
from kafscale.frontdoor.connection import Framing, Request
from kafscale.frontdoor.exchange import Call, Exchange
from kafscale.frontdoor.metrics import NO_MECHANISM
from kafscale.runtime.audit import AuditLog, Level
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Family, Tally

CHOSEN_BY_CLIENTS: Final = frozenset({"user", "client_id"})


class Checks(Protocol):
    """The slow checks (verifier.py, which imports the libraries that they need)."""

    def start(self, check: Check, done: Callable[[Verdict], None], expire: Callable[[], None]) -> Call | None:
        """`done` is called now, and the result is None, or it is called later. `expire`: the request's time is over."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLogins:
    """What the logins of one listener share. `authentications`: by mechanism and outcome."""

    listener: str
    rules: Rules
    checks: Checks
    audit: AuditLog
    authentications: Family[Tally]
    expired_sessions: Tally
    clock: Clock
    frame_bytes_max: int
    failure_delay_ms: int
    timeout_ms: int


class LoginClient(Protocol):
    """A connection as its login sees it; client.py is the shell around its socket."""

    @property
    def host(self) -> str:
        """The client's address."""
        ...

    def begin(self, request: Request) -> Exchange:
        """A request that its login answers."""
        ...

    def reframe(self, framing: Framing, frame_bytes_max: int | None) -> None:
        """How the next frame is read. `frame_bytes_max`: None is that of all clients."""
        ...

    def logged_in(self, principal: Principal, ends_ms: int | None) -> None: ...

    def close(self, kind: str, label: str, *, flush: bool = True, **fields: object) -> None:
        """`label` is the one of the metric. `flush`: the answers that are ready are sent before."""
        ...


class Login:
    """It does not keep its client, which keeps it: a closed connection is freed at once."""

    def __init__(self, logins: ListenerLogins, now_ms: int) -> None:
        self._logins = logins
        self._machine = SaslMachine(logins.rules)
        self._begun_ms: int | None = now_ms
        self._closing: asyncio.TimerHandle | None = None
        self._client_id: str | None = None

    def reframe(self, client: LoginClient) -> None:
        """How the next frame is read; for the first one, too."""
        bytes_max = None if self._machine.complete else self._logins.frame_bytes_max
        client.reframe(self._machine.framing, bytes_max)

    def passes(self, client: LoginClient, request: Request) -> bool:
        """Whether the request goes to the gateway. If not, it is answered here."""
        now_ms = self._logins.clock.now_ms()
        action = self._machine.receive(request.header, request.body, now_ms)
        if action is PASS:
            return True
        if request.header.client_id is not None:
            self._client_id = request.header.client_id
        if self._begun_ms is None:
            self._begun_ms = now_ms  # of a re-authentication
        if isinstance(action, HangUp):
            self._hang_up(client, action)
        else:
            self._act(client, client.begin(request), action)
        return False

    def is_late(self, now_ms: int) -> bool:
        """The time of an authentication or re-authentication is over."""
        return self._begun_ms is not None and now_ms - self._begun_ms > self._logins.timeout_ms

    def close(self) -> None:
        """The connection has ended."""
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def _act(self, client: LoginClient, exchange: Exchange, action: Action) -> None:
        match action:
            case Answer(body, code, began):
                if began is not None:
                    self._welcome(client, began)
                self.reframe(client)
                exchange.error = int(code)
                exchange.answer(body)
            case Await(check):
                expire = partial(exchange.hang_up, "the check of a login timed out")
                exchange.call = self._logins.checks.start(
                    check, partial(self._verified, client, exchange), expire
                )
            case Reject(refused):
                self._refused(client, refused)
                delay_s = self._logins.failure_delay_ms / 1000
                loop = asyncio.get_running_loop()
                self._closing = loop.call_later(delay_s, self._reject, client, exchange, action)
            case HangUp():
                self._hang_up(client, action)
            case Pass():
                raise AssertionError("what passes is no login")
            case _ as never:
                assert_never(never)

    def _verified(self, client: LoginClient, exchange: Exchange, verdict: Verdict) -> None:
        exchange.call = None
        self._act(client, exchange, self._machine.verified(verdict, self._logins.clock.now_ms()))

    def _reject(self, client: LoginClient, exchange: Exchange, rejected: Reject) -> None:
        self._closing = None
        if rejected.body is not None:
            exchange.error = int(rejected.code)
            exchange.answer(rejected.body)
        client.close("authentication failed", "authentication", reason=rejected.refused.cause.value)

    def _hang_up(self, client: LoginClient, action: HangUp) -> None:
        if action.expired:
            self._logins.expired_sessions.inc()
            self._audit(client, "info", "session expired", {})
            client.close("session expired", "session_expired", reason=action.reason)
        elif action.unavailable:
            self._count("unavailable")
            self._audit(client, "warning", "login not possible", {"cause": action.reason})
            client.close("login not possible", "authentication_unavailable", reason=action.reason)
        else:
            client.close("not a login", "not_authenticated", reason=action.reason)

    # ---- what is said about it

    def _welcome(self, client: LoginClient, session: Session) -> None:
        outcome = "reauthenticated" if session.renewed else "authenticated"
        self._count(outcome)
        self._audit(client, "info", outcome, {})
        self._begun_ms = None
        client.logged_in(session.principal, session.expires_ms)

    def _refused(self, client: LoginClient, refused: Refused) -> None:
        self._count("refused")
        why = {"cause": refused.cause.value, "user": refused.user}
        self._audit(client, "warning", "authentication failed", why)

    def _count(self, outcome: str) -> None:
        self._logins.authentications.labels(self._machine.mechanism or NO_MECHANISM, outcome).inc()

    def _audit(self, client: LoginClient, level: Level, event: str, fields: Mapping[str, object]) -> None:
        session = self._machine.session
        who = {
            "principal": None if session is None else session.principal,
            "mechanism": self._machine.mechanism or NO_MECHANISM,
            "host": client.host,
            "listener": self._logins.listener,
            "client_id": self._client_id,
        }
        self._logins.audit.write(level, event, {**who, **fields}, chosen=CHOSEN_BY_CLIENTS)
