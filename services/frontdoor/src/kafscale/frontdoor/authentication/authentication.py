"""The logins of one process put together: mechanisms, checks, keys, audit log. The only place that builds them.

Draws the random numbers: nonces of SCRAM, and the key under which right passwords are remembered.
"""

import asyncio
import base64
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog
from kafscale.frontdoor.authentication.credentials import CredentialSource
from kafscale.frontdoor.authentication.key_source import KeySource, fetcher
from kafscale.frontdoor.authentication.login import ListenerLogins
from kafscale.frontdoor.authentication.machine import Rules, Versions
from kafscale.frontdoor.authentication.mechanisms import (
    OAUTHBEARER,
    PLAIN,
    SCRAM,
    BearerExchange,
    PlainExchange,
    ScramExchange,
)
from kafscale.frontdoor.authentication.passwords import RememberedPasswords
from kafscale.frontdoor.authentication.sasl_settings import all_mechanisms, mechanisms_of
from kafscale.frontdoor.authentication.steps import Start
from kafscale.frontdoor.authentication.tokens import TokenRules
from kafscale.frontdoor.authentication.verifier import THREADS, Verifier
from kafscale.frontdoor.metrics import FrontdoorMetrics
from kafscale.frontdoor.settings import FrontdoorSettings
from kafscale.runtime.audit import AuditLog
from kafscale.runtime.clock import Clock
from kafscale.storage.system import random_bytes

log = structlog.get_logger("kafscale.frontdoor.logins")

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 18
OUTCOMES: Final = ("authenticated", "reauthenticated", "refused", "unavailable")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginMeans:
    """What the process gives its logins to work with."""

    clock: Clock
    tasks: asyncio.TaskGroup
    metrics: FrontdoorMetrics
    versions: Versions


class Authentication:
    def __init__(self, settings: FrontdoorSettings, source: CredentialSource, means: LoginMeans) -> None:
        self._settings = settings
        self._source = source
        self._means = means
        self._audit = AuditLog()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="login")
        self._key_thread = ThreadPoolExecutor(1, thread_name_prefix="jwks")
        self._keys = self._key_source()
        for outcome in OUTCOMES:  # an alert needs the first sample at 0
            for mechanism in sorted(all_mechanisms(settings.sasl_enabled_mechanisms)):
                means.metrics.authentications.labels(mechanism, outcome)
        self._verifier = Verifier(
            source,
            clock=means.clock,
            tasks=means.tasks,
            threads=self._threads,
            remembered=RememberedPasswords(random_bytes(KEY_BYTES)),
            keys=self._keys,
            rules=self._token_rules(),
            pending=means.metrics.pending_authentications,
        )
        self._fetching = None if self._keys is None else means.tasks.create_task(self._keys.run())

    def of(self, listener: str, *, encrypted: bool) -> ListenerLogins:
        """What the connections of a listener need. Raises MechanismsWrong, if it has no mechanism."""
        settings = self._settings
        names = mechanisms_of(settings.sasl_enabled_mechanisms, listener)
        if PLAIN in names and not encrypted:
            log.warning("passwords of SASL/PLAIN cross the network as plain text", listener=listener)
        return ListenerLogins(
            listener=listener,
            rules=Rules(
                mechanisms={name: self._start_of(name) for name in names},
                versions=self._means.versions,
                max_reauth_ms=settings.connections_max_reauth_ms,
            ),
            checks=self._verifier,
            audit=self._audit,
            authentications=self._means.metrics.authentications,
            expired_sessions=self._means.metrics.expired_sessions,
            clock=self._means.clock,
            frame_bytes_max=min(settings.sasl_server_max_receive_size, settings.socket_request_max_bytes),
            failure_delay_ms=settings.connection_failed_authentication_delay_ms,
            timeout_ms=settings.authentication_timeout_ms,
        )

    def close(self) -> None:
        """A fetch that is under way ends by its own deadline."""
        if self._fetching is not None:
            self._fetching.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._key_thread.shutdown(wait=False, cancel_futures=True)
        self._audit.close()

    def _start_of(self, mechanism: str) -> Start:
        if mechanism == PLAIN:
            return partial(PlainExchange, self._source)
        if mechanism == OAUTHBEARER:
            return BearerExchange
        return lambda: ScramExchange(SCRAM[mechanism], self._source, fresh_nonce())

    def _key_source(self) -> KeySource | None:
        url = self._settings.sasl_oauthbearer_jwks_endpoint_url
        if url is None:
            return None
        means = self._means
        return KeySource(
            fetcher(url),
            clock=means.clock,
            tasks=means.tasks,
            threads=self._key_thread,
            read_at=means.metrics.token_keys_read,
        )

    def _token_rules(self) -> TokenRules | None:
        settings = self._settings
        if settings.sasl_oauthbearer_expected_issuer is None:
            return None
        return TokenRules(
            issuer=settings.sasl_oauthbearer_expected_issuer,
            audiences=settings.sasl_oauthbearer_expected_audience,
            sub_claim=settings.sasl_oauthbearer_sub_claim_name,
            skew_s=settings.sasl_oauthbearer_clock_skew_seconds,
        )


def fresh_nonce() -> str:
    return base64.urlsafe_b64encode(random_bytes(NONCE_BYTES)).decode()
