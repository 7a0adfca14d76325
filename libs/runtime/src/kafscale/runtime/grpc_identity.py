"""Mutual TLS between processes: which certificate a process has, and what it asks of the other end.

Every process has a certificate of one private CA, with the DNS name `<role>.kafscale.internal`. A server takes
connections with a certificate of that CA only, and request streams from front doors only, because a front door speaks
for clients. Who connects asks for the name of the role that it wants, so no other role can answer in its place.

The files are looked at again for each new connection. Connections that exist stay as they are. If the new files cannot
be used, the process goes on with what it had, and says so once.

gRPC gets a new configuration only when the files have changed, and after a pause. Otherwise anybody who can connect
could end the process, without a certificate (tools/grpc_reload_crash).
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
import grpc.aio
import structlog
from kafscale.storage.operator_files import Stamp, stamp_of

log = structlog.get_logger("kafscale.process")

FRONT_DOOR: Final = "frontdoor"
_DOMAIN: Final = ".kafscale.internal"
_ALTERNATIVE_NAMES: Final = "x509_subject_alternative_name"
_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which `ssl` has no name for."""
_HANDSHAKE_TURNS: Final = 3
RENEWAL_PAUSE_S: Final = 0.25
"""gRPC holds its lock while it asks for the configuration, and releases the lock before a connection takes a reference
to the configuration. If another connection replaces the configuration in between, the first one uses freed memory.
During the pause no connection can ask, and those that have asked take their references, which is a matter of
microseconds. It blocks threads of gRPC alone, once for each renewal."""

Options = Sequence[tuple[str, int | str]]
Dial = Callable[[str, Options], grpc.aio.Channel]
"""Makes a channel to an address. It does not connect yet."""
DialRole = Callable[[str], Dial]
"""How a process makes channels to processes of a role."""


class IdentityUnusable(Exception):
    """The files of a certificate cannot be used. The text says which and why."""


@dataclass(frozen=True, slots=True)
class Pems:
    """The contents of the three files. `ends_s`: when the certificate expires, in seconds since 1970."""

    certificate: bytes
    key: bytes
    ca: bytes
    ends_s: float


@dataclass(frozen=True, slots=True)
class PemFiles:
    """Where a process finds its certificate with the chain, its key, and the CA of all processes."""

    certificate: Path
    key: Path
    ca: Path

    def stamp(self) -> Stamp:
        """Raises OSError."""
        return stamp_of((self.certificate, self.key, self.ca))

    def read(self) -> Pems:
        """Raises IdentityUnusable if a file cannot be read or the key is not that of the certificate."""
        try:
            certificate, key, ca = (path.read_bytes() for path in (self.certificate, self.key, self.ca))
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(self.ca)
            return Pems(certificate, key, ca, end_of(self.certificate, self.key))
        except ssl.SSLError as error:
            raise IdentityUnusable(f"{self.certificate}, {self.key}, {self.ca}: {error}") from error
        except OSError as error:
            raise IdentityUnusable(f"{error.filename}: {error.strerror}") from error


def end_of(certificate: Path, key: Path) -> float:
    """When the certificate expires, in seconds since 1970, also if it has. Raises SSLError if the key is not its own.

    `ssl` tells this only of a peer. So a server with the certificate shakes hands with a client that trusts it, and it
    alone. The library for certificates would cost each process 16 MB.
    """
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.load_verify_locations(certificate)
    trusting.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    ends = (client, serving.wrap_bio(to_server, to_client, server_side=True))
    for _ in range(_HANDSHAKE_TURNS):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    found = client.getpeercert()
    assert found is not None, "the client has verified it"
    return ssl.cert_time_to_seconds(str(found["notAfter"]))


class GrpcIdentity:
    """Of one process. gRPC asks for it in threads of its own."""

    def __init__(self, files: PemFiles) -> None:
        """Raises IdentityUnusable."""
        self._files = files
        self._lock = threading.Lock()
        self._pems = files.read()
        self._seen = files.stamp()

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a server that asks every caller for a certificate of the CA."""
        served = _Served(self)
        return grpc.dynamic_ssl_server_credentials(
            served.configuration(),
            served.newer,  # type: ignore[arg-type]  # None is not in the stubs: unchanged
            require_client_authentication=True,
        )

    def dial(self, role: str) -> Dial:
        """Channels to processes of this role."""
        name = dns_name(role)

        def connect(target: str, options: Options) -> grpc.aio.Channel:
            pems = self.current()
            credentials = grpc.ssl_channel_credentials(
                root_certificates=pems.ca, private_key=pems.key, certificate_chain=pems.certificate
            )
            return grpc.aio.secure_channel(
                target, credentials, options=[*options, ("grpc.ssl_target_name_override", name)]
            )

        return connect

    def current(self) -> Pems:
        """What the files hold now; if that cannot be used, what they held before."""
        with self._lock:
            try:
                stamp = self._files.stamp()
                if stamp != self._seen:
                    self._seen = stamp
                    found = self._files.read()
                    # Files that changed meanwhile may not belong together: the next connection looks again.
                    if self._files.stamp() == stamp:
                        self._pems = found
                        log.info("certificate loaded", certificate=str(self._files.certificate))
            except IdentityUnusable as error:
                log.error("certificate not loaded", why=str(error), now="the one before stays")
            except OSError as error:
                # A file is gone while it is replaced: the next connection looks again.
                log.warning("certificate not read", why=str(error))
            return self._pems


class _Served:
    """What the server of a process shows. gRPC asks `newer` before each handshake, one call at a time."""

    def __init__(self, identity: GrpcIdentity) -> None:
        self._identity = identity
        self._pems = identity.current()

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration(
            [(self._pems.key, self._pems.certificate)], root_certificates=self._pems.ca
        )

    def newer(self) -> grpc.ServerCertificateConfiguration | None:
        """None if the files have not changed since the last configuration: gRPC keeps it."""
        pems = self._identity.current()
        if pems is self._pems:
            return None
        time.sleep(RENEWAL_PAUSE_S)
        self._pems = pems
        return self.configuration()


def dns_name(role: str) -> str:
    """What the certificate of a process of this role names."""
    return role + _DOMAIN


def plain(target: str, options: Options) -> grpc.aio.Channel:
    """A channel without TLS."""
    return grpc.aio.insecure_channel(target, options=options)


def dial_by(identity: GrpcIdentity | None, without: Dial = plain) -> DialRole:
    """With an identity only to processes that show the certificate of their role. `without`: the way if there is none,
    to any process."""
    return (lambda _role: without) if identity is None else identity.dial


def roles_of(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
    """The roles in a caller's certificate; empty without one."""
    names = (name.decode(errors="replace") for name in auth_context.get(_ALTERNATIVE_NAMES, ()))
    return frozenset(name.removesuffix(_DOMAIN) for name in names if name.endswith(_DOMAIN))
