"""A small lake in a real etcd and a directory, and the children of a console that read it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from kafscale.console.direct.child_process import Work
from kafscale.console.direct.children import Children
from kafscale.operations.clusters import Cluster
from kafscale.operations.target import Target
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.settings_load import read_settings
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectStore
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records

Row = dict[str, Any]
SECRET = "the-secret-of-payroll"


@pytest_asyncio.fixture
async def cluster(
    etcd: EtcdClient, keyspace: Keyspace, directory_store: ObjectStore, tmp_path: Path
) -> Cluster:
    """Topics `orders`, with 3 segments of 100 records, and `payroll`, with one record."""
    orders = LogBuilder(etcd, keyspace, directory_store, await create_topic(etcd, keyspace, "orders"))
    for number in range(3):
        await orders.append(records(100, timestamp=10_000 * number, label=f"order-{number}-"))
    payroll = LogBuilder(etcd, keyspace, directory_store, await create_topic(etcd, keyspace, "payroll"))
    await payroll.append(records(1, label=SECRET))
    given = {"namespace": keyspace.namespace, "object_store": "dir", "object_dir": tmp_path / "objects"}
    return Cluster(etcd, keyspace, directory_store, read_settings(ServiceSettings, given))


@pytest_asyncio.fixture
async def children(
    cluster: Cluster, etcd_server: EtcdProcess, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Children]:
    """Processes that open this cluster."""
    monkeypatch.setenv("KAFSCALE_ETCD_ENDPOINTS", etcd_server.endpoint)
    monkeypatch.setenv("KAFSCALE_NAMESPACE", cluster.settings.namespace)
    monkeypatch.setenv("KAFSCALE_OBJECT_STORE", "dir")
    monkeypatch.setenv("KAFSCALE_OBJECT_DIR", str(cluster.settings.object_dir))
    found = Children(Target(None, None))
    yield found
    await found.close()


async def asked(children: Children, question: Row, session: str = "s") -> list[Row]:
    """The whole answer. Raises Problem."""
    return [line async for line in await children.ask(session, question)]


async def here(work: Work, cluster: Cluster, question: Row) -> list[Row]:
    """The answer of the same work in this process, which is faster."""
    lines: list[Row] = []
    await work(cluster, question, lines.append)
    return lines


def sql(text: str, *topics: str, parquet: bool = False) -> Row:
    """What a login asks that may read these topics."""
    readable = list(topics or ("orders",))
    return {
        "kind": "sql",
        "text": text,
        "isolation": "committed",
        "parquet": parquet,
        "topics": readable,
        "configs": readable,
        "groups": [],
    }


def rows(lines: list[Row]) -> list[list[Any]]:
    return [row for line in lines for row in line.get("rows", [])]
