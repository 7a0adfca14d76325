"""Where a command takes a password from: a prompt or a file. Never an argument: any user of the machine sees those."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from kafscale.cli.terminal import fail_usage

FILE_BYTES_MAX: Final = 4_096
STANDARD_INPUT: Final = Path("-")

PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        help="File whose first line is the password; - is standard input. Default: a prompt.",
    ),
]


def password_from(path: Path | None, user: str) -> str:
    """Ends the process with a sentence if there is no password."""
    if path is None:
        if not sys.stdin.isatty():
            raise fail_usage("there is no terminal to ask for the password; give --password-file")
        password: str = typer.prompt(f"Password for {user}", hide_input=True, confirmation_prompt=True)
    else:
        password = _first_line(path)
    if not password:
        raise fail_usage("the password is empty")
    return password


def _first_line(path: Path) -> str:
    from kafscale.storage.operator_files import FileWrong, read_text, text_of

    try:
        if path == STANDARD_INPUT:
            content = text_of(sys.stdin.buffer, FILE_BYTES_MAX)
        else:
            content = read_text(path, FILE_BYTES_MAX)
    except FileWrong as wrong:
        raise fail_usage(f"--password-file {path}: {wrong}") from wrong
    return content.partition("\n")[0].removesuffix("\r")
