"""The admin service under test, with its views running."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from kafscale.storage.etcd import EtcdClient
from kafscale.storage.keys import Keyspace

from services.admin.tests.harness import Admin


@pytest_asyncio.fixture
async def admin(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[Admin]:
    admin = Admin(etcd, keyspace)
    views = (admin.topics, admin.front_doors, admin.owners)
    tasks = [asyncio.create_task(view.run()) for view in views]
    await admin.topics.ready()
    await admin.front_doors.loaded()
    await admin.owners.ready()
    yield admin
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
