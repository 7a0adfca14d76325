"""`kafscale fsck`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from kafscale.cli.options import StoreKind, Target
from kafscale.cli.targets import DataDirOption, NamespaceOption, StoreOption, on_cluster
from kafscale.cli.terminal import fail, progressing, report

if TYPE_CHECKING:
    from kafscale.cli.clusters import Cluster
    from kafscale.cli.fsck.run import Verdict


def fsck(
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    as_json: Annotated[bool, typer.Option("--json", "-J", help="One JSON object instead of lines.")] = False,
) -> None:
    """Check that etcd and the object store agree; exits 1 if they do not.

    Example: kafscale fsck --data-dir data. A stopped cluster can be checked as well as one that runs.
    """
    with progressing() as show:

        async def check(cluster: Cluster) -> Verdict:
            from kafscale.cli.fsck.run import Fsck

            return await Fsck(cluster.etcd, cluster.keys, cluster.store, show).run()

        verdict = on_cluster(check, Target(data_dir, namespace, store))
    if as_json:
        typer.echo(json.dumps(asdict(verdict) | {"clean": verdict.clean}, indent=1))
    else:
        _print(verdict)
    if not verdict.clean:
        raise fail(f"{len(verdict.problems)} problems: etcd and the object store do not agree")


def _print(verdict: Verdict) -> None:
    report(
        f"{verdict.topics} topics, {verdict.partitions} partitions, {verdict.segments} segments, "
        f"{verdict.records} records, {verdict.bytes} bytes, {len(verdict.orphans)} orphans (legal)"
    )
    if verdict.deleted:
        report(
            f"{verdict.deleted} segments of deleted records below a log start (legal), "
            f"{verdict.deleted_stored} of them still stored"
        )
    _print_bundles(verdict)
    for problem in verdict.problems:
        report(f"PROBLEM {problem.where}: {problem.what}")
    if verdict.clean:
        report("clean: etcd and the object store agree")


def _print_bundles(verdict: Verdict) -> None:
    found = verdict.bundles
    if found.stored:
        report(
            f"{found.stored} bundles: {found.named} named by heads, {found.pinned} that an owner may still commit "
            f"(legal), {found.dead} that wait for deletion (legal)"
        )
    if verdict.slices:
        report(f"{verdict.slices} segments are slices of bundles, {verdict.slice_bytes} bytes")
    for key, why in sorted(found.unreadable.items()):
        report(f"UNKNOWN {key}: {why}; no head names it, and upkeep does not delete it")
