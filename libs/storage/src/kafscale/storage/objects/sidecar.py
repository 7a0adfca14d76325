"""The record of an object in the directory store, as text; and the keys that the store accepts. Pure.

Size and modification time connect a record to its bytes, so the store notices bytes that another program changed or
cut. The etag is the hash of the bytes, so it can be computed again if the record is lost.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlencode

from kafscale.storage.objects.port import StoreRefused

STORE_DIR: Final = ".store"
METADATA_BYTES_MAX: Final = 2048  # S3's own limit
_NAME_BYTES_MAX: Final = 230  # 255 without the suffix for the inode
_ENCODED_BYTES_MAX: Final = 3800
_RECORD_VERSION: Final = "1"
_UNRESERVED: Final = re.compile(r"[A-Za-z0-9_.~-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The etag and metadata of the bytes with this size and modification time."""

    etag: str
    size: int
    mtime_ns: int
    metadata: Mapping[str, str] = field(default_factory=dict)


def encode_record(record: Record) -> str:
    """One line of text."""
    return record_line(record.etag, record.size, record.mtime_ns, urlencode(record.metadata))


def record_line(etag: str, size: int, mtime_ns: int, described: str) -> str:
    """The same from a record's parts; `described` comes from `encode_metadata`."""
    return f"{_RECORD_VERSION} {etag} {size} {mtime_ns} {described}"


def encode_metadata(key: str, metadata: Mapping[str, str]) -> str:
    """Refuses metadata that S3 (the first limit), a link's target or ext4's attributes (the second) cannot store."""
    text = "".join(metadata) + "".join(metadata.values())
    if _UNRESERVED.fullmatch(text):  # the metadata of every segment: no escape needed
        described = "&".join([f"{name}={value}" for name, value in metadata.items()])
    else:
        described = urlencode(metadata)
    if len(text.encode()) > METADATA_BYTES_MAX or len(described) > _ENCODED_BYTES_MAX:
        raise StoreRefused(key, f"more than {METADATA_BYTES_MAX} bytes of metadata")
    return described


def decode_record(text: str) -> Record | None:
    """None for a target that this version did not write."""
    fields = text.split(" ")
    if len(fields) != 5 or fields[0] != _RECORD_VERSION or not (fields[2].isdigit() and fields[3].isdigit()):
        return None
    metadata = dict(parse_qsl(fields[4], keep_blank_values=True))
    return Record(etag=fields[1], size=int(fields[2]), mtime_ns=int(fields[3]), metadata=metadata)


def check_key(key: str) -> None:
    """Refuses keys that cannot be a path below the root. S3 accepts some of them, but KafScale never makes one."""
    parts = key.split("/")
    bad = (
        any(part in ("", ".", "..") or len(part.encode()) > _NAME_BYTES_MAX for part in parts)
        or "\0" in key
        or parts[0] == STORE_DIR
    )
    if bad:
        raise StoreRefused(key, "not a key that a directory can hold")
