"""Which object store to open, as plain values."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

StoreKind = Literal["s3", "dir", "memory"]
"""`memory` is a `dir` in a temporary directory that is removed when the store is closed. Several processes can share
it if they are given the same directory."""


EncryptionKind = Literal["AES256", "aws:kms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Encryption:
    """Server-side encryption: with keys of S3 (AES256), or with one of KMS, by default the account's key for S3."""

    kind: EncryptionKind
    kms_key_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Config:
    """An S3 bucket."""

    bucket: str
    region: str = "us-east-1"
    endpoint: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    payload_signing: bool = False
    encryption: S3Encryption | None = None
    """None: as the bucket's own settings say."""
    connections_max: int = 64
    connect_timeout_s: float = 3.0
    request_timeout_s: float = 10.0
    create_bucket: bool = False
    probe_writes: bool = True
    """False for a process that may only read: its probe lists the bucket, and writes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """`directory` is needed by `dir`, optional for `memory`; `s3` is needed by `s3`.

    `kept_bytes`: a PUT leaves so many bytes of the disk of `directory` free.
    """

    kind: StoreKind
    directory: Path | None = None
    kept_bytes: int = 0
    s3: S3Config | None = None
