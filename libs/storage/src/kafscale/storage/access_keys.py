"""The keys of ACLs, quotas and users in etcd, and back; and the transaction by which they change. Pure.

They are below /kafscale/{namespace}/ as all keys (keys.py), are persisted, and must not change.

    acl/{hash}                an ACL; equal ACLs have one key, because the hash is of all fields of the ACL
    quota/{entity}            the quotas of an entity: quota/user/alice, quota/user/<default>/client-id/app
    user/{name}/{mechanism}   the SCRAM credential of a user: user/alice/SCRAM-SHA-512
    acl/ quota/ user/         the marker of the family
    secret/decoy-key          the key of the salts of users who do not exist (decoy_key.py)

Names are percent-encoded. So no name contains `/`, and none is `<default>`.

Law: every change of a family goes through `change_txn`, which compares what was read and puts the marker. So one read
of the markers shows whether a copy of the families is current (access_view.py).

Only admins and front doors read `user/`, and only front doors `secret/`. Give no other user of etcd these rights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final
from urllib.parse import quote, unquote

from kafscale.access.acl import AclBinding
from kafscale.access.quota import Default, EntityName, QuotaEntity
from kafscale.access.scram_credentials import ScramMechanism
from kafscale.storage.etcd.ops import Compare, Delete, Put, Range, RangeResult, Txn
from kafscale.storage.keys import Keyspace, UnknownKey, prefix_end

USER_CHARS_MAX: Final = 1_024
"""Of a user's name."""
_DIGEST_BYTES: Final = 32
_KINDS: Final = ("user", "client-id", "ip")
_MECHANISMS: Final = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}


class AccessKeys:
    """The keys of one cluster."""

    __slots__ = ("acls", "decoy_key", "quotas", "users")

    def __init__(self, keyspace: Keyspace) -> None:
        self.acls = keyspace.root() + b"acl/"
        """The prefix of all ACLs, and their marker."""
        self.quotas = keyspace.root() + b"quota/"
        self.users = keyspace.root() + b"user/"
        self.decoy_key = keyspace.root() + b"secret/decoy-key"

    def acl(self, acl: AclBinding) -> bytes:
        return self.acls + acl_hash(acl).encode()

    def quota(self, entity: QuotaEntity) -> bytes:
        """Of an entity that `entity_refusal` accepts."""
        names = (entity.user, entity.client_id, entity.ip)
        parts = (
            f"{kind}/{_entity_part(name)}"
            for kind, name in zip(_KINDS, names, strict=True)
            if name is not None
        )
        return self.quotas + "/".join(parts).encode()

    def user(self, name: str, mechanism: ScramMechanism) -> bytes:
        return self.users + f"{quote(name, safe='')}/{mechanism.sasl_name}".encode()

    def parse_quota(self, key: bytes) -> QuotaEntity:
        parts = _parts(key, self.quotas)
        names = dict(zip(parts[::2], parts[1::2], strict=False))
        known = {kind: _entity_name(names[kind]) for kind in _KINDS if kind in names}
        entity = QuotaEntity(user=known.get("user"), client_id=known.get("client-id"), ip=known.get("ip"))
        if not known or self.quota(entity) != key:
            raise UnknownKey(key)
        return entity

    def parse_user(self, key: bytes) -> tuple[str, ScramMechanism]:
        """Name and mechanism."""
        parts = _parts(key, self.users)
        mechanism = _MECHANISMS.get(parts[-1])
        if len(parts) != 2 or mechanism is None:
            raise UnknownKey(key)
        return unquote(parts[0]), mechanism


def acl_hash(acl: AclBinding) -> str:
    """64 hexadecimal digits. Each field has its length before it, so that no two ACLs give the same bytes."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    numbers = (acl.resource_type, acl.pattern_type, acl.operation, acl.permission)
    for text in (*(str(int(number)) for number in numbers), acl.resource_name, acl.principal, acl.host):
        data = text.encode()
        digest.update(len(data).to_bytes(4, "big"))
        digest.update(data)
    return digest.hexdigest()


def _entity_part(name: EntityName) -> str:
    return name.value if isinstance(name, Default) else quote(name, safe="")


def _entity_name(part: str) -> EntityName:
    return Default.DEFAULT if part == Default.DEFAULT.value else unquote(part)


def _parts(key: bytes, prefix: bytes) -> list[str]:
    if not key.startswith(prefix):
        raise UnknownKey(key)
    try:
        return key[len(prefix) :].decode().split("/")
    except UnicodeDecodeError:
        raise UnknownKey(key) from None


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
