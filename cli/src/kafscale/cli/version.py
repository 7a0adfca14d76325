"""`kafscale version`. Every member has the version of the root pyproject.toml (`tools/gen_version.py`)."""

from __future__ import annotations

import json

import typer
from kafscale.cli.terminal import TextOutput, TextOutputOption

PACKAGE = "kafscale-cli"


def current() -> str:
    from importlib.metadata import version as of

    return of(PACKAGE)


def version(output: TextOutputOption = TextOutput.TEXT) -> None:
    """Show the version of KafScale. Example: kafscale version --output json"""
    if output is TextOutput.TEXT:
        typer.echo(line())
        return
    import platform

    from confluent_kafka import libversion

    found = {"version": current(), "python": platform.python_version(), "librdkafka": libversion()[0]}
    typer.echo(json.dumps(found, indent=1))


def line() -> str:
    return f"kafscale {current()}"
