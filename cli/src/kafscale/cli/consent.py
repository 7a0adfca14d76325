"""Show, ask, do: no command destroys anything in silence.

A command that deletes or overwrites has the options --dry-run and --yes. It first calls `chosen_way`, then makes its
plan, a `ChangePlan`, then calls `agreed`, and does what was shown if the answer is yes. The laws:

- --dry-run changes nothing, also together with --yes.
- If nobody can be asked, a command without --yes ends with exit code 2, before it sends anything.
- A person sees what goes and which groups have not read it, and then gets the question. Anything but a yes is a no.
- With --yes the command prints the same facts, so the log of a script has them.
- If nothing would go, nobody is asked and nothing is done.
"""

from __future__ import annotations

import json
import sys
from enum import Enum, auto
from typing import Annotated, Final, assert_never

import typer
from kafscale.cli.terminal import Output, fail_usage, notice, show_rows, show_table
from kafscale.operations.consent import LOSS_COLUMNS, ChangePlan
from kafscale.operations.plain import plain
from kafscale.runtime.redaction import harmless

ROWS_ASKED_MAX: Final = 20
"""Rows of a plan above a question. --dry-run shows all."""
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would go; change nothing.")]
YesOption = Annotated[
    bool,
    typer.Option("--yes", "-y", help="Do not ask. Scripts need it: without a terminal nobody can answer."),
]


class Way(Enum):
    SHOW = auto()
    ASK = auto()
    DO = auto()


def way_of(*, dry_run: bool, yes: bool, terminal: bool) -> Way | None:
    """None: nobody can be asked."""
    if dry_run:
        return Way.SHOW
    if yes:
        return Way.DO
    return Way.ASK if terminal else None


def is_yes(answer: str) -> bool:
    """An empty line and the end of the input are no."""
    return answer.strip().lower() in ("y", "yes")


# --- the shell -----------------------------------------------------------------------------------


def chosen_way(*, dry_run: bool, yes: bool) -> Way:
    """Raises typer's Exit with code 2 if nobody can be asked."""
    way = way_of(dry_run=dry_run, yes=yes, terminal=on_terminal())
    if way is None:
        raise fail_usage(
            "nothing was changed: nobody can be asked here, because there is no terminal; "
            "--dry-run shows what would go, --yes does it without a question"
        )
    return way


def on_terminal() -> bool:
    """The question goes to the error stream, so standard output may be a pipe."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def agreed(way: Way, plan: ChangePlan, output: Output) -> bool:
    """Shows the plan, and says whether to do it. A person who declines ends the command with exit code 1."""
    match way:
        case Way.SHOW:
            _show(plan, output)
            return False
        case Way.DO:
            for fact in plan.facts():
                notice(fact)
            return True
        case Way.ASK:
            return _ask(plan)
        case _:
            assert_never(way)


def _show(plan: ChangePlan, output: Output) -> None:
    if output is Output.JSON:
        losses = {} if plan.losses is None else {"losses": plan.losses}
        typer.echo(json.dumps(plain({"plan": plan.rows, **plan.more, **losses}), indent=1))
    else:
        show_rows(plan.columns, plan.rows, output)
    for fact in plan.facts():
        notice(fact)
    if plan.losses and output is Output.TABLE:
        show_rows(LOSS_COLUMNS, plan.losses, output)
    notice("nothing was changed")


def _ask(plan: ChangePlan) -> bool:
    if not plan.rows:
        notice(f"{harmless(plan.what)}: there is nothing to do")
        return False
    show_table(plan.columns, plan.rows[:ROWS_ASKED_MAX], err=True)
    if len(plan.rows) > ROWS_ASKED_MAX:
        notice(f"and {len(plan.rows) - ROWS_ASKED_MAX:,} more rows, which --dry-run shows")
    for fact in plan.facts():
        notice(fact)
    typer.echo(f"{harmless(plan.question)} [y/N]: ", nl=False, err=True)
    if not is_yes(sys.stdin.readline()):  # typer.confirm would write a blank to standard output
        notice("nothing was changed")
        raise typer.Exit(1)
    return True
