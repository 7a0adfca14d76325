"""`kafscale spark`: questions and upkeep that need no broker, straight from etcd and the object store."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from kafscale.cli.datadir import DataDirBusy
from kafscale.cli.options import StoreKind
from kafscale.cli.terminal import (
    DataDirOption,
    NamespaceOption,
    Output,
    OutputOption,
    StoreOption,
    fail,
    notice,
    show_rows,
)
from kafscale.runtime.etcd_binary import EtcdFailed, EtcdMissing

if TYPE_CHECKING:
    import pyarrow as pa

app = typer.Typer(
    name="spark",
    help="Query topics straight from the object store: no broker is asked.",
    no_args_is_help=True,
)


@app.command()
def sql(
    text: Annotated[str, typer.Argument(help="One query over records, segments, partitions and topics.")],
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = "default",
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
) -> None:
    """Ask topics a question in SQL, of a cluster that runs or one that is stopped."""
    from kafscale.cli.clusters import NoCluster
    from kafscale.lake.heads import CorruptSegment
    from kafscale.lake.sql import QueryFailed
    from kafscale.storage.etcd import EtcdError
    from kafscale.storage.objects import StoreError

    try:
        found = asyncio.run(_query(text, data_dir, namespace, store))
    except (NoCluster, DataDirBusy, EtcdMissing, EtcdFailed) as trouble:
        raise fail(str(trouble)) from trouble
    except (EtcdError, StoreError, CorruptSegment, QueryFailed) as trouble:
        raise fail(str(trouble)) from trouble
    show_rows(found.column_names, found.to_pylist(), output)


async def _query(text: str, data_dir: Path | None, namespace: str, store: StoreKind) -> pa.Table:
    from kafscale.cli.clusters import opened
    from kafscale.lake.catalog import Lake, read_lake
    from kafscale.lake.sql import query

    async with opened(data_dir, namespace, store.value, notice) as cluster:
        lake = Lake(cluster.etcd, cluster.keys, cluster.store)
        return await query(lake, await read_lake(lake), text)
