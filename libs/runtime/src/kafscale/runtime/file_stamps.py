"""Whether files were replaced since they were read."""

from collections.abc import Iterable
from pathlib import Path

Stamp = tuple[tuple[int, int, int], ...]


def stamp_of(paths: Iterable[Path]) -> Stamp:
    """Differs when one of the files was replaced. Follows links, as those of Kubernetes' Secrets. Raises OSError."""
    stats = [path.stat() for path in paths]
    return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats)
