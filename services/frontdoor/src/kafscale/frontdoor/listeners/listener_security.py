"""How each listener is secured: `listener.security.protocol.map`, the settings `ssl.*`, and trusted proxies. Pure.

Laws: a listener is PLAINTEXT only if its name or the map says so, or if there is no map at all. A setting that names a
listener which cannot use it is refused, so a wrong name never leaves a listener open. Only TLS 1.2 with ECDHE and an
AEAD, and TLS 1.3.

A value for one listener is written `NAME=value`; a value without a name is for all listeners that can use it. Both may
be in one setting, separated by commas. Only names of listeners divide a setting, because values contain commas and
equals signs too.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Final, TypeVar

from kafscale.access.mapping import MappingRule, MappingRuleWrong, parse_rules, principal_name
from kafscale.access.principals import ANONYMOUS, Principal, user
from kafscale.access.protocol import SecurityProtocol
from kafscale.frontdoor.listeners.certificate_names import subject_name
from kafscale.frontdoor.listeners.listeners import ListenersWrong

MAP: Final = "KAFSCALE_LISTENER_SECURITY_PROTOCOL_MAP"
SSL: Final = "KAFSCALE_SSL_"
PROXY: Final = "KAFSCALE_PROXY_PROTOCOL"

CIPHERS: Final[Mapping[str, str]] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""The cipher suites of TLS 1.2 by the names that Kafka and Java use, with OpenSSL's names."""

E = TypeVar("E", bound=Enum)
Network = IPv4Network | IPv6Network


