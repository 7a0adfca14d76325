"""The operating system's errors in the words of the port."""

import contextlib
import errno
from collections.abc import Iterator
from typing import Final

from kafscale.storage.objects.errors import StoreFull, StoreRefused, StoreUnavailable

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR}
)


@contextlib.contextmanager
def translated(key: str) -> Iterator[None]:
    """Raise what the store's callers know in place of OSError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno in NO_ROOM:
            raise StoreFull(key, reason) from error
        if error.errno in _REFUSED:
            raise StoreRefused(key, reason) from error
        raise StoreUnavailable(key, reason) from error
