"""What it takes, on the file system at hand, for a new name to survive a power cut.

POSIX promises a name only after an fsync of its directory. ext4 and xfs keep one ordered journal, so an fsync
of the file also makes every earlier change of names durable, its own included; tmpfs has nothing to make
durable. Anything else, or what cannot be told, is synced directory by directory.
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
    """Make the names in a directory durable; if another process took the empty directory away, that it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        sync_directory(os.path.dirname(path))
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
