"""Secrets of the shared cache, each from a file. An error names the setting, the file and the mistake, never the
content."""

import base64
import binascii
import re
from pathlib import Path
from typing import Final

from kafscale.runtime.shared_cache.signed_entries import KEY_BYTES_MAX, KEY_BYTES_MIN

FILE_BYTES_MAX: Final = 4_096
KEYS_MAX: Final = 4
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})+")


class BadSecretFile(Exception):
    """The text does not contain the secret."""

    def __init__(self, setting: str, path: Path, mistake: str) -> None:
        super().__init__(f"{path} ({setting}): {mistake}")


def read_password(setting: str, path: Path) -> str:
    """The content without the line end. Raises BadSecretFile."""
    password = _text(setting, path).rstrip("\r\n")
    if not password:
        raise BadSecretFile(setting, path, "the file is empty")
    return password


def read_mac_keys(setting: str, path: Path) -> tuple[bytes, ...]:
    """A key for each line that is not empty, in their order. Raises BadSecretFile."""
    lines = [line.strip() for line in _text(setting, path).splitlines()]
    keys = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        key = _decoded(line)
        if key is None:
            raise BadSecretFile(setting, path, f"line {number} is neither hex nor base64")
        if not KEY_BYTES_MIN <= len(key) <= KEY_BYTES_MAX:
            raise BadSecretFile(
                setting, path, f"line {number} has {len(key)} bytes, not {KEY_BYTES_MIN} to {KEY_BYTES_MAX}"
            )
        keys.append(key)
    if not 1 <= len(keys) <= KEYS_MAX:
        raise BadSecretFile(setting, path, f"it has {len(keys)} keys, not 1 to {KEYS_MAX}")
    return tuple(keys)


def _decoded(line: str) -> bytes | None:
    if _HEX.fullmatch(line):
        return bytes.fromhex(line)
    try:
        return base64.b64decode(line, validate=True)
    except (binascii.Error, ValueError):  # ValueError: letters that are not ASCII
        return None


def _text(setting: str, path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadSecretFile(setting, path, error.strerror or type(error).__name__) from error
    if len(content) > FILE_BYTES_MAX:
        raise BadSecretFile(setting, path, f"it has more than {FILE_BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise BadSecretFile(setting, path, "it is not text") from None
