"""`kafscale spark`: questions and upkeep that need no broker, straight from etcd and the object store."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

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
    from kafscale.lake.catalog import Lake

T = TypeVar("T")
LAG_COLUMNS: Final = (
    "group",
    "topic",
    "partition",
    "committed",
    "log_end",
    "records",
    "bytes",
    "time_ms",
    "lost",
    "expires_in_ms",
)
app = typer.Typer(
    name="spark",
    help="Query topics straight from the object store: no broker is asked.",
    no_args_is_help=True,
)


@app.command()
def lag(
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = "default",
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how far behind each group is: in records, bytes and time, and when what it has not read will be gone."""
    rows = _run(_lag, data_dir, namespace, store)
    show_rows(LAG_COLUMNS, rows, output)


async def _lag(lake: Lake) -> list[dict[str, Any]]:
    from kafscale.lake.catalog import read_lake
    from kafscale.lake.commits import read_commits
    from kafscale.lake.lag import measure

    logs = await read_lake(lake)
    commits = await read_commits(lake, {log.topic.name: log.topic for log in logs}.values())
    return [asdict(each) for each in await measure(lake, logs, commits, int(time.time() * 1000))]


@app.command()
def sql(
    text: Annotated[str, typer.Argument(help="One query over records, segments, partitions and topics.")],
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = "default",
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
) -> None:
    """Ask topics a question in SQL, of a cluster that runs or one that is stopped."""
    found = _run(partial(_query, text), data_dir, namespace, store)
    show_rows(found.column_names, found.to_pylist(), output)


async def _query(text: str, lake: Lake) -> pa.Table:
    from kafscale.lake.catalog import read_lake
    from kafscale.lake.sql import query

    return await query(lake, await read_lake(lake), text)


def _run(
    work: Callable[[Lake], Coroutine[Any, Any, T]], data_dir: Path | None, namespace: str, store: StoreKind
) -> T:
    """The work on the cluster that the options name; trouble is told in a sentence."""
    from kafscale.cli.clusters import NoCluster, opened
    from kafscale.lake.catalog import Lake
    from kafscale.lake.heads import CorruptSegment
    from kafscale.lake.sql import QueryFailed
    from kafscale.storage.etcd import EtcdError
    from kafscale.storage.objects import StoreError

    async def run() -> T:
        async with opened(data_dir, namespace, store.value, notice) as cluster:
            return await work(Lake(cluster.etcd, cluster.keys, cluster.store))

    try:
        return asyncio.run(run())
    except (NoCluster, DataDirBusy, EtcdMissing, EtcdFailed, QueryFailed) as trouble:
        raise fail(str(trouble)) from trouble
    except (EtcdError, StoreError, CorruptSegment) as trouble:
        raise fail(str(trouble)) from trouble
