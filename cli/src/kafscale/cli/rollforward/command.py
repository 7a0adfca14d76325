"""The part of `kafscale fsck` that `--roll-forward` adds."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer
from kafscale.cli.targets import Trouble
from kafscale.cli.terminal import Output, notice, progressing, show_rows

if TYPE_CHECKING:
    from kafscale.cli.clusters import Cluster
    from kafscale.cli.rollforward.run import Look
    from kafscale.storage.keys import TopicId

TOPIC_ID_DIGITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What the options say."""

    dry_run: bool = False
    yes: bool = False
    with_table: bool = True
    names: dict[TopicId, str] = field(default_factory=dict)


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


async def roll_forward(cluster: Cluster, wish: Wish) -> bool:
    """Shows what is to change and writes it, if the operator agrees. False: it was not written."""
    from kafscale.cli.rollforward.run import carry_out, look

    with progressing() as progress:
        seen = await look(cluster, wish.names, int(time.time() * 1000), progress)
    _show(seen, wish)
    if not seen.plan.changes:
        notice("roll-forward: etcd lists everything that the bucket holds; nothing to change")
        return True
    if wish.dry_run or not (wish.yes or _agreed()):
        notice("roll-forward: nothing was changed")
        return False
    await carry_out(cluster, seen)
    notice("roll-forward: done")
    return True


def _show(seen: Look, wish: Wish) -> None:
    from kafscale.cli.rollforward.report import COLUMNS, rows, warnings

    found = rows(seen.plan)
    if found and wish.with_table:
        show_rows(COLUMNS, found, Output.TABLE)
    for line in warnings(seen.metadata, seen.bucket, seen.plan):
        notice(line)


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise Trouble("nothing was changed: --yes is needed where nobody can be asked")
    return typer.confirm("Write this to etcd?", err=True)
