"""Reads the bytes from a file, or from an object of the S3 store that KAFSCALE_S3_* names."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kafscale.operations.sentences import Trouble
from kafscale.runtime.dependencies import open_object_store
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.settings_load import read_settings
from kafscale.storage.keys import index_beside
from kafscale.storage.objects import ObjectNotFound, StoreError

BYTES_MAX: Final = 1 << 30
S3: Final = "s3"
SEGMENT: Final = ".kfs"
INDEX: Final = ".index"
BUNDLE: Final = ".kfb"


class NoSource(Trouble):
    """The object cannot be read. The text says why."""


def read_source(name: str) -> tuple[bytes, bytes | None]:
    """The object at a path or s3://bucket/key, and the index of a segment if it exists.

    Raises NoSource, and BadSettings of an S3.
    """
    beside = index_beside(name) if name.endswith(SEGMENT) else None
    parts = urlsplit(name)
    if parts.scheme == S3:
        key = parts.path.removeprefix("/")
        return asyncio.run(_from_s3(parts.netloc, key, index_beside(key) if beside else None))
    return _file(Path(name)), _file(Path(beside)) if beside and Path(beside).exists() else None


def _check_kind(name: str) -> None:
    """After the check that the object exists, which is the more likely mistake."""
    if not name.endswith((SEGMENT, INDEX, BUNDLE)):
        raise NoSource(f"'{name}' is no segment (*{SEGMENT}), no index (*{INDEX}) and no bundle (*{BUNDLE})")


def _file(path: Path) -> bytes:
    try:
        if not path.exists():
            raise NoSource(f"{path} does not exist")
        _check_kind(path.name)
        if path.stat().st_size > BYTES_MAX:
            raise NoSource(f"{path} is larger than {BYTES_MAX} bytes: no object of KafScale is")
        return path.read_bytes()
    except OSError as trouble:
        raise NoSource(f"{path}: {trouble.strerror}") from trouble


async def _from_s3(bucket: str, key: str, index_key: str | None) -> tuple[bytes, bytes | None]:
    settings = read_settings(ServiceSettings, {"object_store": S3, "s3_bucket": bucket})
    store = open_object_store(settings)
    try:
        info = await store.head(key)
        if info is None:
            raise NoSource(f"bucket {bucket} has no object {key}")
        _check_kind(key)
        if info.size > BYTES_MAX:
            raise NoSource(f"{key} is larger than {BYTES_MAX} bytes: no object of KafScale is")
        data = await store.get(key)
        try:
            index = await store.get(index_key) if index_key is not None else None
        except ObjectNotFound:
            index = None
        return data, index
    except StoreError as trouble:
        where = settings.s3_endpoint or f"AWS {settings.s3_region}"
        raise NoSource(f"S3 at {where}: {trouble}; look at the KAFSCALE_S3_* settings") from trouble
    finally:
        await store.close()
