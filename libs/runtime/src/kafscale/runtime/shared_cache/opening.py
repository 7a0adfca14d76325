"""Opens the shared cache that the settings name. Without one, neither redis-py nor a secret is read.

Each secret is in a file. An error names the setting, the file and the mistake, never the content.
"""

import asyncio
import base64
import binascii
import re
from pathlib import Path
from typing import Final

from kafscale.runtime.budget import MemoryBudget
from kafscale.runtime.clock import Clock
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.shared_cache.cache import SharedCache, SharedCacheLimits, SharedCacheMetrics
from kafscale.runtime.shared_cache.entries import CheckedEntries, Entries
from kafscale.runtime.shared_cache.signed_entries import KEY_BYTES_MAX, KEY_BYTES_MIN, SignedEntries
from kafscale.storage.operator_files import FileWrong, read_text

FILE_BYTES_MAX: Final = 4_096
KEYS_MAX: Final = 4
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})+")


class CacheUnusable(Exception):
    """The settings of the shared cache cannot be used. The text contains no secret."""


class BadRedisUrl(CacheUnusable):
    """The text does not contain the URL, which may hold a password."""

    def __init__(self) -> None:
        super().__init__(
            "KAFSCALE_REDIS_URL has a database or an option that redis-py does not know: write redis://host:port/db, "
            "or rediss:// for TLS, with a user:password@ before the host where one is needed"
        )


class BadSecretFile(CacheUnusable):
    """The text does not contain the secret."""

    def __init__(self, setting: str, path: Path, mistake: str) -> None:
        super().__init__(f"{path} ({setting}): {mistake}")


def open_shared_cache(
    settings: ServiceSettings,
    *,
    clock: Clock,
    budget: MemoryBudget,
    metrics: Metrics,
    tasks: asyncio.TaskGroup,
) -> SharedCache | None:
    """The cache that the settings name; without one, redis-py is not imported. Reads the files of secrets; otherwise
    does no I/O.

    A task of `tasks` writes the fills and closes the connections. Raises CacheUnusable.
    """
    counted = SharedCacheMetrics(metrics)
    if settings.redis_url is None:
        return None
    from kafscale.runtime.shared_cache.redis_client import RedisClient

    password, entries = _secrets(settings)
    try:
        client = RedisClient(settings.redis_url.get_secret_value(), password)
    except (ValueError, TypeError):
        raise BadRedisUrl from None
    limits = SharedCacheLimits(
        timeout_ms=settings.redis_timeout_ms,
        max_object_bytes=settings.redis_max_object_bytes,
        ttl_ms=settings.redis_ttl_ms,
    )
    shared = SharedCache(client, limits, clock=clock, budget=budget, metrics=counted, entries=entries)
    tasks.create_task(shared.run(), name="shared-cache")
    return shared


def _secrets(settings: ServiceSettings) -> tuple[str | None, Entries]:
    """The password, and the entries that the keys make. Raises BadSecretFile."""
    password_file, keys_file = settings.redis_password_file, settings.redis_mac_key_file
    password = None
    if password_file is not None:
        password = read_password("KAFSCALE_REDIS_PASSWORD_FILE", password_file)
    if keys_file is None:
        return password, CheckedEntries()
    return password, SignedEntries(read_mac_keys("KAFSCALE_REDIS_MAC_KEY_FILE", keys_file))


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
        return read_text(path, FILE_BYTES_MAX)
    except FileWrong as wrong:
        raise BadSecretFile(setting, path, str(wrong)) from wrong
