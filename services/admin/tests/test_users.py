"""SCRAM credentials of users (KIP-554): stored as keys, altered and described with Kafka's errors, and bounded."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import structlog
from kafscale.access.scram_credentials import ScramMechanism, credential_of_salted
from kafscale.admin.handlers import alter_user_scram_credentials, describe_user_scram_credentials
from kafscale.storage.access_records import decode_credential
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, UnknownKind
from kafscale.storage.keys import Keyspace
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import alter_user_scram_credentials as alter
from kafscale.wire.schema import describe_user_scram_credentials as describe

from services.admin.tests.harness import Admin, running

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SALTED = b"the salted password of alice...."
SALT = b"the salt"
OK = (0, None)
TWICE = (
    ErrorCode.DUPLICATE_RESOURCE,
    "A user credential cannot be altered twice in the same request",
)
MISSING = (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")


def upsertion(
    name: str = "alice", mechanism: int = SHA_256, *, iterations: int = 4_096, salt: bytes = SALT
) -> alter.AlterUserScramCredentialsRequestCredentialUpsertion:
    return alter.AlterUserScramCredentialsRequestCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=SALTED
    )


def deletion(
    name: str = "alice", mechanism: int = SHA_256
) -> alter.AlterUserScramCredentialsRequestCredentialDeletion:
    return alter.AlterUserScramCredentialsRequestCredentialDeletion(name=name, mechanism=mechanism)


async def altered(admin: Admin, *changes: Any) -> dict[str, tuple[int, str | None]]:
    """The result of each user."""
    is_deletion = [
        isinstance(each, alter.AlterUserScramCredentialsRequestCredentialDeletion) for each in changes
    ]
    request = alter.AlterUserScramCredentialsRequest(
        deletions=[each for each, removes in zip(changes, is_deletion, strict=True) if removes],
        upsertions=[each for each, removes in zip(changes, is_deletion, strict=True) if not removes],
    )
    answer = await admin.ask(alter_user_scram_credentials, alter, request, 0)
    found = {each.user: (each.error_code, each.error_message) for each in answer.results}
    assert len(found) == len(answer.results)
    return found


async def answer_about(admin: Admin, *users: str, everybody: bool = False) -> Any:
    names = [describe.DescribeUserScramCredentialsRequestName(name=user) for user in users]
    request = describe.DescribeUserScramCredentialsRequest(users=None if everybody else names)
    return await admin.ask(describe_user_scram_credentials, describe, request, 0)


async def described(admin: Admin, *users: str, everybody: bool = False) -> dict[str, Any]:
    """By user: mechanisms with their iterations, or the error."""
    answer = await answer_about(admin, *users, everybody=everybody)
    assert (answer.error_code, answer.error_message) == (0, "")
    return {
        each.user: (each.error_code, each.error_message)
        if each.error_code
        else {info.mechanism: info.iterations for info in each.credential_infos}
        for each in answer.results
    }


async def test_what_is_stored_is_the_two_keys_and_never_the_salted_password(admin: Admin) -> None:
    assert await altered(admin, upsertion(mechanism=SHA_512, iterations=5_000)) == {"alice": OK}
    (kv,) = [
        kv
        for kv in (await admin.etcd.prefix(admin.access.keys.users)).kvs
        if kv.key != admin.access.keys.users
    ]
    assert kv.key == admin.access.keys.user("alice", SHA_512)
    assert SALTED not in kv.value
    wanted = credential_of_salted(SHA_512, SALTED, salt=SALT, iterations=5_000)
    assert decode_credential("alice", SHA_512, kv.value) == wanted


async def test_users_are_described_by_name_or_all_of_them(admin: Admin) -> None:
    assert await described(admin, everybody=True) == {}
    await altered(admin, upsertion(), upsertion("bob", SHA_512, iterations=16_384))
    await altered(admin, upsertion(mechanism=SHA_512))
    everybody = {"alice": {1: 4_096, 2: 4_096}, "bob": {2: 16_384}}
    assert await described(admin, everybody=True) == everybody
    assert await described(admin) == everybody
    assert await described(admin, "bob", "nobody") == {
        "bob": {2: 16_384},
        "nobody": (
            ErrorCode.RESOURCE_NOT_FOUND,
            "Attempt to describe a user credential that does not exist: nobody",
        ),
    }


async def test_a_user_who_is_asked_for_twice_is_refused_once(admin: Admin) -> None:
    await altered(admin, upsertion())
    assert await described(admin, "alice", "alice", "alice") == {
        "alice": (
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: alice",
        )
    }


async def test_a_new_password_replaces_the_old_one_of_its_mechanism_alone(admin: Admin) -> None:
    await altered(admin, upsertion())
    await altered(admin, upsertion(mechanism=SHA_512))
    assert await altered(admin, upsertion(iterations=8_192)) == {"alice": OK}
    assert await described(admin, "alice") == {"alice": {1: 8_192, 2: 4_096}}
    assert await altered(admin, deletion()) == {"alice": OK}
    assert await described(admin, "alice") == {"alice": {2: 4_096}}
    assert await altered(admin, deletion()) == {"alice": MISSING}
    assert await altered(admin, deletion(mechanism=SHA_512)) == {"alice": OK}
    assert await described(admin, everybody=True) == {}


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (upsertion(iterations=4_095), 93, "Too few iterations"),
        (upsertion(iterations=16_385), 93, "Too many iterations"),
        (upsertion(""), 93, "Username must not be empty"),
        (deletion(""), 93, "Username must not be empty"),
        (upsertion(mechanism=0), 33, "Unknown SCRAM mechanism"),
        (upsertion(mechanism=3), 33, "Unknown SCRAM mechanism"),
        (deletion(mechanism=3), 33, "Unknown SCRAM mechanism"),
        (upsertion("n" * 1_025), 93, "The username has more than 1024 characters"),
        (upsertion(salt=b"s" * 1_025), 93, "The salt has more than 1024 bytes"),
        (deletion("nobody"), *MISSING),
    ],
)
async def test_what_kafka_refuses_is_refused_and_hinders_no_other_user(
    admin: Admin, change: Any, code: int, message: str
) -> None:
    assert await altered(admin, change, upsertion("bob")) == {change.name: (code, message), "bob": OK}
    assert list(await described(admin, everybody=True)) == ["bob"]


@pytest.mark.parametrize(
    "changes",
    [
        (upsertion(), upsertion(mechanism=SHA_512)),
        (deletion(), upsertion(mechanism=SHA_512)),
        (deletion(), deletion(mechanism=SHA_512)),
        (upsertion(), upsertion(), upsertion()),
        (deletion(), upsertion(iterations=1)),
    ],
)
async def test_of_a_user_with_two_alterations_nothing_is_altered(admin: Admin, changes: Any) -> None:
    await altered(admin, upsertion(iterations=5_000))
    await altered(admin, upsertion(mechanism=SHA_512, iterations=5_000))
    assert await altered(admin, *changes) == {"alice": TWICE}
    assert await described(admin, "alice") == {"alice": {1: 5_000, 2: 5_000}}


async def test_the_first_error_of_a_user_counts(admin: Admin) -> None:
    assert await altered(admin, deletion(), upsertion()) == {"alice": MISSING}
    assert await altered(admin, upsertion(iterations=1), upsertion()) == {"alice": (93, "Too few iterations")}
    assert await described(admin, everybody=True) == {}


async def test_more_users_than_one_transaction_takes_are_all_stored(admin: Admin) -> None:
    users = [f"user-{number}" for number in range(250)]
    assert await altered(admin, *map(upsertion, users)) == dict.fromkeys(users, OK)
    assert sorted(await described(admin, everybody=True)) == sorted(users)


async def test_too_many_alterations_at_once_are_refused(admin: Admin) -> None:
    users = [f"user-{number}" for number in range(1_001)]
    refused = (ErrorCode.INVALID_REQUEST, "A request may alter 1000 credentials at most")
    assert await altered(admin, *map(upsertion, users)) == dict.fromkeys(users, refused)
    assert await described(admin, everybody=True) == {}


async def test_no_more_credentials_than_allowed_are_stored(etcd: EtcdClient, keyspace: Keyspace) -> None:
    async with running(Admin(etcd, keyspace, {"users_max": 2})) as admin:
        outcome = await altered(admin, *map(upsertion, "abc"))
        assert [outcome[name][0] for name in "abc"] == [0, 0, ErrorCode.POLICY_VIOLATION]
        assert outcome["c"][1] == "The cluster may have 2 SCRAM credentials (KAFSCALE_USERS_MAX)."
        assert await altered(admin, upsertion("a", iterations=5_000)) == {"a": OK}
        assert (await altered(admin, upsertion("a", SHA_512)))["a"][0] == ErrorCode.POLICY_VIOLATION
        assert await altered(admin, deletion("b")) == {"b": OK}
        assert await altered(admin, upsertion("c")) == {"c": OK}


async def test_a_full_etcd_takes_no_new_user_and_still_a_new_password(admin: Admin) -> None:
    await altered(admin, upsertion())
    admin.space.used_bytes = int(0.7 * admin.space.quota_bytes)
    outcome = await altered(admin, upsertion(iterations=5_000), upsertion("bob"))
    assert [outcome[name][0] for name in ("alice", "bob")] == [0, ErrorCode.POLICY_VIOLATION]
    admin.space.used_bytes = int(0.8 * admin.space.quota_bytes)
    assert (await altered(admin, upsertion()))["alice"][0] == ErrorCode.POLICY_VIOLATION
    assert await altered(admin, deletion()) == {"alice": OK}


async def test_a_damaged_credential_is_an_error_of_its_user_alone_and_is_not_replaced(admin: Admin) -> None:
    key = admin.access.keys.user("alice", SHA_256)
    written = await admin.etcd.put(key, b"\xff\xff")
    await admin.access.views["users"].wait_revision(written.revision, 10)
    await altered(admin, upsertion("bob"))
    found = await described(admin, everybody=True)
    assert found["alice"][0] == ErrorCode.KAFKA_STORAGE_ERROR
    assert found["bob"] == {1: 4_096}
    for change in (upsertion(), deletion()):
        outcome = await altered(admin, change, upsertion("carol"))
        assert (outcome["alice"][0], outcome["carol"]) == (ErrorCode.KAFKA_STORAGE_ERROR, OK)
    kv = await admin.etcd.get(key)
    assert kv is not None
    assert kv.value == b"\xff\xff"
    assert await altered(admin, upsertion(mechanism=SHA_512)) == {"alice": OK}


async def test_another_admin_in_between_is_no_error(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Admin(admin.etcd, admin.keys)
    txn = admin.etcd.txn
    raced = False

    async def race(*args: Any, **kwargs: Any) -> Any:
        nonlocal raced
        if not raced:
            raced = True
            async with running(other):
                assert await altered(other, upsertion(iterations=6_000)) == {"alice": OK}
        return await txn(*args, **kwargs)

    await altered(admin, upsertion())
    monkeypatch.setattr(admin.etcd, "txn", race)
    assert await altered(admin, upsertion(iterations=7_000)) == {"alice": OK}
    assert await described(admin, "alice") == {"alice": {1: 7_000}}


async def test_etcd_away_is_a_timeout_for_every_user(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise EtcdUnknown(UnknownKind.UNAVAILABLE, "away")

    monkeypatch.setattr(admin.etcd, "ranges", away)
    outcome = await altered(admin, upsertion(), deletion("bob"))
    assert {name: code for name, (code, _) in outcome.items()} == dict.fromkeys(
        ("alice", "bob"), ErrorCode.REQUEST_TIMED_OUT
    )
    answer = await answer_about(admin, everybody=True)
    assert (answer.error_code, answer.results) == (ErrorCode.REQUEST_TIMED_OUT, [])


async def test_an_answer_that_would_be_too_large_is_refused(etcd: EtcdClient, keyspace: Keyspace) -> None:
    async with running(Admin(etcd, keyspace, {"answer_bytes_max": 1 << 20})) as admin:
        names = [f"{number:04}{'n' * 1_000}" for number in range(500)]
        await altered(admin, *map(upsertion, names))
        answer = await answer_about(admin, everybody=True)
        assert (answer.error_code, answer.results) == (ErrorCode.INVALID_REQUEST, [])
        assert "KAFSCALE_ANSWER_BYTES_MAX" in answer.error_message
        assert len(await described(admin, *names[:300])) == 300


async def test_no_log_line_shows_a_secret(
    admin: Admin, capfd: pytest.CaptureFixture[str], caplog: Any
) -> None:
    with caplog.at_level(logging.DEBUG):
        await altered(admin, upsertion(), upsertion("bob", iterations=1), deletion("carol"))
        await admin.etcd.put(admin.access.keys.user("alice", SHA_256), b"\xff" + SALTED)
        await altered(admin, upsertion())
    said = caplog.text + "".join(capfd.readouterr())
    assert "alice" in said
    stored = credential_of_salted(SHA_256, SALTED, salt=SALT, iterations=4_096)
    for secret in (SALTED, SALT, stored.stored_key, stored.server_key):
        assert repr(secret)[2:-1] not in said
        assert secret.hex() not in said


async def test_the_audit_log_has_who_altered_which_credential_and_nothing_of_it(admin: Admin) -> None:
    with structlog.testing.capture_logs() as logs:
        await altered(admin, upsertion(), upsertion("bob", iterations=1), deletion("carol"))
        await altered(admin, deletion())
    lines = [one for one in logs if one["event"] == "altered"]
    assert [(one["change"], one["target"], one["outcome"]) for one in lines] == [
        ("store credential", "alice SCRAM-SHA-256", "NONE"),
        ("delete credential", "alice SCRAM-SHA-256", "NONE"),
    ]
    assert {(one["principal"], one["host"]) for one in lines} == {("User:ANONYMOUS", "127.0.0.1")}
    assert SALT.decode(errors="replace") not in str(logs)
    assert str(SALTED) not in str(logs)
