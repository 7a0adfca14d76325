"""Objects: the port that services use, its errors, and the adapters behind it."""

from typing import assert_never

from kafscale.storage.objects.config import (
    EncryptionKind,
    S3Config,
    S3Encryption,
    StoreConfig,
    StoreKind,
)
from kafscale.storage.objects.memory import MemoryStore
from kafscale.storage.objects.port import (
    DELETES_MAX,
    NO_METADATA,
    Buffer,
    Condition,
    Doomed,
    IfAbsent,
    IfMatch,
    Metadata,
    ObjectInfo,
    ObjectNotFound,
    ObjectStore,
    Outcome,
    PreconditionFailed,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreSlow,
    StoreUnavailable,
    StoreUnsuitable,
)

__all__ = [
    "DELETES_MAX",
    "NO_METADATA",
    "Buffer",
    "Condition",
    "Doomed",
    "EncryptionKind",
    "IfAbsent",
    "IfMatch",
    "MemoryStore",
    "Metadata",
    "ObjectInfo",
    "ObjectNotFound",
    "ObjectStore",
    "Outcome",
    "PreconditionFailed",
    "S3Config",
    "S3Encryption",
    "StoreConfig",
    "StoreError",
    "StoreFull",
    "StoreKind",
    "StoreRefused",
    "StoreSlow",
    "StoreUnavailable",
    "StoreUnsuitable",
    "open_store",
]


def open_store(config: StoreConfig) -> ObjectStore:
    """No I/O happens before the store's first request.

    An adapter is imported when it is opened, for start time and memory: aiohttp for S3, the disk modules for `dir`.
    """
    if config.kind == "s3":
        from kafscale.storage.objects.s3 import S3Store

        assert config.s3 is not None, "an s3 store needs its S3Config"
        return S3Store(config.s3)
    from kafscale.storage.objects.directory import DirectoryStore

    match config.kind:
        case "dir":
            assert config.directory is not None, "a dir store needs its directory"
            return DirectoryStore(config.directory, kept_bytes=config.kept_bytes)
        case "memory":
            return DirectoryStore(config.directory) if config.directory else DirectoryStore.temporary()
        case _:
            assert_never(config.kind)
