"""The admin service under test, with its views running."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace

from services.admin.tests.harness import Admin, running


@pytest_asyncio.fixture
async def admin(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[Admin]:
    async with running(Admin(etcd, keyspace)) as admin:
        yield admin
