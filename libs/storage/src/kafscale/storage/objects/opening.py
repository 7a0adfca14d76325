"""Opens an object store.

An adapter is imported only when it is opened, for start time and memory: aiohttp for S3, the disk modules for `dir`.
"""

from typing import assert_never

from kafscale.storage.objects.config import StoreConfig
from kafscale.storage.objects.port import ObjectStore


def open_store(config: StoreConfig) -> ObjectStore:
    """No I/O happens before the store's first request."""
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
