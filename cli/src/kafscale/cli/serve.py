"""`kafscale serve ROLE`: this process becomes one service.

The process is replaced by exec: glibc reads the allocator's environment only when a program starts, and a service
should not hold the command's imports in memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import typer
from kafscale.operations.services import WHAT_THEY_DO
from kafscale.runtime.memory_tuning import MALLOC_ENV

app = typer.Typer(
    name="serve",
    help="Run one service in this process, until SIGTERM. Settings are KAFSCALE_* variables, or flags of the same "
    "names: `kafscale serve produce --etcd-endpoints http://10.0.0.5:2379`.",
    no_args_is_help=True,
)


def become(role: str, words: Sequence[str]) -> None:
    """Does not return. Variables that are set override the allocator's defaults."""
    argv = [sys.executable, "-m", f"kafscale.{role}", *words]
    sys.stdout.flush()
    os.execve(argv[0], argv, {**MALLOC_ENV, **os.environ})  # noqa: S606  (no shell, on purpose)


def _command(role: str) -> Callable[[typer.Context], None]:
    def run(context: typer.Context) -> None:
        become(role, context.args)

    return run


for _role, _help in WHAT_THEY_DO.items():
    app.command(
        _role,
        help=_help,
        add_help_option=False,  # the service prints its settings
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(_command(_role))