class ClientAuth(Enum):
    """`ssl.client.auth`: whether clients must have a certificate."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class TlsVersion(Enum):
    V1_2 = "TLSv1.2"
    V1_3 = "TLSv1.3"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Where the PEM files of a listener are, and what it asks of clients. `ciphers`: OpenSSL's names, of TLS 1.2."""

    certificate: Path
    key: Path
    key_password_file: Path | None = None
    ca: Path | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    rules: tuple[MappingRule, ...] = (MappingRule(),)
    versions: frozenset[TlsVersion] = frozenset(TlsVersion)
    ciphers: tuple[str, ...] = tuple(CIPHERS.values())
    names_clients: bool = True
    """False with SASL, where the login alone says who the client is."""

    @property
    def files(self) -> tuple[Path, ...]:
        found = (self.certificate, self.key, self.key_password_file, self.ca)
        return tuple(path for path in found if path is not None)

    def principal(self, certificate: bytes | None) -> Principal | None:
        """Of a client with this verified certificate (DER), or without one. None: no rule matches its name, and the
        client is refused. Raises CertificateUnreadable."""
        if certificate is None or not self.names_clients:
            return ANONYMOUS
        name = principal_name(self.rules, subject_name(certificate))
        return None if name is None else user(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """One listener. `proxies`: the networks whose connections begin with a PROXY protocol header; empty without."""

    name: str
    protocol: SecurityProtocol
    tls: TlsSettings | None = None
    proxies: tuple[Network, ...] = ()

    @property
    def proxy_protocol(self) -> bool:
        return bool(self.proxies)

    def trusts(self, address: str) -> bool:
        """Whether a connection from this address may say on behalf of which client it comes."""
        try:
            parsed = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return any(parsed in network for network in self.proxies)


def plain_listener(name: str) -> ListenerSecurity:
    return ListenerSecurity(name=name, protocol=SecurityProtocol.PLAINTEXT)


def read_securities(names: Iterable[str], settings: Mapping[str, str]) -> dict[str, ListenerSecurity]:
    """The security of each listener, by its name. `settings`: their texts by name. Raises ListenersWrong."""
    names = tuple(names)
    protocols = _protocols(names, settings["listener_security_protocol_map"])
    encrypted = [name for name in names if protocols[name].uses_tls]
    tls = _TlsTexts(encrypted, names, settings)
    proxies = values_by_listener(PROXY, settings["proxy_protocol"], names)
    if None in proxies or "" in proxies.values():
        raise ListenersWrong(f"{PROXY}: write NAME=network;network, with the name of a listener")
    return {
        name: ListenerSecurity(
            name=name,
            protocol=protocols[name],
            tls=tls.of(name, names_clients=not protocols[name].uses_sasl)
            if protocols[name].uses_tls
            else None,
            proxies=_networks(proxies.get(name, "")),
        )
        for name in names
    }


def values_by_listener(setting: str, text: str, names: Iterable[str]) -> dict[str | None, str]:
    """`NAME=value,…` by listener; the value for all others under None. Raises ListenersWrong for a name that is there
    twice. `A,X=B,C` with a listener X: A is for all others, and `B,C` is for X."""
    alternatives = "|".join(re.escape(name) for name in names)
    marks = list(re.finditer(rf"(?:^|,)\s*({alternatives})\s*=", text, re.IGNORECASE))
    values: dict[str | None, str] = {}
    general = text[: marks[0].start()] if marks else text
    if general.strip():
        values[None] = general.strip()
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    for mark, end in zip(marks, ends, strict=False):
        name = mark[1].upper()
        if name in values:
            raise ListenersWrong(f"{setting}: {name} is there twice")
        values[name] = text[mark.end() : end].strip()
    return values


def _protocols(names: Iterable[str], text: str) -> dict[str, SecurityProtocol]:
    chosen: dict[str, SecurityProtocol] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = part.partition(":")
        name = name.strip().upper()
        if not colon or not name:
            raise ListenersWrong(f"{MAP}: {part!r} is not NAME:PROTOCOL")
        if name in chosen:
            raise ListenersWrong(f"{MAP}: {name} is there twice")
        chosen[name] = _one_of(SecurityProtocol, MAP, protocol.strip().upper())
    found: dict[str, SecurityProtocol] = {}
    for name in names:
        if name in chosen:
            found[name] = chosen[name]
        elif name in SecurityProtocol.__members__:
            found[name] = SecurityProtocol[name]
        elif not chosen:
            # Kafka refuses such a name. Without a map nothing asks for security, and own names were always plain here.
            found[name] = SecurityProtocol.PLAINTEXT
        else:
            raise ListenersWrong(f"{MAP}: no security protocol is defined for listener {name}")
    return found


class _TlsTexts:
    """The settings `ssl.*`, each by listener."""

    def __init__(self, encrypted: Iterable[str], names: Iterable[str], settings: Mapping[str, str]) -> None:
        texts = {
            "CERTIFICATE": settings["ssl_certificate"],
            "KEY": settings["ssl_key"],
            "KEY_PASSWORD_FILE": settings["ssl_key_password_file"],
            "CA": settings["ssl_ca"],
            "CLIENT_AUTH": settings["ssl_client_auth"],
            "PRINCIPAL_MAPPING_RULES": settings["ssl_principal_mapping_rules"],
            "ENABLED_PROTOCOLS": settings["ssl_enabled_protocols"],
            "CIPHER_SUITES": settings["ssl_cipher_suites"],
        }
        self._values = {key: values_by_listener(SSL + key, text, names) for key, text in texts.items()}
        for key, values in self._values.items():
            for name in values:
                if name is not None and name not in encrypted:
                    raise ListenersWrong(f"{SSL}{key}: listener {name} has no TLS; see {MAP}")
        if self._values["CERTIFICATE"] and not encrypted:
            raise ListenersWrong(f"{SSL}CERTIFICATE is set, but no listener has TLS; see {MAP}")

    def of(self, name: str, *, names_clients: bool) -> TlsSettings:
        ca = self._path("CA", name)
        auth = _one_of(ClientAuth, SSL + "CLIENT_AUTH", self._text("CLIENT_AUTH", name).lower() or "none")
        if auth is not ClientAuth.NONE and ca is None:
            raise ListenersWrong(
                f"listener {name}: {SSL}CLIENT_AUTH={auth.value} needs {SSL}CA, which signs clients"
            )
        return TlsSettings(
            certificate=self._needed("CERTIFICATE", name),
            key=self._needed("KEY", name),
            key_password_file=self._path("KEY_PASSWORD_FILE", name),
            ca=ca,
            client_auth=auth,
            rules=self._rules(name),
            versions=frozenset(
                _one_of(TlsVersion, SSL + "ENABLED_PROTOCOLS", one)
                for one in self._list("ENABLED_PROTOCOLS", name)
            )
            or frozenset(TlsVersion),
            ciphers=tuple(map(_cipher, self._list("CIPHER_SUITES", name))) or tuple(CIPHERS.values()),
            names_clients=names_clients,
        )

    def _text(self, key: str, name: str) -> str:
        values = self._values[key]
        return values.get(name, values.get(None, ""))

    def _list(self, key: str, name: str) -> list[str]:
        return [part for part in map(str.strip, self._text(key, name).split(",")) if part]

    def _path(self, key: str, name: str) -> Path | None:
        text = self._text(key, name)
        return Path(text) if text else None

    def _needed(self, key: str, name: str) -> Path:
        path = self._path(key, name)
        if path is None:
            raise ListenersWrong(f"listener {name} needs {SSL}{key}, a file in PEM")
        return path

    def _rules(self, name: str) -> tuple[MappingRule, ...]:
        try:
            return parse_rules(self._text("PRINCIPAL_MAPPING_RULES", name) or "DEFAULT")
        except MappingRuleWrong as wrong:
            raise ListenersWrong(f"{SSL}PRINCIPAL_MAPPING_RULES: {wrong}") from wrong


def _cipher(name: str) -> str:
    if name in CIPHERS:
        return CIPHERS[name]
    if name in CIPHERS.values():
        return name
    if name.startswith("TLS_") and "_WITH_" not in name:
        why = "belongs to TLS 1.3, whose suites cannot be chosen; KAFSCALE_SSL_ENABLED_PROTOCOLS=TLSv1.2 ends TLS 1.3"
    else:
        why = f"is not one of {', '.join(CIPHERS)}"
    raise ListenersWrong(f"{SSL}CIPHER_SUITES: {name} {why}")


def _networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(part.strip()) for part in text.split(";") if part.strip())
    except ValueError as wrong:
        raise ListenersWrong(f"{PROXY}: {wrong}") from None


def _one_of(kind: type[E], setting: str, text: str) -> E:
    try:
        return kind(text)
    except ValueError:
        raise ListenersWrong(
            f"{setting}: {text!r} is not one of {', '.join(m.value for m in kind)}"
        ) from None
