"""`kafscale completion`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from kafscale.cli.options import COMPLETE_VARIABLE


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(context: typer.Context, shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script for a shell. Example: source <(kafscale completion bash)

    zsh: kafscale completion zsh > ~/.zfunc/_kafscale, with ~/.zfunc in fpath.
    fish: kafscale completion fish > ~/.config/fish/completions/kafscale.fish
    """
    from typer._completion_classes import completion_init
    from typer.completion import shell_complete

    completion_init()
    command = context.find_root().command
    raise typer.Exit(shell_complete(command, {}, "kafscale", COMPLETE_VARIABLE, f"source_{shell.value}"))
