"""What a file system needs so that a new name survives a power cut.

POSIX guarantees a name only after an fsync of its directory. ext4 and xfs keep one ordered journal, so an fsync of the
file also makes all earlier name changes durable, including its own. tmpfs has nothing to make durable. On all other or
unknown file systems, each directory is synced.
"""

import os
from pathlib import Path
from typing import Final

_NAMES_FOLLOW_FSYNC: Final = frozenset({"ext4", "xfs", "tmpfs"})


def names_follow_fsync(path: str, mountinfo: str | None = None) -> bool:
    """Whether an fsync of a file also persists the names made before it on this file system."""
    device = os.stat(path).st_dev
    text = mountinfo if mountinfo is not None else _read_mountinfo()
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        if before.split(" ")[2:3] == [wanted]:
            return after.split(" ")[0] in _NAMES_FOLLOW_FSYNC
    return False


def _read_mountinfo() -> str:
    try:
        return Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ""


def sync_directory(path: str) -> None:
    """Makes the names in a directory durable. If another process removed it, makes the removal durable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        sync_directory(os.path.dirname(path))
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
