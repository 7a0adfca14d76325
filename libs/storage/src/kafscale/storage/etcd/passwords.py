"""The password of etcd's user, which may change while the process runs.

Law: a changed password reaches etcd with the next login, without a restart. The file is read at each login, and the
password that etcd accepted last is tried after it. So an operator first writes the file and then changes the password
in etcd: each login succeeds before, between and after the two.

A client that has been logged in takes a refused password from a file as an outage, because etcd may have the new
password before the file has it. A client that was never logged in learns of the refusal at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import grpc
from kafscale.storage.etcd.errors import EtcdRejected, EtcdUnknown, UnknownKind

BYTES_MAX: Final = 4_096


class Passwords:
    """Of one user in one process, for its event loop and its threads. `source` is the password, or its file."""

    def __init__(self, source: str | Path | None) -> None:
        self._source = source
        self._accepted: str | None = None

    def __repr__(self) -> str:
        return "Passwords()"

    def to_try(self) -> tuple[str, ...]:
        """In this order, at least one. Raises EtcdRejected if there is none: the file cannot be used."""
        if not isinstance(self._source, Path):
            return (self._source or "",)
        try:
            wanted = read_password(self._source)
        except ValueError as wrong:
            if self._accepted is None:
                raise EtcdRejected(grpc.StatusCode.UNAUTHENTICATED, str(wrong)) from None
            return (self._accepted,)
        if self._accepted is None or self._accepted == wanted:
            return (wanted,)
        return wanted, self._accepted

    def accepted(self, password: str) -> None:
        self._accepted = password

    def all_refused(self, rejected: EtcdRejected) -> EtcdRejected | EtcdUnknown:
        """The error for the caller, after etcd has refused each of `to_try`."""
        if self._accepted is None or not isinstance(self._source, Path):
            return rejected
        detail = f"{rejected.detail}; the password is in {self._source}"
        return EtcdUnknown(UnknownKind.LOGIN, detail, rejected.endpoint)


def read_password(path: Path) -> str:
    """The file's text without the line's end. Raises ValueError with a sentence that does not contain the text."""
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"the password file {path} cannot be read: {error.strerror}") from None
    try:
        text = content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"the password file {path} is not UTF-8 text") from None
    if not text or len(content) > BYTES_MAX:
        raise ValueError(f"the password file {path} must have 1 to {BYTES_MAX} bytes")
    return text
