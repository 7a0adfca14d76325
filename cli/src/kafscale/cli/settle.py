"""`kafscale settle`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer
from kafscale.cli.options import seconds
from kafscale.cli.targets import DataDirOption, NamespaceOption, StoreOption, on_cluster
from kafscale.cli.terminal import Output, OutputOption, fail, notice, progressing, show_rows
from kafscale.operations.sentences import counted
from kafscale.operations.target import StoreKind, Target

if TYPE_CHECKING:
    from kafscale.operations.clusters import Cluster
    from kafscale.operations.settle import Outcome

COLUMNS: Final = ("topic", "partition", "slices", "bytes", "why")


def settle(
    topics: Annotated[list[str] | None, typer.Argument(help="Only these topics.")] = None,
    timeout: Annotated[str, typer.Option(help="Give up after this time: 10m, 90s, 0s.")] = "10m",
    allow_newer: Annotated[
        bool, typer.Option("--allow-newer", help="Succeed although records written meanwhile are in bundles.")
    ] = False,
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
) -> None:
    """Move the records in bundles into segments now, and wait until none is left; exits 1 if some are.

    Use it for a tool that reads only the bucket and knows only segments. It finds all older records afterwards
    (--allow-newer), or all records if you first restart all produce instances with KAFSCALE_BUNDLE_DIRECT_BYTES=1.
    """
    timeout_s = seconds(timeout)
    with progressing() as show:

        async def work(cluster: Cluster) -> Outcome:
            from kafscale.operations.settle import Settle

            return await Settle(cluster.etcd, cluster.keys, show).run(topics or (), timeout_s)

        outcome = on_cluster(work, Target(data_dir, namespace, store))
    _show(outcome, allow_newer, output)


def _show(outcome: Outcome, allow_newer: bool, output: Output) -> None:
    left = [*outcome.left] if allow_newer else [*outcome.left, *outcome.newer]
    show_rows(COLUMNS, [asdict(each) for each in left], output)
    notice(f"settled {counted(outcome.settled, 'partition')}")
    if outcome.newer and allow_newer:
        notice(f"newer records of {counted(len(outcome.newer), 'partition')} are in bundles")
    if left:
        raise fail(f"records of {counted(len(left), 'partition')} are still in bundles")
