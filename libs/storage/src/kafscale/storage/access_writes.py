"""Changes of ACLs, quotas and users in etcd: one transaction, which compares what was read and puts the marker.

Law: every change of a family goes through `change_txn`, so that its marker moves with it (access_keys.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.storage.etcd.ops import Compare, Delete, Put, Range, RangeResult, Txn
from kafscale.storage.keys import prefix_end

CHANGES_MAX: Final = 100
"""Keys in one transaction. etcd takes 128 operations by default, and the marker is one of them."""


@dataclass(frozen=True, slots=True)
class Change:
    """`seen`: the key's revision when it was read, 0 if it was absent. `value` None deletes the key."""

    key: bytes
    seen: int
    value: bytes | None


def change_txn(marker: bytes, changes: Sequence[Change]) -> Txn:
    """Makes all changes if none of the keys has changed since, else none."""
    assert 0 < len(changes) <= CHANGES_MAX, "a transaction has room for some changes"
    return Txn(
        compare=tuple(Compare(change.key, "mod", "=", change.seen) for change in changes),
        success=(
            *(
                Delete(change.key) if change.value is None else Put(change.key, change.value)
                for change in changes
            ),
            Put(marker, b""),
        ),
    )


def count_read(marker: bytes) -> Range:
    """A read of the number of records of a family, which `counted` takes from the result."""
    return Range(marker, prefix_end(marker), limit=1, keys_only=True)


def counted(marker: bytes, found: RangeResult) -> int:
    """The marker is the first key of its family, and no record."""
    return found.count - (bool(found.kvs) and found.kvs[0].key == marker)
