"""Objects: the port that services use, its errors, and the adapters behind it."""

from kafscale.storage.objects.config import S3Config, StoreConfig, StoreKind
from kafscale.storage.objects.errors import (
    ObjectNotFound,
    PreconditionFailed,
    StoreError,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    StoreUnsuitable,
)
from kafscale.storage.objects.memory import MemoryStore
from kafscale.storage.objects.opening import open_store
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
    ObjectStore,
    Outcome,
)

__all__ = [
    "DELETES_MAX",
    "NO_METADATA",
    "Buffer",
    "Condition",
    "Doomed",
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
    "StoreConfig",
    "StoreError",
    "StoreFull",
    "StoreKind",
    "StoreRefused",
    "StoreUnavailable",
    "StoreUnsuitable",
    "open_store",
]
