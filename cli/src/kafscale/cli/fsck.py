"""`kafscale fsck`, and what `--roll-forward` adds to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer
from kafscale.cli.consent import Way, agreed, chosen_way
from kafscale.cli.targets import DataDirOption, NamespaceOption, StoreOption, on_cluster
from kafscale.cli.terminal import (
    Output,
    OutputOption,
    fail,
    fail_usage,
    notice,
    progressing,
    report,
    show_rows,
)
from kafscale.operations.consent import ChangePlan
from kafscale.operations.positions import now_ms
from kafscale.operations.sentences import counted
from kafscale.operations.target import StoreKind, Target

if TYPE_CHECKING:
    from kafscale.operations.clusters import Cluster
    from kafscale.operations.fsck.run import Verdict
    from kafscale.storage.keys import TopicId

TOPIC_ID_DIGITS: Final = 32

ForwardOption = Annotated[
    bool,
    typer.Option(
        "--roll-forward",
        help="First rebuild topics and heads in etcd from the object store, after etcd was lost or restored from a "
        "snapshot. The cluster must be stopped. Shows the changes and asks.",
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="With --roll-forward: change nothing.")]
YesOption = Annotated[
    bool,
    typer.Option(
        "--yes",
        "-y",
        help="With --roll-forward: do not ask. Scripts need it: without a terminal nobody can answer.",
    ),
]
TopicNameOption = Annotated[
    list[str] | None,
    typer.Option(help="With --roll-forward: ID=NAME, the name of a topic that only bundles hold."),
]


def fsck(
    data_dir: DataDirOption = None,
    namespace: NamespaceOption = None,
    store: StoreOption = StoreKind.DIR,
    output: OutputOption = Output.TABLE,
    forward: ForwardOption = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    topic_name: TopicNameOption = None,
) -> None:
    """Check that etcd and the object store agree; exits 1 if they do not.

    Example: kafscale fsck --data-dir data. A stopped cluster can be checked as well as one that runs.
    CSV has only the problems.
    """
    if not forward and (dry_run or yes or topic_name):
        raise fail_usage("--dry-run, --yes and --topic-name need --roll-forward")
    names = topic_names(topic_name or ())
    way = chosen_way(dry_run=dry_run, yes=yes) if forward else None

    async def check(cluster: Cluster) -> Verdict | None:
        from kafscale.operations.fsck.run import Fsck

        if way is not None and not await roll_forward(cluster, way, names, output):
            return None
        with progressing() as show:
            return await Fsck(cluster.etcd, cluster.keys, cluster.store, show).run()

    verdict = on_cluster(check, Target(data_dir, namespace, store))
    if verdict is None:
        return
    _show(verdict, output)
    if not verdict.clean:
        raise fail(f"{counted(len(verdict.problems), 'problem')}: etcd and the object store do not agree")


def _show(verdict: Verdict, output: Output) -> None:
    match output:
        case Output.JSON:
            typer.echo(json.dumps(asdict(verdict) | {"clean": verdict.clean}, indent=1))
        case Output.CSV:
            show_rows(["where", "what"], [asdict(problem) for problem in verdict.problems], output)
        case Output.TABLE:
            _print(verdict)


def _print(verdict: Verdict) -> None:
    totals = (
        counted(verdict.topics, "topic"),
        f"{counted(verdict.partitions, 'partition')} with a head",  # a partition that was never written has none
        counted(verdict.segments, "segment"),
        counted(verdict.records, "record"),
        counted(verdict.bytes, "byte"),
        counted(len(verdict.orphans), "orphan"),
    )
    report(f"{', '.join(totals)} (legal)")
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


def topic_names(options: Sequence[str]) -> dict[TopicId, str]:
    """Of `ID=NAME`. Raises typer's BadParameter."""
    if not options:
        return {}
    from kafscale.admin.plan import invalid_topic_name
    from kafscale.storage.keys import TopicId

    names: dict[TopicId, str] = {}
    for option in options:
        topic_id, equals, name = option.partition("=")
        try:
            if not equals or invalid_topic_name(name) or len(topic_id) != TOPIC_ID_DIGITS:
                raise ValueError
            names[TopicId(bytes.fromhex(topic_id))] = name
        except ValueError:
            raise typer.BadParameter(f"'{option}': a topic id of 32 hexadecimal digits, =, a name") from None
    return names


async def roll_forward(cluster: Cluster, way: Way, names: Mapping[TopicId, str], output: Output) -> bool:
    """Shows what is to change and writes it, if the operator agrees. False: it was not written."""
    from kafscale.operations.rollforward.report import COLUMNS, rows, warnings
    from kafscale.operations.rollforward.run import carry_out, look

    with progressing() as progress:
        seen = await look(cluster, names, now_ms(), progress)
    said = list(warnings(seen.metadata, seen.bucket, seen.plan))
    for line in said:
        notice(line)
    if seen.history is not None:
        notice(f"HISTORY {seen.history}. A new one begins with this roll-forward")
    shown = rows(seen.metadata, seen.plan, seen.history)
    if not shown:
        notice("roll-forward: etcd lists everything that the bucket holds; nothing to change")
        return True
    plan = ChangePlan(
        what=f"roll-forward: {counted(len(shown), 'change')} of topics and heads in etcd",
        question="Write this to etcd?",
        columns=COLUMNS,
        rows=shown,
        more={"warnings": said},
    )
    if not agreed(way, plan, output):
        return False
    await carry_out(cluster, seen)
    notice("roll-forward: done")
    return True
