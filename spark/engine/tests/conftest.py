"""One Spark session for all tests of a run, and a lake for each: a real etcd, objects in a directory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from kafscale.lake.catalog import Lake
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects.directory import DirectoryStore
from kafscale_spark.java import NoJava, ensure_java
from kafscale_spark.session import local
from lakes import World
from pyspark.sql import SparkSession


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """Without one the tests are skipped by name, and fail where CI is set, as those that need another toolchain."""
    try:
        ensure_java(print)
    except NoJava as missing:
        told = pytest.fail if os.environ.get("CI") else pytest.skip
        told(str(missing))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local("tests")
    yield session
    session.stop()


@pytest_asyncio.fixture
async def world(
    etcd: EtcdClient, etcd_server: EtcdProcess, keyspace: Keyspace, tmp_path: Path
) -> AsyncIterator[World]:
    store = DirectoryStore(tmp_path / "objects")
    yield World(
        lake=Lake(etcd, keyspace, store),
        objects=tmp_path / "objects",
        options={
            "kafscale.etcd_endpoints": etcd_server.endpoint,
            "kafscale.namespace": keyspace.namespace,
            "kafscale.object_store": "dir",
            "kafscale.object_dir": str(tmp_path / "objects"),
        },
    )
    await store.close()
