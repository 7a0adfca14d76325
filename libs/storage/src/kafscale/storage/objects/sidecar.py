"""What the directory store remembers of an object beside its bytes, and where. Pure paths and text.

A record is the target of a symbolic link named after the key and the inode that holds the bytes. It is made
before the object appears under its key, so one link or rename shows bytes and record together. A link is one
entry in the file system's journal: it needs no write and no fsync of its own, and it survives cp -r, rsync
and tar. Size and modification time tie it to the bytes; the etag is their hash, so a copied tree, whose
inodes differ, finds its records again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlencode

from kafscale.storage.objects.errors import StoreRefused

STORE_DIR: Final = ".store"
METADATA_BYTES_MAX: Final = 2048  # S3's own limit
_NAME_BYTES_MAX: Final = 230  # 255, less the inode's suffix
_RECORD_VERSION: Final = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The etag and metadata of the bytes with this size and modification time."""

    etag: str
    size: int
    mtime_ns: int
    metadata: Mapping[str, str] = field(default_factory=dict)


def encode_record(record: Record) -> str:
    """The link's target."""
    return f"{_RECORD_VERSION} {record.etag} {record.size} {record.mtime_ns} {urlencode(record.metadata)}"


def decode_record(text: str) -> Record | None:
    """None for a target that this version did not write."""
    fields = text.split(" ")
    if len(fields) != 5 or fields[0] != _RECORD_VERSION or not (fields[2].isdigit() and fields[3].isdigit()):
        return None
    metadata = dict(parse_qsl(fields[4], keep_blank_values=True))
    return Record(etag=fields[1], size=int(fields[2]), mtime_ns=int(fields[3]), metadata=metadata)


def check_key(key: str) -> None:
    """Refuse what cannot be a path below the root: S3 would take some of these, we never make them."""
    parts = key.split("/")
    bad = (
        any(part in ("", ".", "..") or len(part.encode()) > _NAME_BYTES_MAX for part in parts)
        or "\0" in key
        or parts[0] == STORE_DIR
    )
    if bad:
        raise StoreRefused(key, "not a key that a directory can hold")


def check_metadata(key: str, metadata: Mapping[str, str]) -> None:
    """The same limit as S3's, so that what works here works there."""
    if sum(len(name.encode()) + len(value.encode()) for name, value in metadata.items()) > METADATA_BYTES_MAX:
        raise StoreRefused(key, f"more than {METADATA_BYTES_MAX} bytes of metadata")


def record_name(name: str, inode: int) -> str:
    """The record's file name for the object's file name."""
    return f"{name}.{inode:x}"
