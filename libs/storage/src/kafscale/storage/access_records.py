"""The stored ACLs, quotas and SCRAM credentials: values of libs/access, encoded. Pure.

A record is checked like a request when it is read, because it decides who may do what. An ACL is stored under a hash
of its fields, so a record under the key of another ACL is recognised. `UnreadableAcl` says what to deny while an ACL
cannot be read. No error contains a salt or a key of a credential.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kafscale.access.acl import (
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    binding_refusal,
)
from kafscale.access.principals import ANY_HOST, ANY_PRINCIPAL, Principal
from kafscale.access.quota import QuotaEntity, QuotaKey, entity_refusal, value_refusal
from kafscale.access.scram_credentials import ScramCredential, ScramMechanism
from kafscale.storage.access_keys import acl_hash
from kafscale.storage.schema import SCHEMA, CorruptValue, UnknownSchema, UnreadableValue, parse_value
from kafscale.store.v1 import store_pb2

_ACL: Final = "ACL"
_QUOTA_KEYS: Final = {key.value: key for key in QuotaKey}


class UnreadableAcl(UnreadableValue):
    """`denial`: what its text denies as far as it is known, or None if nothing of the ACL is known."""

    def __init__(self, cause: UnreadableValue, denial: AclBinding | None) -> None:
        super().__init__(str(cause))
        self.denial = denial


def denial_of(acl: AclBinding) -> AclBinding:
    """What is denied while the ACL cannot be read: every operation on its resource, to its principal, from any host."""
    return replace(acl, host=ANY_HOST, operation=Operation.ALL, permission=Permission.DENY)


def encode_acl(acl: AclBinding) -> bytes:
    record = store_pb2.Acl(
        schema=SCHEMA,
        resource_type=acl.resource_type,
        pattern_type=acl.pattern_type,
        resource_name=acl.resource_name,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission,
    )
    return record.SerializeToString(deterministic=True)


def decode_acl(stored_hash: str, value: bytes) -> AclBinding:
    """`stored_hash` is the last part of the key. Raises UnreadableAcl."""
    record = store_pb2.Acl()
    try:
        parse_value(record, value, _ACL)
    except UnknownSchema as error:
        raise UnreadableAcl(error, _denial(_binding(record))) from error
    except UnreadableValue as error:
        raise UnreadableAcl(error, None) from error
    acl = _binding(record)
    refused = binding_refusal(acl)
    if refused is not None:
        raise UnreadableAcl(CorruptValue(_ACL, refused.message), _denial(acl))
    if acl_hash(acl) != stored_hash:
        raise UnreadableAcl(CorruptValue(_ACL, "its key is that of another ACL"), _denial(acl))
    return acl


def _binding(record: store_pb2.Acl) -> AclBinding:
    return AclBinding(
        resource_type=ResourceType(record.resource_type),
        pattern_type=PatternType(record.pattern_type),
        resource_name=record.resource_name,
        principal=Principal(record.principal),
        host=record.host,
        operation=Operation(record.operation),
        permission=Permission(record.permission),
    )


def _denial(acl: AclBinding) -> AclBinding | None:
    """Of a record that cannot be trusted: its principal may be missing, then all users are denied."""
    known = acl if ":" in acl.principal else replace(acl, principal=ANY_PRINCIPAL)
    denial = denial_of(known)
    return None if binding_refusal(denial) is not None else denial


def encode_quotas(values: Mapping[QuotaKey, float]) -> bytes:
    record = store_pb2.ClientQuota(schema=SCHEMA, values={key.value: each for key, each in values.items()})
    return record.SerializeToString(deterministic=True)


def decode_quotas(entity: QuotaEntity, value: bytes) -> Mapping[QuotaKey, float]:
    """The quotas that are set on the entity. Raises CorruptValue or UnknownSchema."""
    kind = f"quota record of {entity}"
    record = store_pb2.ClientQuota()
    parse_value(record, value, kind)
    refused = entity_refusal(entity)
    for name, limit in record.values.items():
        refused = refused or value_refusal(entity, name, limit)
    if refused is not None:
        raise CorruptValue(kind, refused.message)
    return {_QUOTA_KEYS[name]: limit for name, limit in record.values.items()}


def encode_credential(credential: ScramCredential) -> bytes:
    record = store_pb2.ScramCredential(
        schema=SCHEMA,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )
    return record.SerializeToString(deterministic=True)


def decode_credential(name: str, mechanism: ScramMechanism, value: bytes) -> ScramCredential:
    """Raises CorruptValue or UnknownSchema. `name` is for the message."""
    kind = f"{mechanism.sasl_name} credential of user {name!r}"
    record = store_pb2.ScramCredential()
    parse_value(record, value, kind)
    size = len(mechanism.hash(b""))
    if len(record.stored_key) != size or len(record.server_key) != size:
        raise CorruptValue(kind, f"a key has not {size} bytes")
    if record.iterations < 1:
        raise CorruptValue(kind, f"{record.iterations} iterations")
    return ScramCredential(
        mechanism=mechanism,
        salt=record.salt,
        stored_key=record.stored_key,
        server_key=record.server_key,
        iterations=record.iterations,
    )
