"""Certificates for tests, of authorities that nobody trusts."""

from __future__ import annotations

import datetime
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kafscale.runtime.grpc_identity import PemFiles

LONG_AGO = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


class Authority:
    """A CA. Its files are written into `folder`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ca = folder / f"{name}.pem"
        self._ca = trustme.CA()
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(
        self,
        *names: str,
        common_name: str | None = None,
        expired: bool = False,
        into: PemFiles | None = None,
    ) -> PemFiles:
        """A certificate with these DNS names and addresses, and its key. `into`: in place of those, as `mv` does it."""
        not_before, not_after = _validity(expired)
        issued = self._ca.issue_cert(
            *names, common_name=common_name, not_before=not_before, not_after=not_after
        )
        files = into or PemFiles(self.folder / f"{names[0]}.pem", self.folder / f"{names[0]}.key", self.ca)
        return _write(issued, files)

    def client(self, name: str, *, expired: bool = False) -> PemFiles:
        """The certificate of a client: CN=name, O=Acme."""
        files = PemFiles(self.folder / f"{name}.pem", self.folder / f"{name}.key", self.ca)
        not_before, not_after = _validity(expired)
        issued = self._ca.issue_cert(
            f"{name}.client",
            common_name=name,
            organization_name="Acme",
            not_before=not_before,
            not_after=not_after,
        )
        return _write(issued, files)

    def role(self, role: str, *, expired: bool = False, into: PemFiles | None = None) -> PemFiles:
        """The certificate of a process of KafScale."""
        return self.issue(f"{role}.kafscale.internal", expired=expired, into=into)

    def child(self, folder: Path) -> Authority:
        """A CA that this one has signed. Certificates of it come with its own."""
        made = Authority(folder)
        made._ca = self._ca.create_child_ca()
        made._ca.cert_pem.write_to_path(made.ca)
        return made

    def revoke(self, files: PemFiles) -> bytes:
        """A list of revoked certificates (PEM) that has this one."""
        return self.revocations(files.certificate)

    def revocations(self, *certificates: Path) -> bytes:
        """A list of revoked certificates (PEM) with these."""
        now = datetime.datetime.now(datetime.UTC)
        issuer = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes()).subject
        key = serialization.load_pem_private_key(self._ca.private_key_pem.bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(issuer)
            .last_update(now)
            .next_update(now + datetime.timedelta(days=1))
        )
        for path in certificates:
            serial = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            builder = builder.add_revoked_certificate(revoked.build())
        return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def trusted_in(self, files: PemFiles) -> None:
        """The owner of these files trusts this authority from now on, and no other."""
        replace(files.ca, self._ca.cert_pem.bytes())


def _validity(expired: bool) -> tuple[datetime.datetime | None, datetime.datetime | None]:
    return (LONG_AGO, LONG_AGO + datetime.timedelta(days=1)) if expired else (None, None)


def _write(issued: trustme.LeafCert, files: PemFiles) -> PemFiles:
    replace(files.certificate, b"".join(each.bytes() for each in issued.cert_chain_pems))
    replace(files.key, issued.private_key_pem.bytes())
    return files


def replace(path: Path, content: bytes) -> None:
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    new.rename(path)
