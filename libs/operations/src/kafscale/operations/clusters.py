"""Opens a command's cluster: a running one, a stopped data directory, or the one that KAFSCALE_* names."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafscale.operations.datadir import DataDir, started_etcd
from kafscale.operations.sentences import Trouble
from kafscale.operations.target import DEFAULT_DATA_DIR, StoreKind, Target
from kafscale.runtime.dependencies import connect_etcd, etcd_need, open_object_store
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.settings_load import read_settings
from kafscale.storage.etcd.client import EtcdClient, EtcdError, EtcdRejected, EtcdUnknown
from kafscale.storage.etcd.transport import BadEndpoint
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import ObjectStore

ETCD_VARIABLE: Final = "KAFSCALE_ETCD_ENDPOINTS"
ETCD_TRIES: Final = 3
NO_ETCD: Final = "http://127.0.0.1:2379"
"""For settings of which only the store is used."""
ETCD_PAUSE_S: Final = 0.5


class NoCluster(Trouble):
    """There is no cluster at that place, or its etcd does not answer."""


@dataclass(frozen=True, slots=True)
class Cluster:
    etcd: EtcdClient
    keys: Keyspace
    store: ObjectStore
    settings: ServiceSettings


@dataclass(frozen=True, slots=True)
class Bucket:
    keys: Keyspace
    store: ObjectStore


@asynccontextmanager
async def opened_store(target: Target) -> AsyncIterator[Bucket]:
    """The object store of that cluster, without its etcd, which may be lost. Raises BadSettings and NoCluster."""
    root = chosen_dir(target.data_dir)
    if root is None:
        settings = read_settings(ServiceSettings, named(target.namespace))
    elif not root.is_dir():
        raise NoCluster(f"{root} is not a data directory of `kafscale up`: there is no such folder")
    else:
        settings = _settings(DataDir(root), NO_ETCD, target.namespace, target.store)
    store = open_object_store(settings)
    try:
        yield Bucket(Keyspace(settings.namespace), store)
    finally:
        await store.close()


def opened(target: Target, report: Callable[[str], None]) -> AbstractAsyncContextManager[Cluster]:
    """The cluster on the target's `data_dir`, running or stopped, or the one of the KAFSCALE_* settings.

    If neither is given, it is the cluster that runs on DEFAULT_DATA_DIR.

    If `namespace` is None, it is the namespace of the running cluster, or that of the settings.
    `store` says where the records of that directory are: in it, or in the S3 bucket that KAFSCALE_S3_* names.
    Raises NoCluster and BadSettings; NoCluster also if etcd stops answering while the cluster is open.
    """
    data_dir, namespace = chosen_dir(target.data_dir), target.namespace
    if data_dir is None:
        return _open(read_settings(ServiceSettings, named(namespace)))
    return _data_dir_cluster(data_dir, namespace, target.store, report)


def opened_running(target: Target) -> AbstractAsyncContextManager[Cluster]:
    """As `opened`, of a cluster that runs: of a stopped one, `opened` keeps the data directory from others. Raises
    NotRunning too."""
    if (root := chosen_dir(target.data_dir)) is not None:
        DataDir(root).must_run()
    return opened(target, lambda _: None)


def chosen_dir(given: Path | None) -> Path | None:
    """Without one, DEFAULT_DATA_DIR if a cluster runs on it and the environment names no etcd."""
    if given is None and ETCD_VARIABLE not in os.environ and DataDir(DEFAULT_DATA_DIR).running() is not None:
        return DEFAULT_DATA_DIR
    return given


@asynccontextmanager
async def _data_dir_cluster(
    root: Path, namespace: str | None, store: StoreKind, report: Callable[[str], None]
) -> AsyncIterator[Cluster]:
    data = DataDir(root)
    if not data.etcd.is_dir():
        raise NoCluster(f"{root} is not a data directory of `kafscale up`: it has no folder etcd/")
    running = data.running()
    if running is not None:
        async with _open(_settings(data, running.etcd, namespace or running.namespace, store)) as cluster:
            yield cluster
        return
    data.acquire()
    try:
        async with (
            started_etcd(data, report) as server,
            _open(_settings(data, server.endpoint, namespace, store)) as cluster,
        ):
            yield cluster
    finally:
        data.release()


def _settings(data: DataDir, endpoint: str, namespace: str | None, store: StoreKind) -> ServiceSettings:
    given = {
        **named(namespace),
        "etcd_endpoints": (endpoint,),
        "object_store": store,
        "object_dir": data.objects if store is StoreKind.DIR else None,
    }
    return read_settings(ServiceSettings, given)


def etcd_settings(data_dir: Path | None, endpoints: str | None, namespace: str | None) -> ServiceSettings:
    """For operations that need etcd alone. The given endpoints, or those of the cluster that runs on the directory, or
    those of the KAFSCALE_* settings. Raises NotRunning, DataDirUnusable and BadSettings."""
    found = named(namespace)
    if endpoints is not None:
        found |= {"etcd_endpoints": endpoints}
    elif (root := chosen_dir(data_dir)) is not None:
        running = DataDir(root).must_run()
        found = {"namespace": running.namespace} | found | {"etcd_endpoints": running.etcd}
    return read_settings(ServiceSettings, found)


def named(namespace: str | None) -> dict[str, object]:
    """The setting of --namespace, if it is given."""
    return {} if namespace is None else {"namespace": namespace}


@asynccontextmanager
async def _open(settings: ServiceSettings) -> AsyncIterator[Cluster]:
    async with opened_etcd(settings) as etcd:
        store = open_object_store(settings)
        try:
            yield Cluster(etcd, Keyspace(settings.namespace), store, settings)
        finally:
            await store.close()


@asynccontextmanager
async def opened_etcd(settings: ServiceSettings) -> AsyncIterator[EtcdClient]:
    """A client that has had an answer. Commands read and retry, so for them an unknown outcome is a missing answer."""
    where = f"etcd at {', '.join(settings.etcd_endpoints)}"
    try:
        etcd = connect_etcd(settings)
    except (BadEndpoint, OSError) as wrong:
        raise NoCluster(f"{where}: {wrong}") from wrong
    try:
        await _answered(settings, etcd, where)
        yield etcd
    except (EtcdUnknown, ExceptionGroup) as away:  # the second is a task group's
        if isinstance(away, ExceptionGroup) and away.subgroup(EtcdUnknown) is None:
            raise
        raise NoCluster(f"{where} does not answer any more; try again when it is back") from away
    finally:
        await etcd.close()


def _or_directory(settings: ServiceSettings) -> str:
    """What else a user can do who named neither a directory nor an etcd."""
    default = ServiceSettings.model_fields["etcd_endpoints"].default
    if settings.etcd_endpoints != default or chosen_dir(None) is not None:
        return ""
    return (
        f"; or name the directory of `kafscale up` with --data-dir: no cluster runs on ./{DEFAULT_DATA_DIR}"
    )


async def _answered(settings: ServiceSettings, etcd: EtcdClient, where: str) -> None:
    need = etcd_need(settings, etcd, Keyspace(settings.namespace))
    for left in reversed(range(ETCD_TRIES)):
        try:
            await need.probe()
        except EtcdRejected as refused:
            raise NoCluster(f"{where} refuses: {refused.detail}; look at KAFSCALE_ETCD_*") from refused
        except EtcdError as away:
            if not left:
                raise NoCluster(f"{where} does not answer; {need.remedy}{_or_directory(settings)}") from away
            await asyncio.sleep(ETCD_PAUSE_S)
        else:
            return
