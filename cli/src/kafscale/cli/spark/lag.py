"""`kafscale spark lag`."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from kafscale.cli.options import StoreKind
from kafscale.cli.spark.running import on_lake
from kafscale.cli.terminal import DataDirOption, NamespaceOption, Output, OutputOption, StoreOption, show_rows

if TYPE_CHECKING:
    from kafscale.lake.catalog import Lake

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


def lag(
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = "default",
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how far behind each group is: in records, bytes and time, and when what it has not read will be gone."""
    rows = on_lake(_lag, data_dir, namespace, store)
    show_rows(LAG_COLUMNS, rows, output)


async def _lag(lake: Lake) -> list[dict[str, Any]]:
    from kafscale.lake.catalog import read_lake
    from kafscale.lake.lag.commits import read_commits
    from kafscale.lake.lag.measure import measure

    logs = await read_lake(lake)
    commits = await read_commits(lake, {log.topic.name: log.topic for log in logs}.values())
    return [asdict(each) for each in await measure(lake, logs, commits, int(time.time() * 1000))]
