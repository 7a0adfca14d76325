"""The certificate of the page: its names, and how a renewed one comes into use without a restart."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

LOOK_S: Final = 10.0
log: Final = logging.getLogger(__name__)


class Certificate:
    """Law: files that do not fit together are never used; the page goes on with what it had."""

    def __init__(self, chain: Path, key: Path) -> None:
        """Raises OSError (SSLError is one) and ValueError."""
        self._chain, self._key = chain, key
        self._seen = self._stamp()
        self.names = names_of(chain.read_bytes())
        self.context = self._loaded(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.load_cert_chain(self._chain, self._key)
        return context

    def _stamp(self) -> list[tuple[int, int, int]]:
        found = [path.stat() for path in (self._chain, self._key)]
        return [(each.st_mtime_ns, each.st_size, each.st_ino) for each in found]

    def reload(self) -> bool | None:
        """Whether changed files are used now, by new connections; None if they have not changed."""
        try:
            stamp = self._stamp()
            if stamp == self._seen:
                return None
            self._seen = stamp
            names = names_of(self._chain.read_bytes())
            self._loaded(
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            )  # a context keeps half of a bad pair
            self._loaded(self.context)
        except (OSError, ValueError) as wrong:
            log.error("the changed certificate %s is not used, the one before stays: %s", self._chain, wrong)
            return False
        self.names = names
        log.info("the changed certificate %s is used", self._chain)
        return True

    async def watch(self, renewed: Callable[[], None]) -> None:
        """Until cancelled. Calls `renewed` when changed files are used."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self.reload():
                renewed()


def names_of(certificate: bytes) -> set[str]:
    """The DNS names and addresses of a certificate in PEM."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(certificate).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        return set()
    names = {name.lower() for name in found.value.get_values_for_type(x509.DNSName)}
    addresses = found.value.get_values_for_type(x509.IPAddress)
    return names | {f"[{each}]" if each.version == 6 else str(each) for each in addresses}
