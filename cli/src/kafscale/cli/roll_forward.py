"""The part of `kafscale fsck` that `--roll-forward` adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import typer
from kafscale.cli.consent import Way, agreed
from kafscale.cli.terminal import Output, notice, progressing
from kafscale.operations.consent import ChangePlan
from kafscale.operations.positions import now_ms
from kafscale.operations.sentences import counted

if TYPE_CHECKING:
    from kafscale.operations.clusters import Cluster
    from kafscale.storage.keys import TopicId

TOPIC_ID_DIGITS = 32


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
    shown = rows(seen.plan, seen.history)
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
