"""The connection to etcd: endpoints, TLS, gRPC channels. Nothing here sends a request.

Each endpoint has one channel, and the pool chooses the endpoint. gRPC's load balancing could send a request again
without the caller's knowledge (hence `enable_retries=0`), and would not report which member answered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import grpc.aio
from kafscale.storage.etcd.passwords import Passwords
from kafscale.storage.operator_files import Stamp, stamp_of

DEFAULT_PORT = 2379
UNIX = "unix://"
MESSAGE_BYTES_MAX = 64 << 20
"""Limit of one answer: a page of a range, or a fragment of a watch. etcd limits requests to 1.5 MiB."""
KEEPALIVE_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config_disable_resolution", 1),
    # Each client has a separate connection: two clients must not fail together.
    ("grpc.use_local_subchannel_pool", 1),
    # Of a name: else a member that starts again with a new address is looked for at its old one for half a minute.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),  # also the time limit of one connection attempt
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # without it a lost ping is noticed after a minute
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
)


class BadEndpoint(ValueError):
    """An etcd endpoint that is not http(s)://host:port or unix:///path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdTls:
    """PEM files: the authority of etcd's certificate, and for mutual TLS the client's certificate and key."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            root_certificates=None if self.ca is None else self.ca.read_bytes(),
            private_key=None if self.key is None else self.key.read_bytes(),
            certificate_chain=None if self.cert is None else self.cert.read_bytes(),
        )

    def stamp(self) -> Stamp:
        """Differs when a file was replaced. Raises OSError."""
        return stamp_of(path for path in (self.ca, self.cert, self.key) if path is not None)


@dataclass(frozen=True, slots=True)
class Endpoint:
    target: str  # host:port, or unix:/path
    secure: bool

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """`http://host:port`, `https://host:port`, `host:port`, or `unix:///path` of a socket."""
        if text.strip().startswith(UNIX + "/"):
            return cls("unix:" + text.strip().removeprefix(UNIX), secure=False)
        parts = urlsplit(text.strip() if "://" in text else "http://" + text.strip())
        try:
            port = parts.port or DEFAULT_PORT
        except ValueError as error:
            raise BadEndpoint(f"etcd endpoint {text!r}: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise BadEndpoint(
                f"etcd endpoint {text!r}: expected http://host:port, https://host:port or unix:///path"
            )
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return cls(f"{host}:{port}", parts.scheme == "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Everything needed to connect, for the client and for the keepalive thread."""

    endpoints: tuple[Endpoint, ...]
    tls: EtcdTls | None = None
    user: str | None = None
    passwords: Passwords = field(default_factory=lambda: Passwords(None), compare=False)
    """All that log in share it, so that each knows which password etcd has accepted."""
    connect: Callable[[Endpoint], grpc.aio.Channel] | None = field(default=None, compare=False)
    """Another way to an endpoint than gRPC's own, such as a network in memory."""

    @classmethod
    def parse(
        cls,
        endpoints: Sequence[str],
        *,
        tls: EtcdTls | None = None,
        user: str | None = None,
        password: str | Path | None = None,
    ) -> Access:
        parsed = tuple(dict.fromkeys(Endpoint.parse(text) for text in endpoints))
        if not parsed:
            raise BadEndpoint("no etcd endpoint is given")
        return cls(endpoints=parsed, tls=tls, user=user, passwords=Passwords(password))

    def channel(self, endpoint: Endpoint) -> grpc.aio.Channel:
        """A channel for the running event loop."""
        if self.connect is not None:
            return self.connect(endpoint)
        if endpoint.secure:
            return grpc.aio.secure_channel(endpoint.target, self._credentials(), options=CHANNEL_OPTIONS)
        return grpc.aio.insecure_channel(endpoint.target, options=CHANNEL_OPTIONS)

    def thread_channel(self, endpoint: Endpoint) -> grpc.Channel:
        """A channel for a thread without an event loop."""
        if endpoint.secure:
            return grpc.secure_channel(endpoint.target, self._credentials(), options=CHANNEL_OPTIONS)
        return grpc.insecure_channel(endpoint.target, options=CHANNEL_OPTIONS)

    def _credentials(self) -> grpc.ChannelCredentials:
        return (self.tls or EtcdTls()).credentials()
