"""Rights in etcd that an older version did not give: they are tried by what they are needed for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.transactions.rights import has_rights, needs_rights
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown
from kafscale.storage.etcd.users import EtcdUsers
from kafscale.storage.keys import Keyspace
from kafscale.storage.rights import Role
from kafscale.storage.rights.etcd import (
    FOR_TRANSACTIONS,
    Permission,
    identity,
    read_for_transactions,
    rights_of,
)
from kafscale.testkit.etcd import give_users, start_etcd
from running_service import service, settings_for

PASSWORD = "correct horse"
KEYS = Keyspace("older")
NEEDED = [(role, each) for role in FOR_TRANSACTIONS for each in read_for_transactions(KEYS, role)]


@pytest_asyncio.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[EtcdProcess]:
    """With a user for each role that transactions need, and all rights of this version."""
    with start_etcd(tmp_path, extra=("--bcrypt-cost=4",)) as server:
        await give_users(server.endpoint, KEYS, FOR_TRANSACTIONS, PASSWORD)
        yield server


@asynccontextmanager
async def users_of(guarded: EtcdProcess) -> AsyncIterator[EtcdUsers]:
    """As root."""
    users = EtcdUsers(EtcdClient.connect([guarded.endpoint], user="root", password=PASSWORD).access)
    yield users
    await users.close()


async def granted(guarded: EtcdProcess, role: Role) -> bool:
    client = EtcdClient.connect([guarded.endpoint], user=identity(KEYS, role), password=PASSWORD)
    try:
        return await has_rights(client, KEYS, role)
    finally:
        await client.close()


async def test_a_role_takes_part_exactly_while_it_may_read_all_that_transactions_need(
    guarded: EtcdProcess,
) -> None:
    assert [await granted(guarded, role) for role in FOR_TRANSACTIONS] == [True] * len(FOR_TRANSACTIONS)
    async with users_of(guarded) as users:
        for role, keys in NEEDED:
            name = identity(KEYS, role)
            await users.revoke(name, keys)
            assert not await granted(guarded, role), keys
            await users.grant(name, keys, Permission.READ)
            assert await granted(guarded, role), keys


async def test_a_service_without_these_rights_serves_all_but_transactions_and_says_so(
    guarded: EtcdProcess,
) -> None:
    """Rights are those of an older version, and the service was replaced first."""
    name = identity(KEYS, Role.PRODUCE)
    (keys, *_) = read_for_transactions(KEYS, Role.PRODUCE)
    settings = settings_for(guarded.endpoint, KEYS, ETCD_USER=name, ETCD_PASSWORD=PASSWORD, TRANSACTIONS="1")
    metric = "kafscale_produce_transactions_without_rights"
    for missing in (True, False):
        async with users_of(guarded) as users:
            if missing:
                await users.revoke(name, keys)
            else:
                await users.grant(name, keys, Permission.READ)
        async with service(settings) as running:
            await running.logged("ready")
            assert (await running.logged("built"))["transactions"] is not missing
            said = [line for line in running.lines if str(line["event"]).startswith("transactions off")]
            assert [(line["user"], "etcd-roles --apply" in str(line["do"])) for line in said] == [
                (name, True)
            ] * missing
            _, metrics = await running.http("/metrics")
            assert f"{metric} {float(missing)}" in metrics


async def test_an_etcd_that_does_not_answer_refuses_nothing() -> None:
    client = EtcdClient.connect(["http://127.0.0.1:1"])
    with pytest.raises(EtcdUnknown):
        await has_rights(client, KEYS, Role.PRODUCE)
    await client.close()


def test_only_roles_of_which_transactions_need_something_are_asked() -> None:
    assert {role for role in Role if needs_rights(role)} == {Role.PRODUCE, Role.COORDINATOR}
    assert len(NEEDED) == 6
    for role, keys in NEEDED:
        assert rights_of(KEYS, role)[keys] is not Permission.WRITE
