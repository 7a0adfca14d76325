"""`kafscale completion`: the script by which a shell completes commands and options."""

from __future__ import annotations

from typing import Annotated

import typer
from kafscale.cli.options import Shell

COMPLETE_VARIABLE = "_KAFSCALE_COMPLETE"


def completion(context: typer.Context, shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the completion script for a shell. Example: source <(kafscale completion bash)

    zsh: kafscale completion zsh > ~/.zfunc/_kafscale, with ~/.zfunc in fpath.
    fish: kafscale completion fish > ~/.config/fish/completions/kafscale.fish
    """
    from typer.completion import shell_complete

    root = context.find_root()
    raise typer.Exit(shell_complete(root.command, {}, "kafscale", COMPLETE_VARIABLE, f"source_{shell.value}"))
