"""Users written to etcd without a front door: the first admin, before anybody can log in, and a lost password.

Laws: `create_user` never replaces a credential. A password leaves the process only as StoredKey and ServerKey.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafscale.access.scram_credentials import (
    ITERATIONS_DEFAULT,
    SALT_BITS,
    ScramCredential,
    ScramMechanism,
    credential_of_password,
    salt_of,
)
from kafscale.storage.access_keys import AccessKeys, Change, change_txn
from kafscale.storage.access_records import encode_credential
from kafscale.storage.etcd.client import EtcdClient, Range
from kafscale.storage.etcd.swap import swapped
from kafscale.storage.system import random_bytes


def credentials_for(
    password: str,
    mechanisms: Sequence[ScramMechanism] = tuple(ScramMechanism),
    iterations: int = ITERATIONS_DEFAULT,
) -> list[ScramCredential]:
    """With fresh salts. Slow on purpose (some milliseconds for each): for a thread."""
    return [
        credential_of_password(
            mechanism,
            password,
            salt=fresh_salt(),
            iterations=iterations,
        )
        for mechanism in mechanisms
    ]


def fresh_salt() -> bytes:
    return salt_of(int.from_bytes(random_bytes(SALT_BITS // 8 + 1), "big") % (1 << SALT_BITS))


async def exists(etcd: EtcdClient, keys: AccessKeys, name: str) -> bool:
    """Whether the user has a credential of any mechanism, readable or not. Raises EtcdError."""
    reads = [Range(keys.user(name, mechanism), keys_only=True) for mechanism in ScramMechanism]
    return any(found.kvs for found in await etcd.ranges(reads))


async def create_user(
    etcd: EtcdClient, keys: AccessKeys, name: str, credentials: Sequence[ScramCredential]
) -> bool:
    """False if the user has a credential of any mechanism, readable or not: then nothing was written.

    Raises EtcdError. After EtcdUnknown the user may have been created.
    """
    given = {credential.mechanism: encode_credential(credential) for credential in credentials}
    absent = [Change(keys.user(name, mechanism), 0, given.get(mechanism)) for mechanism in ScramMechanism]
    return (await etcd.txn(change_txn(keys.users, absent))).succeeded


async def replace_credentials(
    etcd: EtcdClient, keys: AccessKeys, name: str, credentials: Sequence[ScramCredential]
) -> list[ScramMechanism]:
    """Replaces the stored credentials of these mechanisms, also those that cannot be read. Creates none.

    The mechanisms that were replaced. Raises EtcdError and TooContended.
    """

    async def attempt() -> list[ScramMechanism] | None:
        reads = [Range(keys.user(name, each.mechanism), keys_only=True) for each in credentials]
        found = await etcd.ranges(reads)
        changes = [
            Change(read.key, one.kvs[0].mod_revision, encode_credential(each))
            for each, read, one in zip(credentials, reads, found, strict=True)
            if one.kvs
        ]
        if changes and not (await etcd.txn(change_txn(keys.users, changes))).succeeded:
            return None
        return [each.mechanism for each, one in zip(credentials, found, strict=True) if one.kvs]

    return await swapped(f"the credentials of user {name!r}", attempt)
