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
from kafscale.storage.operator_files import FileWrong, read_text

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
        except FileWrong as wrong:
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
    """The file's text without the line's end. Raises FileWrong with a sentence that does not contain the text."""
    try:
        text = read_text(path, BYTES_MAX).rstrip("\r\n")
    except FileWrong as wrong:
        raise FileWrong(f"the password file {path} cannot be used: {wrong}") from None
    if not text:
        raise FileWrong(f"the password file {path} is empty")
    return text
