"""`kafscale etcd-roles` and `kafscale s3-policy`.

Law: after --apply each role has exactly the table's rights and each user exactly its role, and a second run changes
nothing. No output contains a password.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kafscale.cli.__main__ import app
from kafscale.operations.rights import script
from kafscale.operations.services import ROLES
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage.etcd.client import EtcdClient, EtcdRejected
from kafscale.storage.etcd.users import EtcdUsers
from kafscale.storage.keys import Keyspace
from kafscale.storage.rights import INSTANCES, Role
from kafscale.storage.rights.etcd import KeyRange, Permission, identity, rights_of
from kafscale.testkit.etcd import start_etcd
from typer.testing import CliRunner, Result

KEYS = Keyspace("orders")
PRODUCE = identity(KEYS, Role.PRODUCE)
SECRET = "hush-"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EtcdProcess]:
    with start_etcd(tmp_path, extra=("--bcrypt-cost=4",)) as process:
        monkeypatch.setenv("KAFSCALE_ETCD_ENDPOINTS", process.endpoint)
        monkeypatch.setenv("KAFSCALE_NAMESPACE", KEYS.namespace)
        yield process


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    folder = tmp_path / "passwords"
    folder.mkdir()
    for name in (*Role, "root"):
        (folder / name).write_text(f"{SECRET}{name}\n")
    return folder


def run(*words: str) -> Result:
    result = CliRunner().invoke(app, words)
    assert SECRET not in result.output
    return result


def applied(passwords: Path, *words: str) -> list[str]:
    result = run("etcd-roles", "--apply", "--passwords", str(passwords), *words)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


@asynccontextmanager
async def users_of(
    server: EtcdProcess, user: str | None = None, password: str | None = None
) -> AsyncIterator[EtcdUsers]:
    users = EtcdUsers(EtcdClient.connect([server.endpoint], user=user, password=password).access)
    try:
        yield users
    finally:
        await users.close()


def as_root(passwords: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFSCALE_ETCD_USER", "root")
    monkeypatch.setenv("KAFSCALE_ETCD_PASSWORD_FILE", str(passwords / "root"))


def test_the_roles_are_those_of_the_processes() -> None:
    assert set(INSTANCES) == set(ROLES)


def test_an_etcd_gets_the_roles_and_the_users_and_a_second_run_changes_nothing(
    server: EtcdProcess, passwords: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = applied(passwords, "--enable-auth")
    assert lines[-1] == "authentication is enabled"
    assert f"user {PRODUCE} added" in lines
    as_root(passwords, monkeypatch)
    assert applied(passwords, "--enable-auth") == ["authentication is enabled"]
    assert applied(passwords) == []


async def test_what_was_changed_by_hand_is_put_right(
    server: EtcdProcess, passwords: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(applied, passwords, "--enable-auth")
    as_root(passwords, monkeypatch)
    wanted = rights_of(KEYS, Role.PRODUCE)
    heads = next(keys for keys in wanted if keys.first == KEYS.heads_prefix())
    more = KeyRange(b"/", b"0")
    async with users_of(server, user="root", password=f"{SECRET}root") as users:
        await users.revoke(PRODUCE, heads)
        await users.grant(
            PRODUCE, KeyRange(KEYS.topics_prefix(), b"/kafscale/orders/t0"), Permission.READWRITE
        )
        await users.grant(PRODUCE, more, Permission.READ)
        await users.grant_role(PRODUCE, "root")
        await users.change_password(PRODUCE, "another")
    assert sorted(await asyncio.to_thread(applied, passwords)) == [
        f"role {PRODUCE}: read granted from /kafscale/orders/t/",
        f"role {PRODUCE}: readwrite granted from /kafscale/orders/p/",
        f"role {PRODUCE}: revoked from /",
        f"user {PRODUCE}: password set",
        f"user {PRODUCE}: role root revoked",
    ]
    async with users_of(server, user="root", password=f"{SECRET}root") as users:
        assert await users.rights_of_role(PRODUCE) == wanted
        assert await users.roles_of_user(PRODUCE) == frozenset({PRODUCE})
    client = EtcdClient.connect([server.endpoint], user=PRODUCE, password=f"{SECRET}produce")
    await client.put(KEYS.heads_prefix() + b"x", b"")
    with pytest.raises(EtcdRejected, match="permission denied"):
        await client.put(KEYS.topic("x"), b"")
    await client.close()


def test_nothing_is_changed_if_a_password_is_missing(server: EtcdProcess, passwords: Path) -> None:
    (passwords / "upkeep").unlink()
    result = run("etcd-roles", "--apply", "--passwords", str(passwords))
    assert (result.exit_code, "put a password into the file upkeep" in result.output) == (1, True)
    (passwords / "upkeep").write_text("")
    result = run("etcd-roles", "--apply", "--passwords", str(passwords))
    assert (result.exit_code, "upkeep is empty" in result.output) == (1, True)

    async def held() -> tuple[object, object]:
        async with users_of(server) as users:
            return await users.rights_of_role(PRODUCE), await users.roles_of_user(PRODUCE)

    assert asyncio.run(held()) == (None, None)


def test_one_role_is_given_alone_and_a_known_user_needs_no_password(
    server: EtcdProcess, passwords: Path
) -> None:
    lines = applied(passwords, "--role", "fetch")
    assert lines
    assert all(identity(KEYS, Role.FETCH) in line for line in lines)
    assert run("etcd-roles", "--apply", "--role", "fetch").output == ""


def test_options_of_apply_alone_are_a_mistake(tmp_path: Path) -> None:
    assert run("etcd-roles", "--enable-auth").exit_code == 2
    assert run("etcd-roles", "--passwords", str(tmp_path)).exit_code == 2


def test_the_script_gives_each_role_its_rights_and_no_password() -> None:
    text = run("etcd-roles", "--namespace", "orders").output
    assert text == script(KEYS, list(Role))
    for role in Role:
        name = identity(KEYS, role)
        for keys, permission in rights_of(KEYS, role).items():
            span = f"{keys.first.decode()} {keys.end.decode()}".strip()
            assert f"\netcdctl role grant-permission {name} {permission.value} {span}\n" in text
        assert f'\netcdctl user add {name} --interactive=false < "$PASSWORDS/{role}"\n' in text
        assert f"\netcdctl user grant-role {name} {name}\n" in text
    assert "\netcdctl auth enable" not in text, "a process without a user would be locked out"


def test_a_policy_is_printed_for_the_bucket_and_none_for_a_role_that_needs_none() -> None:
    policy = json.loads(run("s3-policy", "fetch", "--bucket", "records").stdout)
    assert {statement["Action"] for statement in policy["Statement"]} == {"s3:ListBucket", "s3:GetObject"}
    result = run("s3-policy", "frontdoor")
    assert (result.exit_code, result.stdout, "give it no key" in result.stderr) == (0, "", True)
