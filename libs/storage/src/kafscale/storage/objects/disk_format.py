"""The layout of a directory store, kept in one file since its creation. Every process follows it.

The file names the place of the records. If they are in extended attributes, the file has one itself. If that is
missing, the tree was copied without extended attributes, and the store is refused, because its metadata is lost.
"""

import contextlib
import os
import uuid
from typing import Final

from kafscale.storage.objects.disk_records import ATTRIBUTE, AttributeRecords, LinkRecords, Records
from kafscale.storage.objects.errors import StoreRefused

_IN_ATTRIBUTES: Final = b"records in extended attributes\n"
_IN_LINKS: Final = b"records in links\n"


def open_records(store_dir: str, *, attributes: bool, ordered: bool) -> Records:
    """Reads the layout of the store, or creates it: in attributes if they are wanted and supported."""
    path = f"{store_dir}/layout"
    if not os.path.exists(path):
        _lay_out(store_dir, path, attributes=attributes)
    with open(path, "rb") as file:
        layout = file.read()
        if layout == _IN_LINKS:
            return LinkRecords(f"{store_dir}/meta", ordered=ordered)
        if layout != _IN_ATTRIBUTES:
            raise StoreRefused("", f"{path} is of another version: {layout[:80]!r}")
        if not _has_attribute(file.fileno()):
            raise StoreRefused(
                "",
                f"{store_dir} was copied without extended attributes, which hold the objects' metadata; "
                "copy it again with cp -a, rsync -aX or tar --xattrs",
            )
        return AttributeRecords()


def _lay_out(store_dir: str, path: str, *, attributes: bool) -> None:
    name = f"{store_dir}/stage/{uuid.uuid4().hex}"
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        os.write(fd, _IN_ATTRIBUTES if attributes and _set_attribute(fd) else _IN_LINKS)
        os.fsync(fd)
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(name, path)
    finally:
        os.close(fd)
        os.unlink(name)


def _set_attribute(fd: int) -> bool:
    try:
        os.setxattr(fd, ATTRIBUTE, b"1")
    except OSError:
        return False
    return True


def _has_attribute(fd: int) -> bool:
    try:
        return os.getxattr(fd, ATTRIBUTE) == b"1"
    except OSError:
        return False
