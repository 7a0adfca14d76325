"""Writes docs/command-reference.md from the command itself, so that the page cannot disagree with the code."""

import re
import sys
from collections.abc import Iterator
from typing import Any

import typer
from kafscale.cli.__main__ import app

from tools.generated import ROOT, write_or_check

PAGE = ROOT / "docs" / "command-reference.md"
OWN_HELP = ("serve",)
"""Groups whose commands list their options themselves."""

INTRODUCTION = """\
# The command's reference

Every command with its arguments and options, as in `--help`. [command.md](command.md) describes how to use them.
This page is written by `tools/gen_command_docs.py`.
"""


def sections(command: Any, words: tuple[str, ...]) -> Iterator[str]:
    """Markdown of a command and of all below it."""
    below = getattr(command, "commands", None)
    if below is not None:
        if len(words) > 1:
            yield f"## `{' '.join(words)}`\n\n{prose(command.help)}\n"
        for name, each in below.items():
            yield from sections(each, (*words, name))
        return
    context = typer.Context(command, info_name=" ".join(words))
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [
        p for p in command.params if p.param_type_name == "option" and not p.hidden and p.name != "help"
    ]
    usage = " ".join((*words, *(piece for each in arguments for piece in each.get_usage_pieces(context))))
    yield f"##{'#' * (len(words) > 2)} `{usage}`\n\n{prose(command.help)}\n"
    if words[1] in OWN_HELP:
        return
    rows = [
        *((each.metavar or each.name.upper(), each.help, "") for each in arguments),
        *((option_of(each, context), help_of(each), default_of(each)) for each in options),
    ]
    if rows:
        lines = [f"| `{cell(name)}` | {cell(text)} | {default} |" for name, text, default in rows]
        yield "\n".join(("| argument or option | what it is | default |", "|---|---|---|", *lines)) + "\n"


def prose(text: str) -> str:
    return re.sub(
        r"(?<=Example: )kafscale [^`]*?(?=$|\. |\n)", lambda found: f"`{found.group()}`", text.strip()
    )


def option_of(option: Any, context: Any) -> str:
    names = ", ".join((*option.opts, *option.secondary_opts))
    return names if option.is_flag else f"{names} {option.metavar or option.make_metavar(ctx=context)}"


def help_of(option: Any) -> str:
    return f"{option.help} [{option.envvar}]" if option.envvar else str(option.help)


def default_of(option: Any) -> str:
    value = option.default
    if value is None or value is False or option.required:
        return "needed" if option.required else ""
    if value is True:
        return "on"
    return f"`{getattr(value, 'value', value)}`"


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def page() -> str:
    return "\n".join((INTRODUCTION, *sections(typer.main.get_command(app), ("kafscale",))))


def main() -> int:
    return write_or_check({PAGE: page()})


if __name__ == "__main__":
    sys.exit(main())
