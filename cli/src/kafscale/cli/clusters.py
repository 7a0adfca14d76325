"""Opens the cluster that a command is pointed at: a running one, a stopped data directory, or what KAFSCALE_* names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kafscale.cli.datadir import DataDir
from kafscale.runtime.etcd_binary import EtcdProcess, find_etcd
from kafscale.runtime.outside import connect_etcd, open_object_store
from kafscale.runtime.settings import ServiceSettings
from kafscale.storage.etcd import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectStore


class NoCluster(Exception):
    """There is no cluster where the caller pointed."""


@dataclass(frozen=True, slots=True)
class Cluster:
    etcd: EtcdClient
    keys: Keyspace
    store: ObjectStore
    settings: ServiceSettings


def opened(
    data_dir: Path | None, namespace: str, store: Literal["dir", "s3"], report: Callable[[str], None]
) -> AbstractAsyncContextManager[Cluster]:
    """The cluster on `data_dir`, running or stopped, or the one of the environment's settings.

    `store` says where the records of that directory are; an S3 is the one that KAFSCALE_S3_* names.
    """
    if data_dir is None:
        return _settings_cluster()
    return _data_dir_cluster(data_dir, namespace, store, report)


@asynccontextmanager
async def _settings_cluster() -> AsyncIterator[Cluster]:
    async with _open(ServiceSettings()) as cluster:
        yield cluster


@asynccontextmanager
async def _data_dir_cluster(
    root: Path, namespace: str, store: Literal["dir", "s3"], report: Callable[[str], None]
) -> AsyncIterator[Cluster]:
    data = DataDir(root)
    if not data.etcd.is_dir():
        raise NoCluster(f"{root} is no data directory of `kafscale up`: it has no folder etcd/")
    running = data.running()
    if running is not None:
        async with _open(_settings(data, running.etcd, running.namespace, store)) as cluster:
            yield cluster
        return
    data.acquire()
    try:
        server = EtcdProcess(find_etcd(data.tools, report), data.etcd, log_path=data.logs / "etcd.log")
        await server.start()
        try:
            async with _open(_settings(data, server.endpoint, namespace, store)) as cluster:
                yield cluster
        finally:
            await server.stop()
    finally:
        data.release()


def _settings(data: DataDir, endpoint: str, namespace: str, store: Literal["dir", "s3"]) -> ServiceSettings:
    return ServiceSettings(
        etcd_endpoints=(endpoint,),
        namespace=namespace,
        object_store=store,
        object_dir=data.objects if store == "dir" else None,
    )


@asynccontextmanager
async def _open(settings: ServiceSettings) -> AsyncIterator[Cluster]:
    etcd = connect_etcd(settings)
    try:
        store = open_object_store(settings)
        try:
            yield Cluster(etcd, Keyspace(settings.namespace), store, settings)
        finally:
            await store.close()
    finally:
        await etcd.close()
