"""The certificates of the listeners with TLS: read at start, and again while the front door runs.

Laws: files that cannot be used end the start with a sentence that names them. Later, a new context is built and checked
in a thread; only then do new connections use it, and connections that exist keep theirs. If the new files cannot be
used, the listener goes on with what it had, and logs that once for each change of the files. Every reload ends session
resumption, so a client that the new files no longer accept cannot come back with an old session.
"""

import _ssl
import asyncio
import ctypes
import datetime
import ssl
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from kafscale.frontdoor.listeners.listener_security import (
    ClientAuth,
    ListenerSecurity,
    TlsSettings,
    TlsVersion,
)
from kafscale.runtime.metrics import Metrics
from kafscale.storage.operator_files import Stamp, stamp_of

log = structlog.get_logger("kafscale.frontdoor")

LOOK_S: Final = 10.0
CPYTHON_KNOWN: Final = ((3, 11), (3, 14))
"""The oldest and the newest CPython whose SSLContext begins with the address of OpenSSL's context."""
REVOCATIONS: Final = b"-----BEGIN X509 CRL-----"
VERIFY: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
VERSIONS: Final = {TlsVersion.V1_2: ssl.TLSVersion.TLSv1_2, TlsVersion.V1_3: ssl.TLSVersion.TLSv1_3}


class TlsFilesWrong(Exception):
    """The files of a listener cannot be used. The text says which and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the files held when they were read. `ends_s`: when the certificate expires, in seconds since 1970."""

    context: ssl.SSLContext
    ends_s: float
    stamp: Stamp


def load(settings: TlsSettings) -> Loaded:
    """Blocks. Raises TlsFilesWrong."""
    try:
        stamp = stamp_of(settings.files)  # before the files are read: a change in between is seen next time
        context = _context(settings)
        ends_s = _end_of(settings.certificate)
    except OSError as error:  # ssl.SSLError is one too
        raise TlsFilesWrong(_why(settings, error)) from error
    return Loaded(context=context, ends_s=ends_s, stamp=stamp)


def _why(settings: TlsSettings, error: OSError) -> str:
    names = ", ".join(str(path) for path in settings.files)
    if isinstance(error, ssl.SSLError):
        return f"{names}: {(error.reason or 'not PEM').replace('_', ' ').lower()}"
    return f"{error.filename or names}: {error.strerror}"  # OpenSSL does not say which file it could not open


def _context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chosen = sorted(VERSIONS[version] for version in settings.versions)
    context.minimum_version, context.maximum_version = chosen[0], chosen[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0  # Kafka's connections live long
    context.set_ciphers(":".join(settings.ciphers))
    context.load_cert_chain(settings.certificate, settings.key, lambda: _password(settings))
    if settings.client_auth is not ClientAuth.NONE and settings.ca is not None:
        context.load_verify_locations(settings.ca)
        if not send_ca_names(context, settings.ca):
            log.warning("clients do not learn which CAs are accepted", ca=str(settings.ca))
        if REVOCATIONS in settings.ca.read_bytes():
            # Also CAs between: one that was revoked signs no client any more.
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
    context.verify_mode = VERIFY[settings.client_auth]
    return context


def _password(settings: TlsSettings) -> bytes:
    """Asked for only if the key is encrypted."""
    if settings.key_password_file is None:
        raise TlsFilesWrong(f"{settings.key} is encrypted; set KAFSCALE_SSL_KEY_PASSWORD_FILE")
    return settings.key_password_file.read_bytes().rstrip(b"\r\n")


def _end_of(certificate: Path) -> float:
    """When the first certificate in the file expires, which is the listener's own."""
    from cryptography import x509  # megabytes, for listeners with TLS only

    try:
        end = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    except ValueError as error:
        raise TlsFilesWrong(f"{certificate}: {error}") from error
    if end <= datetime.datetime.now(datetime.UTC):
        raise TlsFilesWrong(f"{certificate} expired at {end.isoformat()}")
    return end.timestamp()


class ListenerTls:
    """One listener's files, and what new connections use of them."""

    def __init__(self, name: str, settings: TlsSettings) -> None:
        """Blocks. Raises TlsFilesWrong."""
        self.name = name
        self.settings = settings
        try:
            self._loaded = load(settings)
        except TlsFilesWrong as wrong:
            raise TlsFilesWrong(f"listener {name}: {wrong}") from wrong
        self._seen = self._loaded.stamp

    @property
    def context(self) -> ssl.SSLContext:
        return self._loaded.context

    @property
    def ends_s(self) -> float:
        return self._loaded.ends_s

    def reload(self) -> bool | None:
        """Blocks. Whether the files are used now; None if they have not changed."""
        try:
            stamp = stamp_of(self.settings.files)
            if stamp == self._seen:
                return None
            self._seen = stamp
            self._loaded = load(self.settings)
        except TlsFilesWrong as wrong:
            log.error(
                "certificate not loaded", listener=self.name, why=str(wrong), now="the one before stays"
            )
            return False
        except OSError as error:
            # A file is gone while it is replaced: the next look finds it.
            log.warning("certificate not read", listener=self.name, why=f"{error.filename}: {error.strerror}")
            return False
        log.info("certificate loaded", listener=self.name, certificate=str(self.settings.certificate))
        return True


def open_all(securities: Iterable[ListenerSecurity]) -> dict[str, ListenerTls]:
    """By listener. Blocks. Raises TlsFilesWrong."""
    return {one.name: ListenerTls(one.name, one.tls) for one in securities if one.tls is not None}


class CertificateWatch:
    """Looks at the files now and then, and counts what it found."""

    def __init__(self, listeners: Mapping[str, ListenerTls], metrics: Metrics) -> None:
        self._listeners = listeners
        self._reloads = metrics.counters("tls_reloads_total")
        metrics.watch_each("tls_certificate_seconds", self._rest)

    def _rest(self) -> list[tuple[tuple[str], float]]:
        now_s = datetime.datetime.now(datetime.UTC).timestamp()
        return [((name,), tls.ends_s - now_s) for name, tls in self._listeners.items()]

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        for name, tls in self._listeners.items():
            done = await asyncio.to_thread(tls.reload)
            if done is not None:
                self._reloads.labels(name, "loaded" if done else "refused").inc()


def send_ca_names(context: ssl.SSLContext, ca: Path) -> bool:
    """Whether handshakes of the context name the CAs of this PEM file from now on. Blocks.

    Kafka sends the names of all CAs in its truststore. A client that has several certificates chooses one by these
    names. Python's `ssl` has no function for it, so this calls the OpenSSL library that Python itself has loaded. It
    needs the address of OpenSSL's context, which is the first field of CPython's SSLContext. With a Python that it does
    not know, or whose OpenSSL does not export the functions, no names are sent: then the client chooses without them.
    """
    oldest, newest = CPYTHON_KNOWN
    known = sys.implementation.name == "cpython" and oldest <= sys.version_info[:2] <= newest
    path = getattr(_ssl, "__file__", None)  # None: it is part of the interpreter
    if not known or path is None:
        return False
    library = ctypes.CDLL(path)
    try:
        load, use = library.SSL_load_client_CA_file, library.SSL_CTX_set_client_CA_list
    except AttributeError:
        return False
    load.argtypes, load.restype = [ctypes.c_char_p], ctypes.c_void_p
    use.argtypes, use.restype = [ctypes.c_void_p, ctypes.c_void_p], None
    names = load(bytes(ca))
    if names:
        address = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
        use(address, names)  # which owns the names from now on
    return bool(names)
