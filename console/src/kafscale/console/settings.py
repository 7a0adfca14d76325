"""How the console runs, and who may start it how. Pure but for the type of a path.

Law: on an address that other machines reach, the console starts only with logins and encryption, or for reading alone
as one user who was named on purpose.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kafscale.console.guard import LOOPBACK
from kafscale.console.logins import Mode
from kafscale.operations.target import Target

PORT: Final = 8480
HOST: Final = "127.0.0.1"
_LOOPBACK: Final = frozenset(name.strip("[]") for name in LOOPBACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """`behind_proxy`: scheme://host[:port] by which browsers reach it. `target`: where etcd and the store are; None
    with --no-direct. `schema_registry`: URL of a Confluent-compatible registry; the file `schema_registry_login` has
    user:password for it. `http_listen`: of probes and metrics; None: nowhere."""

    port: int = PORT
    listen: str = HOST
    read_only: bool = False
    everyone_acts_as_profile: bool = False
    certificate: Path | None = None
    key: Path | None = None
    behind_proxy: str | None = None
    target: Target | None = None
    schema_registry: str | None = None
    schema_registry_login: Path | None = None
    http_listen: str | None = None

    @property
    def on_loopback(self) -> bool:
        return self.listen in _LOOPBACK

    @property
    def published_on_loopback(self) -> bool:
        """A container listens on all addresses, and its port is published as 127.0.0.1:8480:8480."""
        return self.behind_proxy is not None and urlsplit(self.behind_proxy).hostname in _LOOPBACK

    @property
    def tls(self) -> bool:
        return self.certificate is not None


def mistake(settings: ConsoleSettings, mode: Mode) -> str | None:
    """Why the console does not start with these settings on this cluster; None if it does."""
    if (settings.certificate is None) != (settings.key is None):
        return "--tls-certificate and --tls-key belong together; give both"
    if settings.behind_proxy is not None and not _is_origin(settings.behind_proxy):
        return "--behind-proxy is the address of the console in browsers, such as https://console.example.com"
    if settings.schema_registry is not None and not _is_address(settings.schema_registry):
        return (
            "--schema-registry is http://… or https://… without a user; --schema-registry-login has the login"
        )
    if settings.schema_registry is None and settings.schema_registry_login is not None:
        return "--schema-registry-login needs --schema-registry"
    if settings.on_loopback or settings.published_on_loopback:
        return None
    where = f"on {settings.listen}, which other machines reach, the console"
    if mode is Mode.OPEN:
        return (
            f"{where} does not show a cluster that asks for no login; leave out --listen, and reach it by "
            "`ssh -L 8480:127.0.0.1:8480 HOST`"
        )
    if mode is Mode.FIXED and not (settings.read_only and settings.everyone_acts_as_profile):
        return (
            f"{where} does not let everyone act as one user; give a --command-config without sasl.jaas.config, "
            "so that everyone logs in, or --read-only with --everyone-acts-as-profile"
        )
    encrypted = settings.tls or (settings.behind_proxy or "").startswith("https://")
    if not encrypted:
        return (
            f"{where} needs encryption; give --tls-certificate and --tls-key, or --behind-proxy https://NAME"
        )
    return None


def _is_origin(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    plain = parts.path == parts.query == parts.fragment == "" and parts.username is None and port != 0
    return parts.scheme in ("http", "https") and bool(parts.hostname) and plain


def _is_address(url: str) -> bool:
    """Also with a path, as registries behind a gateway have."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return _is_origin(f"{parts.scheme}://{parts.netloc}") and parts.query == parts.fragment == ""
