"""etcd and S3 as the commit protocol sees them: values in memory, each request one atomic step.

No network and no time: a test decides when a request is executed, how often, and which answer its sender
gets. Etags are hashes of the content, the hardest case of a real store: equal bytes give equal etags,
so a delayed conditional request can match again (ABA).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafscale.storage.objects import Condition, IfAbsent, IfMatch, ObjectInfo


@dataclass(frozen=True, slots=True)
class StoredObject:
    etag: str
    body: bytes
    metadata: Mapping[str, str]


@dataclass(slots=True)
class ModelS3:
    """Conditional PUT, HEAD, GET and DELETE; the answer None means 412 or 404."""

    objects: dict[str, StoredObject] = field(default_factory=dict)

    def put(
        self,
        key: str,
        body: Sequence[bytes | bytearray | memoryview],
        condition: Condition,
        metadata: Mapping[str, str],
    ) -> str | None:
        """The etag, or None for a failed condition."""
        there = self.objects.get(key)
        match condition:
            case IfAbsent() if there is not None:
                return None
            case IfMatch(etag) if there is None or there.etag != etag:
                return None
        data = b"".join(body)
        stored = StoredObject(etag_of(data), data, dict(metadata))
        self.objects[key] = stored
        return stored.etag

    def head(self, key: str) -> ObjectInfo | None:
        there = self.objects.get(key)
        if there is None:
            return None
        return ObjectInfo(key=key, etag=there.etag, size=len(there.body), metadata=there.metadata)

    def get(self, key: str, if_match: str | None = None) -> bytes | None:
        there = self.objects.get(key)
        if there is None or (if_match is not None and there.etag != if_match):
            return None
        return there.body

    def delete(self, key: str, if_match: str | None) -> bool:
        there = self.objects.get(key)
        if there is None or (if_match is not None and there.etag != if_match):
            return False
        del self.objects[key]
        return True


def etag_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


@dataclass(frozen=True, slots=True)
class ModelValue:
    value: bytes
    mod_revision: int


@dataclass(slots=True)
class ModelEtcd:
    """One revision counter over all keys, and transactions that compare mod revisions."""

    revision: int = 1
    values: dict[bytes, ModelValue] = field(default_factory=dict)

    def get(self, key: bytes) -> ModelValue | None:
        return self.values.get(key)

    def mod_revision(self, key: bytes) -> int:
        there = self.values.get(key)
        return 0 if there is None else there.mod_revision

    def txn(
        self, compares: Mapping[bytes, int], puts: Mapping[bytes, bytes], deletes: Sequence[bytes] = ()
    ) -> int | None:
        """The new revision if every key has its compared mod revision (0: absent), else None."""
        if any(self.mod_revision(key) != revision for key, revision in compares.items()):
            return None
        self.revision += 1
        for key, value in puts.items():
            self.values[key] = ModelValue(value, self.revision)
        for key in deletes:
            self.values.pop(key, None)
        return self.revision
