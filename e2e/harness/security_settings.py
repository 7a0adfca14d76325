"""How a client program gets in: the file for its `--security`, in the client's own words where these are plain text.

Law: a secret is in that file alone, never in an argument. docs/clients.md shows what `java` and `librdkafka` return.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import (
    PKCS12Certificate,
    serialize_java_truststore,
    serialize_key_and_certificates,
)
from kafscale.runtime.grpc_identity import PemFiles

OAUTHBEARER = "OAUTHBEARER"
STORE_PASSWORD = "changeit"
"""Of the files for old Java clients, which want one."""
_LOGINS = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Where a client of OAUTHBEARER gets its tokens: from a file, or with its secret from the issuer."""

    file: Path
    url: str
    ca: Path
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Security:
    """`ca`: None without TLS. `own`: the client's certificate. `mechanism`: None without SASL."""

    protocol: str
    user: str
    password: str = field(repr=False)
    tokens: Tokens
    ca: Path | None = None
    own: PemFiles | None = None
    mechanism: str | None = None


def plain(security: Security) -> dict[str, str]:
    """For the programs whose libraries are configured by code. What is not used is empty."""
    return {
        "protocol": security.protocol,
        "ca": str(security.ca or ""),
        "certificate": str(security.own.certificate) if security.own else "",
        "key": str(security.own.key) if security.own else "",
        "mechanism": security.mechanism or "",
        "user": security.user,
        "password": security.password,
        "token_file": str(security.tokens.file),
    }


def librdkafka(security: Security) -> dict[str, str]:
    settings = {"security.protocol": security.protocol}
    if security.ca:
        settings |= {"ssl.ca.location": str(security.ca)}
    if security.own:
        settings |= {
            "ssl.certificate.location": str(security.own.certificate),
            "ssl.key.location": str(security.own.key),
        }
    if security.mechanism == OAUTHBEARER:
        settings |= {
            "sasl.mechanism": OAUTHBEARER,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": security.user,
            "sasl.oauthbearer.client.secret": security.tokens.secret,
            "sasl.oauthbearer.token.endpoint.url": security.tokens.url,
            "https.ca.location": str(security.tokens.ca),
        }
    elif security.mechanism:
        settings |= {
            "sasl.mechanism": security.mechanism,
            "sasl.username": security.user,
            "sasl.password": security.password,
        }
    return settings


def java(security: Security) -> dict[str, str]:
    """From 2.7 on, whose TLS files may be PEM."""
    settings = {"security.protocol": security.protocol}
    if security.ca:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(security.ca)}
    if security.own:
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(java_keystore_path(security.own)),
        }
    return settings | _java_login(security)


def old_java(security: Security) -> dict[str, str]:
    """Before 2.7: TLS files are PKCS 12 (`write_old_java_stores`)."""
    settings = {"security.protocol": security.protocol}
    if security.ca:
        settings |= _old_java_store("truststore", security.ca)
    if security.own:
        settings |= _old_java_store("keystore", security.own.certificate)
        settings |= {"ssl.key.password": STORE_PASSWORD}
    return settings | _java_login(security)


def _old_java_store(kind: str, pem: Path) -> dict[str, str]:
    return {
        f"ssl.{kind}.type": "PKCS12",
        f"ssl.{kind}.location": str(pem.with_suffix(".p12")),
        f"ssl.{kind}.password": STORE_PASSWORD,
    }


def _java_login(security: Security) -> dict[str, str]:
    settings: dict[str, str] = {}
    if security.mechanism == OAUTHBEARER:
        options = {
            "clientId": security.user,
            "clientSecret": security.tokens.secret,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(security.tokens.ca),
        }
        handler = f"{_LOGINS}.oauthbearer.OAuthBearerLoginCallbackHandler"
        settings |= {
            "sasl.mechanism": OAUTHBEARER,
            "sasl.oauthbearer.token.endpoint.url": security.tokens.url,
            "sasl.login.callback.handler.class": handler,
            "sasl.jaas.config": _jaas("oauthbearer.OAuthBearerLoginModule", options),
        }
    elif security.mechanism:
        module = "plain.PlainLoginModule" if security.mechanism == "PLAIN" else "scram.ScramLoginModule"
        options = {"username": security.user, "password": security.password}
        settings |= {"sasl.mechanism": security.mechanism, "sasl.jaas.config": _jaas(module, options)}
    return settings


def _jaas(module: str, options: Mapping[str, str]) -> str:
    given = "".join(f' {name}="{value}"' for name, value in options.items())
    return f"{_LOGINS}.{module} required{given};"


def java_keystore_path(files: PemFiles) -> Path:
    return files.certificate.with_suffix(".keystore.pem")


def write_java_keystore(files: PemFiles) -> Path:
    """The key, in PKCS 8 as Java reads it from PEM, and behind it the certificate and its chain."""
    key = load_pem_private_key(files.key.read_bytes(), None)
    path = java_keystore_path(files)
    path.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + files.certificate.read_bytes()
    )
    return path


def write_old_java_stores(ca: Path, own: PemFiles) -> None:
    secret = BestAvailableEncryption(STORE_PASSWORD.encode())
    authorities = x509.load_pem_x509_certificates(ca.read_bytes())
    trusted = [PKCS12Certificate(each, b"ca-%d" % number) for number, each in enumerate(authorities)]
    ca.with_suffix(".p12").write_bytes(serialize_java_truststore(trusted, secret))
    certificate, *chain = x509.load_pem_x509_certificates(own.certificate.read_bytes())
    key = load_pem_private_key(own.key.read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    store = serialize_key_and_certificates(b"own", key, certificate, chain, secret)
    own.certificate.with_suffix(".p12").write_bytes(store)


def write_properties(settings: Mapping[str, str], path: Path) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def write_json(settings: Mapping[str, str], path: Path) -> Path:
    path.write_text(json.dumps(settings))
    return path
