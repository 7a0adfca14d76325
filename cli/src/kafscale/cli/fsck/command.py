"""`kafscale fsck`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer
from kafscale.cli.options import StoreKind, Target
from kafscale.cli.targets import DataDirOption, NamespaceOption, StoreOption, on_cluster
from kafscale.cli.terminal import Output, OutputOption, counted, fail, progressing, report, show_rows

if TYPE_CHECKING:
    from kafscale.cli.clusters import Cluster
    from kafscale.cli.fsck.run import Verdict


def fsck(
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check that etcd and the object store agree; exits 1 if they do not.

    Example: kafscale fsck --data-dir data. A stopped cluster can be checked as well as one that runs.
    CSV has only the problems.
    """
    with progressing() as show:

        async def check(cluster: Cluster) -> Verdict:
            from kafscale.cli.fsck.run import Fsck

            return await Fsck(cluster.etcd, cluster.keys, cluster.store, show).run()

        verdict = on_cluster(check, Target(data_dir, namespace, store))
    match output:
        case Output.JSON:
            typer.echo(json.dumps(asdict(verdict) | {"clean": verdict.clean}, indent=1))
        case Output.CSV:
            show_rows(["where", "what"], [asdict(problem) for problem in verdict.problems], output)
        case Output.TABLE:
            _print(verdict)
    if not verdict.clean:
        raise fail(f"{counted(len(verdict.problems), 'problem')}: etcd and the object store do not agree")


def _print(verdict: Verdict) -> None:
    totals = (
        (verdict.topics, "topic"),
        (verdict.partitions, "partition"),
        (verdict.segments, "segment"),
        (verdict.records, "record"),
        (verdict.bytes, "byte"),
        (len(verdict.orphans), "orphan"),
    )
    report(f"{', '.join(counted(number, noun) for number, noun in totals)} (legal)")
    if verdict.deleted:
        report(
            f"{counted(verdict.deleted, 'segment')} of deleted records below a log start (legal), "
            f"{verdict.deleted_stored:,} of them still stored"
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
            f"{counted(found.stored, 'bundle')}: {found.named:,} named by heads, {found.pinned:,} that an owner may "
            f"still commit (legal), {found.dead:,} waiting for deletion (legal)"
        )
    if verdict.slices:
        report(
            f"{counted(verdict.slices, 'slice')} of bundles among the segments, {counted(verdict.slice_bytes, 'byte')}"
        )
    for key, why in sorted(found.unreadable.items()):
        report(f"UNKNOWN {key}: {why}; no head names it, and upkeep does not delete it")
