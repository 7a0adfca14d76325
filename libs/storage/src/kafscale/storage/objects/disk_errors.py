"""Translates the operating system's errors into those of the port."""

import errno
from types import TracebackType
from typing import Final

from kafscale.storage.objects.errors import StoreError, StoreFull, StoreRefused, StoreUnavailable

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR}
)


class translated:
    """Raises the port's errors instead of OSError. It is a class for speed: each PUT enters it twice."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            raise in_our_words(self._key, error) from error


def in_our_words(key: str, error: OSError) -> StoreError:
    reason = error.strerror or str(error)
    if error.errno in NO_ROOM:
        return StoreFull(key, reason)
    if error.errno in _REFUSED:
        return StoreRefused(key, reason)
    return StoreUnavailable(key, reason)
