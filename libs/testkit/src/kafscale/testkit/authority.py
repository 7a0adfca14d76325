"""Certificates for tests, of authorities that nobody trusts."""

from __future__ import annotations

import datetime
from pathlib import Path

import trustme
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

    def issue(self, *names: str, expired: bool = False, into: PemFiles | None = None) -> PemFiles:
        """A certificate with these DNS names and its key. `into`: in place of those, as `mv` does it."""
        not_after = LONG_AGO + datetime.timedelta(days=1) if expired else None
        issued = self._ca.issue_cert(*names, not_before=LONG_AGO if expired else None, not_after=not_after)
        files = into or PemFiles(self.folder / f"{names[0]}.pem", self.folder / f"{names[0]}.key", self.ca)
        replace(files.certificate, b"".join(each.bytes() for each in issued.cert_chain_pems))
        replace(files.key, issued.private_key_pem.bytes())
        return files

    def role(self, role: str, *, expired: bool = False, into: PemFiles | None = None) -> PemFiles:
        """The certificate of a process of KafScale."""
        return self.issue(f"{role}.kafscale.internal", expired=expired, into=into)

    def trusted_in(self, files: PemFiles) -> None:
        """The owner of these files trusts this authority from now on, and no other."""
        replace(files.ca, self._ca.cert_pem.bytes())


def replace(path: Path, content: bytes) -> None:
    new = path.with_name(path.name + ".new")
    new.write_bytes(content)
    new.rename(path)
