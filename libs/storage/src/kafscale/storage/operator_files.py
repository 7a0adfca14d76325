"""Files that an operator writes: text, read with a bound on its size; and whether files were replaced since.

No error contains the content: many of these files are secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

Stamp = tuple[tuple[int, int, int], ...]


class FileWrong(ValueError):
    """Why the file cannot be used, for a sentence that names it: "more than 4096 bytes"."""


def read_text(path: Path, bytes_max: int, encoding: str = "utf-8") -> str:
    """Raises FileWrong."""
    try:
        with path.open("rb") as file:
            return text_of(file, bytes_max, encoding)
    except OSError as error:
        raise FileWrong(error.strerror or type(error).__name__) from error


def text_of(file: BinaryIO, bytes_max: int, encoding: str = "utf-8") -> str:
    """The same of an open file. Raises FileWrong and OSError."""
    content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise FileWrong(f"more than {bytes_max} bytes")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError:
        raise FileWrong("not UTF-8") from None


def stamp_of(paths: Iterable[Path]) -> Stamp:
    """Differs when one of the files was replaced. Follows links, as those of Kubernetes' Secrets. Raises OSError."""
    stats = [path.stat() for path in paths]
    return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats)
