"""How a client connects to a cluster: the settings that Kafka's tools take, for librdkafka and for requests by hand.

Law: a setting that says whom the client trusts, or as whom it logs in, is honoured or refused, never ignored. Other
settings of Java's clients (timeouts, sizes, lists of suites) are ignored. No repr and no error contains a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kafscale.access.protocol import SecurityProtocol
from kafscale.client.properties import (
    LoginModule,
    PropertiesWrong,
    parse_jaas,
    read_settings,
)
from kafscale.client.tokens import TokenSource, TokenTrouble, fetch_token

if TYPE_CHECKING:
    import ssl

OAUTH: Final = "OAUTHBEARER"
_MODULES: Final = {
    "PLAIN": "PlainLoginModule",
    "SCRAM-SHA-256": "ScramLoginModule",
    "SCRAM-SHA-512": "ScramLoginModule",
    OAUTH: "OAuthBearerLoginModule",
}
_OAUTH_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_FOREIGN: Final = (
    "sasl.client.callback.handler.class",
    "sasl.login.class",
    "security.providers",
    "ssl.engine.factory.class",
    "ssl.provider",
)
"""Settings that name a class of Java. What it would do is not known here."""


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    mechanism: str
    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pem:
    """A file, or the text itself."""

    path: Path | None = None
    text: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The certificate of the client, with its chain, and its key. Both may be in one file."""

    certificate: Pem
    key: Pem
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """`trust` None: the authorities of the system. `bootstrap`: servers that the file names."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    trust: Pem | None = None
    own: KeyPair | None = None
    checks_host: bool = True
    login: PasswordLogin | TokenSource | None = None
    bootstrap: str | None = None

    def librdkafka(self) -> dict[str, Any]:
        """Settings of a client of confluent-kafka."""
        found: dict[str, Any] = {"security.protocol": self.protocol.value}
        if self.protocol.uses_tls:
            found["ssl.endpoint.identification.algorithm"] = "https" if self.checks_host else "none"
            if self.trust is not None:
                found |= _named("ssl.ca", self.trust)
            if self.own is not None:
                found |= _named("ssl.certificate", self.own.certificate) | _named("ssl.key", self.own.key)
                if self.own.password is not None:
                    found["ssl.key.password"] = self.own.password
        match self.login:
            case PasswordLogin(mechanism, user, password):
                found |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
            case TokenSource() as source:
                found |= {"sasl.mechanism": OAUTH, "oauth_cb": lambda _: fetch_token(source)}
            case None:
                pass
        return found

    def check_token(self) -> None:
        """Raises TokenTrouble if there is none: librdkafka would wait for it, and not say what is wrong."""
        if isinstance(self.login, TokenSource):
            fetch_token(self.login)

    def context(self) -> ssl.SSLContext | None:
        """For a connection by hand; None without TLS. Raises PropertiesWrong."""
        if not self.protocol.uses_tls:
            return None
        import ssl

        try:
            trust = self.trust or Pem()
            context = ssl.create_default_context(cafile=trust.path, cadata=trust.text)
            context.check_hostname = self.checks_host
            if self.own is not None:
                with _as_file(self.own.certificate) as certificate, _as_file(self.own.key) as key:
                    context.load_cert_chain(certificate, key, self.own.password or "")
        except OSError as error:  # SSLError is one
            raise PropertiesWrong(f"the certificates cannot be used: {error}") from error
        return context


OPEN: Final = ClientSecurity()
"""Without --command-config: no encryption and no login."""


def read_security(path: Path, *, login_later: bool = False) -> ClientSecurity:
    """Raises PropertiesWrong. The text names the file. `login_later`: a file with SASL and without `sasl.jaas.config`
    gives a security without a login, which the caller adds for each person."""
    settings = read_settings(path)
    try:
        if login_later and "sasl.jaas.config" not in settings:
            security = _without_login(settings)
        else:
            security = security_of(settings)
        security.context()  # so that a wrong file is a sentence before anything is sent
    except PropertiesWrong as wrong:
        raise PropertiesWrong(f"{path}: {wrong}") from wrong
    return security


def _without_login(settings: Mapping[str, str]) -> ClientSecurity:
    name = settings.get("security.protocol", "PLAINTEXT").strip().upper()
    below = security_of({**settings, "security.protocol": name.replace("SASL_", "")})
    return replace(below, protocol=SecurityProtocol(name))


def security_of(settings: Mapping[str, str]) -> ClientSecurity:
    """Raises PropertiesWrong."""
    try:
        protocol = SecurityProtocol(settings.get("security.protocol", "PLAINTEXT").strip().upper())
    except ValueError:
        raise PropertiesWrong(f"security.protocol is not one of {', '.join(SecurityProtocol)}") from None
    if foreign := [name for name in _FOREIGN if settings.get(name)]:
        raise PropertiesWrong(f"{foreign[0]} names a class of Java, which this command cannot use")
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("", "https"):
        raise PropertiesWrong("ssl.endpoint.identification.algorithm is https, or empty for no check")
    return ClientSecurity(
        protocol=protocol,
        trust=_trust(settings) if protocol.uses_tls else None,
        own=_key_pair(settings) if protocol.uses_tls else None,
        checks_host=bool(algorithm),
        login=_login(settings) if protocol.uses_sasl else None,
        bootstrap=settings.get("bootstrap.servers") or None,
    )


def _trust(settings: Mapping[str, str]) -> Pem | None:
    pem = _pem(settings, "ssl.truststore.location", "ssl.truststore.certificates")
    if pem is not None:
        _check_type(settings, "ssl.truststore.type")
    return pem


def _key_pair(settings: Mapping[str, str]) -> KeyPair | None:
    certificate = _pem(settings, "ssl.keystore.location", "ssl.keystore.certificate.chain")
    if certificate is None:
        return None
    _check_type(settings, "ssl.keystore.type")
    key = _pem(settings, "ssl.keystore.location", "ssl.keystore.key")
    if key is None:
        raise PropertiesWrong("ssl.keystore.certificate.chain needs ssl.keystore.key")
    return KeyPair(certificate, key, settings.get("ssl.key.password"))


def _pem(settings: Mapping[str, str], location: str, text: str) -> Pem | None:
    if path := settings.get(location):
        return Pem(path=Path(path))
    return Pem(text=found) if (found := settings.get(text)) else None


def _check_type(settings: Mapping[str, str], name: str) -> None:
    if settings.get(name, "JKS").strip().upper() != "PEM":
        raise PropertiesWrong(f"{name} must be PEM: this command does not read Java's key stores")


def _login(settings: Mapping[str, str]) -> PasswordLogin | TokenSource:
    mechanism = settings.get("sasl.mechanism", "GSSAPI").strip()
    module = _MODULES.get(mechanism)
    if module is None:
        raise PropertiesWrong(f"sasl.mechanism is one of {', '.join(_MODULES)}; without it, it is GSSAPI")
    if (jaas := settings.get("sasl.jaas.config")) is None:
        raise PropertiesWrong(f"sasl.jaas.config is missing; {mechanism} needs {module}")
    entry = parse_jaas(jaas)
    if entry.name != module:
        raise PropertiesWrong(f"sasl.jaas.config has {entry.name}; {mechanism} needs {module}")
    handler = settings.get("sasl.login.callback.handler.class", "").strip()
    if mechanism == OAUTH:
        return _token_source(settings, entry, handler)
    if handler:
        raise PropertiesWrong("sasl.login.callback.handler.class is only for OAUTHBEARER")
    missing = [name for name in ("username", "password") if not entry.options.get(name)]
    if missing:
        raise PropertiesWrong(f"sasl.jaas.config has no {missing[0]}")
    if entry.options.get("tokenauth", "false").lower() == "true":
        raise PropertiesWrong(
            "sasl.jaas.config: tokenauth is for delegation tokens, which this command has not"
        )
    return PasswordLogin(mechanism, entry.options["username"], entry.options["password"])


def _token_source(settings: Mapping[str, str], entry: LoginModule, handler: str) -> TokenSource:
    if handler and handler.rpartition(".")[2] != _OAUTH_HANDLER:
        raise PropertiesWrong(f"sasl.login.callback.handler.class: only {_OAUTH_HANDLER} is known here")

    def given(option: str, setting: str) -> str | None:
        """The options of JAAS are older than the settings (KIP-1139)."""
        return entry.options.get(option) or settings.get(f"sasl.oauthbearer.{setting}") or None

    try:
        return TokenSource(
            url=settings.get("sasl.oauthbearer.token.endpoint.url", ""),
            client_id=given("clientId", "client.credentials.client.id"),
            client_secret=given("clientSecret", "client.credentials.client.secret"),
            scope=given("scope", "scope"),
        )
    except TokenTrouble as wrong:
        raise PropertiesWrong(str(wrong)) from wrong


def _named(name: str, pem: Pem) -> dict[str, str]:
    return {f"{name}.location": str(pem.path)} if pem.path is not None else {f"{name}.pem": pem.text or ""}


@contextmanager
def _as_file(pem: Pem) -> Iterator[Path]:
    """`ssl` reads certificates and keys from files alone. Only the owner can read a temporary one."""
    if pem.path is not None:
        yield pem.path
        return
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(pem.text or "")
        file.flush()
        yield Path(file.name)
