"""The key from which front doors compute the salts of users who do not exist.

Laws: all front doors of a cluster have the same key. If a client got another salt for a name at another front door, it
would know that the user does not exist. The first front door draws the key, and nothing replaces it. A value that
cannot be such a key is not used: a short one could be found by trying.
"""

from __future__ import annotations

from typing import Final

from kafscale.storage.access_keys import AccessKeys
from kafscale.storage.etcd.client import Compare, EtcdClient, Put, Range, RangeResult, Txn
from kafscale.storage.schema import UnreadableValue
from kafscale.storage.system import random_bytes

DECOY_KEY_BYTES: Final = 32


class DecoyKeyDamaged(UnreadableValue):
    """The stored value is no key. The text says what an operator does."""

    def __init__(self, key: bytes, found_bytes: int) -> None:
        where = key.decode(errors="replace")
        super().__init__(
            f"the key {where} in etcd has {found_bytes} bytes instead of {DECOY_KEY_BYTES}: delete it with "
            f"`etcdctl del {where}`, and the next front door that starts makes a new one"
        )


async def shared_decoy_key(etcd: EtcdClient, keys: AccessKeys) -> bytes:
    """Reads the key, and creates it if the cluster has none. Raises EtcdError and DecoyKeyDamaged.

    The read comes first, so that a front door that may only read this key can start after another one.
    """
    found = await etcd.range(keys.decoy_key)
    if not found.kvs:
        drawn = random_bytes(DECOY_KEY_BYTES)
        result = await etcd.txn(
            Txn(
                compare=(Compare(keys.decoy_key, "version", "=", 0),),
                success=(Put(keys.decoy_key, drawn),),
                failure=(Range(keys.decoy_key),),
            )
        )
        if result.succeeded:
            return drawn
        held = result.responses[0]
        assert isinstance(held, RangeResult), "a range answers a range"
        found = held
    value = found.kvs[0].value
    if len(value) != DECOY_KEY_BYTES:
        raise DecoyKeyDamaged(keys.decoy_key, len(value))
    return value
