"""A data directory as a stopped `kafscale up` leaves it, filled without starting one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kafscale.lake.catalog import Lake
from kafscale.operations.datadir import DataDir
from kafscale.runtime.dependencies import connect_etcd, open_object_store
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.etcd_program import find_etcd
from kafscale.runtime.settings import ServiceSettings
from kafscale.storage.keys import Keyspace


@asynccontextmanager
async def filling(root: Path) -> AsyncIterator[Lake]:
    """Open for the caller to fill; stopped at the end."""
    data = DataDir(root)
    data.acquire()
    server = EtcdProcess(find_etcd(data.tools, print), data.etcd, log_path=data.logs / "etcd.log")
    await server.start()
    settings = ServiceSettings(etcd_endpoints=(server.endpoint,), object_store="dir", object_dir=data.objects)
    etcd, store = connect_etcd(settings), open_object_store(settings)
    try:
        yield Lake(etcd, Keyspace("default"), store)
    finally:
        await store.close()
        await etcd.close()
        await server.stop()
        data.release()
