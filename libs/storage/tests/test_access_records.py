"""ACLs, quotas and credentials are persisted: they come back as they went in, and what is wrong is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from kafscale.access.principals import Principal
from kafscale.access.quota import Default, QuotaEntity, QuotaKey
from kafscale.access.scram_credentials import ScramCredential, ScramMechanism, credential_of_password
from kafscale.storage.access_keys import AccessKeys, acl_hash
from kafscale.storage.access_records import (
    UnreadableAcl,
    decode_acl,
    decode_credential,
    decode_quotas,
    denial_of,
    encode_acl,
    encode_credential,
    encode_quotas,
)
from kafscale.storage.keys import Keyspace, UnknownKey
from kafscale.storage.schema import CorruptValue, UnknownSchema
from kafscale.store.v1 import store_pb2

KEYS = AccessKeys(Keyspace("prod"))
ACL = AclBinding(
    resource_type=ResourceType.TOPIC,
    pattern_type=PatternType.PREFIXED,
    resource_name="orders",
    principal=Principal("User:alice"),
    host="10.0.0.1",
    operation=Operation.READ,
    permission=Permission.ALLOW,
)
names = st.text(min_size=1, max_size=40)
entity_names = st.one_of(st.just(Default.DEFAULT), st.just("<default>"), names)
optional_names = st.one_of(st.none(), entity_names)
entities = st.one_of(
    st.builds(QuotaEntity, user=entity_names, client_id=optional_names),
    st.builds(QuotaEntity, client_id=entity_names),
    st.builds(QuotaEntity, ip=st.sampled_from(["10.0.0.1", "::1", Default.DEFAULT])),
)
mechanisms = st.sampled_from(ScramMechanism)
acls = st.builds(
    AclBinding,
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP, ResourceType.USER]),
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    resource_name=names,
    principal=names.map(lambda name: Principal(f"User:{name}")),
    host=names,
    operation=st.sampled_from([Operation.ALL, Operation.READ, Operation.TWO_PHASE_COMMIT]),
    permission=st.sampled_from([Permission.DENY, Permission.ALLOW]),
)


def test_keys_are_written_as_documented() -> None:
    alice = QuotaEntity(user="alice", client_id=Default.DEFAULT)
    assert KEYS.acl(ACL) == b"/kafscale/prod/acl/" + acl_hash(ACL).encode()
    assert acl_hash(ACL) == "71d987973280dfb84111f40acc11f673978d31f1d015eaef836a987accd59b17"
    assert KEYS.quota(alice) == b"/kafscale/prod/quota/user/alice/client-id/<default>"
    assert KEYS.quota(QuotaEntity(user="a/b <default>")) == b"/kafscale/prod/quota/user/a%2Fb%20%3Cdefault%3E"
    assert KEYS.quota(QuotaEntity(ip="10.0.0.1")) == b"/kafscale/prod/quota/ip/10.0.0.1"
    assert KEYS.user("a/b", ScramMechanism.SCRAM_SHA_512) == b"/kafscale/prod/user/a%2Fb/SCRAM-SHA-512"


@given(entities, entities)
def test_the_key_of_an_entity_comes_back_and_no_two_share_one(one: QuotaEntity, other: QuotaEntity) -> None:
    assert KEYS.parse_quota(KEYS.quota(one)) == one
    assert (KEYS.quota(one) == KEYS.quota(other)) == (one == other)


@given(names, mechanisms)
def test_the_key_of_a_user_comes_back(name: str, mechanism: ScramMechanism) -> None:
    assert KEYS.parse_user(KEYS.user(name, mechanism)) == (name, mechanism)


@pytest.mark.parametrize(
    "rest",
    ["", "user", "user/a/client-id", "nobody/a", "client-id/a/user/b", "user/a/user/b", "user/<x>", "ip/::1"],
)
def test_what_is_no_key_of_an_entity_is_refused(rest: str) -> None:
    with pytest.raises(UnknownKey):
        KEYS.parse_quota(KEYS.quotas + rest.encode())


@pytest.mark.parametrize("rest", ["", "a", "a/PLAIN", "a/b/SCRAM-SHA-256", "SCRAM-SHA-256"])
def test_what_is_no_key_of_a_user_is_refused(rest: str) -> None:
    with pytest.raises(UnknownKey):
        KEYS.parse_user(KEYS.users + rest.encode())


@pytest.mark.parametrize(
    "key", [b"/kafscale/other/user/a/SCRAM-SHA-256", b"/kafscale/prod/user/\xff/SCRAM-SHA-256"]
)
def test_keys_of_others_are_refused(key: bytes) -> None:
    with pytest.raises(UnknownKey):
        KEYS.parse_user(key)


@given(acls, acls)
def test_an_acl_comes_back_and_equal_acls_have_one_key(one: AclBinding, other: AclBinding) -> None:
    assert decode_acl(acl_hash(one), encode_acl(one)) == one
    assert (acl_hash(one) == acl_hash(other)) == (one == other)


def test_the_hash_keeps_fields_apart() -> None:
    moved = replace(ACL, resource_name="orde", principal=Principal("rsUser:alice"))
    assert acl_hash(moved) != acl_hash(ACL)


def test_an_acl_under_the_key_of_another_is_unreadable_and_denied() -> None:
    stored = replace(ACL, operation=Operation.WRITE)
    with pytest.raises(UnreadableAcl, match="key is that of another ACL") as caught:
        decode_acl(acl_hash(ACL), encode_acl(stored))
    assert caught.value.denial == denial_of(stored)


def test_an_acl_of_a_newer_schema_denies_what_it_names() -> None:
    record = store_pb2.Acl.FromString(encode_acl(ACL))
    record.schema = 2
    with pytest.raises(UnreadableAcl, match="schema 2") as caught:
        decode_acl(acl_hash(ACL), record.SerializeToString())
    assert caught.value.denial == replace(ACL, host="*", operation=Operation.ALL, permission=Permission.DENY)


def test_an_acl_without_its_principal_denies_everybody() -> None:
    record = store_pb2.Acl.FromString(encode_acl(ACL))
    record.principal = ""
    with pytest.raises(UnreadableAcl) as caught:
        decode_acl(acl_hash(ACL), record.SerializeToString())
    assert caught.value.denial is not None
    assert caught.value.denial.principal == "User:*"


@pytest.mark.parametrize("value", [b"", b"\xff\xff", store_pb2.Acl(schema=1).SerializeToString()])
def test_bytes_that_name_nothing_deny_nothing(value: bytes) -> None:
    with pytest.raises(UnreadableAcl) as caught:
        decode_acl(acl_hash(ACL), value)
    assert caught.value.denial is None


@given(
    st.dictionaries(
        st.sampled_from(
            [QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.CONTROLLER_MUTATION_RATE]
        ),
        st.integers(1, 2**40).map(float),
    )
)
def test_quotas_come_back(values: dict[QuotaKey, float]) -> None:
    entity = QuotaEntity(user="alice")
    assert decode_quotas(entity, encode_quotas(values)) == values


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        (QuotaEntity(user="a"), {"nonsense": 1.0}),
        (QuotaEntity(user="a"), {"producer_byte_rate": 0.0}),
        (QuotaEntity(user="a"), {"producer_byte_rate": float("nan")}),
        (QuotaEntity(ip="10.0.0.1"), {"producer_byte_rate": 1.0}),
        (QuotaEntity(ip="nowhere"), {"connection_creation_rate": 1.0}),
    ],
)
def test_quotas_that_kafka_would_refuse_are_unreadable(entity: QuotaEntity, values: dict[str, float]) -> None:
    with pytest.raises(CorruptValue, match="quota record"):
        decode_quotas(entity, store_pb2.ClientQuota(schema=1, values=values).SerializeToString())


@given(mechanisms, st.binary(max_size=40), st.integers(4_096, 5_000))
def test_a_credential_comes_back(mechanism: ScramMechanism, salt: bytes, iterations: int) -> None:
    size = len(mechanism.hash(b""))
    credential = ScramCredential(
        mechanism=mechanism, salt=salt, stored_key=b"s" * size, server_key=b"k" * size, iterations=iterations
    )
    assert decode_credential("alice", mechanism, encode_credential(credential)) == credential


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_credential_of_the_other_mechanism_is_unreadable(mechanism: ScramMechanism) -> None:
    (other,) = set(ScramMechanism) - {mechanism}
    stored = encode_credential(credential_of_password(other, "secret", salt=b"salt"))
    with pytest.raises(CorruptValue, match=mechanism.sasl_name):
        decode_credential("alice", mechanism, stored)


def test_no_error_shows_a_key() -> None:
    credential = credential_of_password(ScramMechanism.SCRAM_SHA_256, "secret", salt=b"the-salt")
    record = store_pb2.ScramCredential.FromString(encode_credential(credential))
    record.iterations = 0
    with pytest.raises(CorruptValue) as corrupt:
        decode_credential("alice", ScramMechanism.SCRAM_SHA_256, record.SerializeToString())
    record.schema = 9
    with pytest.raises(UnknownSchema) as newer:
        decode_credential("alice", ScramMechanism.SCRAM_SHA_256, record.SerializeToString())
    for text in (str(corrupt.value), str(newer.value), repr(credential)):
        assert "the-salt" not in text
        assert credential.stored_key.hex() not in text
        assert repr(credential.stored_key) not in text
