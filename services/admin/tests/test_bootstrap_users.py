"""The file of first users: created once, never replaced, and never quoted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafscale.access.scram_credentials import ScramMechanism, password_matches
from kafscale.admin import bootstrap_users
from kafscale.admin.bootstrap_users import UsersFileWrong, bootstrap, read_users
from kafscale.storage.access_records import decode_credential
from kafscale.storage.etcd.client import EtcdUnknown, UnknownKind
from kafscale.storage.user_writes import create_user, credentials_for, replace_credentials

from services.admin.tests.harness import Admin

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
SECRET = "p:ss wörd#"


def written(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "users"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


async def fits(admin: Admin, name: str, mechanism: ScramMechanism, password: str) -> bool:
    found = await admin.etcd.get(admin.access.keys.user(name, mechanism))
    return found is not None and password_matches(decode_credential(name, mechanism, found.value), password)


def test_a_line_is_a_name_and_a_password_that_may_contain_anything(tmp_path: Path) -> None:
    path = written(tmp_path, f"# first users\n\nadmin:{SECRET}\r\nspark: x \n")
    assert read_users(path) == {"admin": SECRET, "spark": " x "}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("admin:a\nsecretword", "line 2: not NAME:PASSWORD"),
        (":secretword", "line 1: not NAME:PASSWORD"),
        ("admin:", "line 1: not NAME:PASSWORD"),
        ("n" * 1_025 + ":secretword", "line 1: not NAME:PASSWORD"),
        ("admin:a\nadmin:secretword", "line 2: its user has a line already"),
        (b"admin:secretword\xff", "not UTF-8"),
        ("#" * (1 << 20) + "\nadmin:secretword", "more than 1048576 bytes"),
    ],
)
def test_a_wrong_file_is_refused_without_its_content(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(UsersFileWrong) as caught:
        read_users(written(tmp_path, content))
    assert message in str(caught.value)
    assert "secretword" not in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsersFileWrong, match="No such file"):
        read_users(tmp_path / "nothing")


def test_the_number_of_first_users_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap_users, "USERS_MAX", 2)
    with pytest.raises(UsersFileWrong, match="3 users, 2 at most"):
        read_users(written(tmp_path, "a:1\nb:2\nc:3\n"))


async def test_first_users_are_created_once_with_both_mechanisms(admin: Admin) -> None:
    keys = admin.access.keys
    await bootstrap(admin.etcd, keys, {"admin": SECRET, "spark": "x"})
    assert [await fits(admin, "admin", each, SECRET) for each in ScramMechanism] == [True, True]
    await replace_credentials(admin.etcd, keys, "admin", credentials_for("changed", [SHA_256]))
    await admin.etcd.delete(keys.user("spark", SHA_256))
    await bootstrap(admin.etcd, keys, {"admin": SECRET, "spark": "y"})
    assert await fits(admin, "admin", SHA_256, "changed")
    assert await fits(admin, "spark", SHA_512, "x")
    assert await admin.etcd.get(keys.user("spark", SHA_256)) is None
    await admin.access.confirm()
    assert sorted(admin.access.users) == ["admin", "spark"]


async def test_nothing_is_written_if_the_first_users_exist(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full etcd refuses every write, and an admin has to start all the same."""
    await bootstrap(admin.etcd, admin.access.keys, {"admin": SECRET})

    async def full(*_: Any, **__: Any) -> Any:
        raise AssertionError("it writes")

    monkeypatch.setattr(admin.etcd, "txn", full)
    await bootstrap(admin.etcd, admin.access.keys, {"admin": SECRET})


async def test_first_users_wait_for_etcd(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    txn, failures = admin.etcd.txn, iter([True, False])

    async def away_at_first(*args: Any, **kwargs: Any) -> Any:
        if next(failures):
            raise EtcdUnknown(UnknownKind.UNAVAILABLE, "away")
        return await txn(*args, **kwargs)

    monkeypatch.setattr(admin.etcd, "txn", away_at_first)
    await bootstrap(admin.etcd, admin.access.keys, {"admin": SECRET})
    assert await fits(admin, "admin", SHA_256, SECRET)


async def test_a_user_who_exists_is_not_created_again_even_if_damaged(admin: Admin) -> None:
    keys = admin.access.keys
    await admin.etcd.put(keys.user("admin", SHA_512), b"\xff")
    assert not await create_user(admin.etcd, keys, "admin", credentials_for(SECRET, [SHA_256]))
    assert await admin.etcd.get(keys.user("admin", SHA_256)) is None


async def test_a_password_is_replaced_for_the_mechanisms_that_the_user_has(admin: Admin) -> None:
    keys = admin.access.keys
    assert await replace_credentials(admin.etcd, keys, "admin", credentials_for(SECRET)) == []
    assert await create_user(admin.etcd, keys, "admin", credentials_for("old", [SHA_512]))
    assert await replace_credentials(admin.etcd, keys, "admin", credentials_for(SECRET)) == [SHA_512]
    assert await fits(admin, "admin", SHA_512, SECRET)
    assert await admin.etcd.get(keys.user("admin", SHA_256)) is None


def test_two_users_with_one_password_have_different_salts() -> None:
    salts = {each.salt for _ in range(2) for each in credentials_for("same", iterations=4_096)}
    assert len(salts) == 4
