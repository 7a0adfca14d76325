"""The certificates of one `kafscale up`: every process proves its role to the others (runtime/grpc_identity.py).

The CA's key exists in memory alone and ends with the command, so nobody can make another certificate. The next start
draws a new CA. The files are in `run/tls` of the data directory, which only the owner can read.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from kafscale.runtime.grpc_identity import PemFiles, dns_name

VALID: Final = datetime.timedelta(days=3650)
"""Longer than any `kafscale up` runs."""
SKEW: Final = datetime.timedelta(hours=1)
OWNER_ONLY: Final = 0o600
_USAGES: Final = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])


class EphemeralAuthority:
    """Issues certificates until the process ends."""

    def __init__(self, folder: Path, now: datetime.datetime) -> None:
        """Writes the CA's certificate into the folder. Raises OSError."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._from, self._to = now - SKEW, now + VALID
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named("KafScale, one start of kafscale up")
        whole = x509.BasicConstraints(ca=True, path_length=0)
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(whole, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._ca = folder / "ca.pem"
        _write(self._ca, certificate.public_bytes(Encoding.PEM))

    def issue(self, role: str) -> PemFiles:
        """The certificate and the key of the processes of a role. Raises OSError."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(dns_name(role))])
        certificate = (
            self._builder(_named(role), key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(names, critical=False)
            .add_extension(_USAGES, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        files = PemFiles(self._folder / f"{role}.pem", self._folder / f"{role}.key", self._ca)
        _write(files.certificate, certificate.public_bytes(Encoding.PEM))
        _write(files.key, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return files

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._from)
            .not_valid_after(self._to)
        )


def environment(files: PemFiles) -> dict[str, str]:
    """The settings of a process that has these files."""
    return {
        "KAFSCALE_GRPC_CERTIFICATE": str(files.certificate),
        "KAFSCALE_GRPC_KEY": str(files.key),
        "KAFSCALE_GRPC_CA": str(files.ca),
    }


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _write(path: Path, content: bytes) -> None:
    """In place of the last start's. Nobody else can read it at any moment."""
    path.unlink(missing_ok=True)
    path.touch(mode=OWNER_ONLY, exist_ok=False)
    path.write_bytes(content)
