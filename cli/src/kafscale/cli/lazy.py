"""The group of all commands, which imports a command's module when that command is used.

Law: `kafscale --help`, `--version` and a mistyped command import no command's module. A reader that closes the pipe
early, as `head` does, ends the command in silence with exit code 0.
"""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, Final, cast

import typer
from typer.core import TyperGroup

STDOUT: Final = 1


@dataclass(frozen=True, slots=True)
class Lazy:
    """A command or a group of commands that is not imported yet. `source` is "module:name"."""

    source: str
    panel: str
    summary: str
    """The first sentence of its help; a test compares them."""

    def load(self, name: str) -> Any:
        """The command, as typer makes it."""
        module, _, attribute = self.source.partition(":")
        found = getattr(import_module(module), attribute)
        around = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
        if isinstance(found, typer.Typer):
            around.add_typer(found, name=name)
        else:
            around.command(name)(found)
        return typer.main.get_group(around).commands[name]


class _Commands(Mapping[str, Any]):
    """Commands by name. Names need no import."""

    def __init__(self, lazy: Mapping[str, Lazy], loaded: Mapping[str, Any]) -> None:
        self._lazy = lazy
        self._loaded = dict(loaded)
        self._names = [*loaded, *lazy]

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = self._lazy[name].load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class LazyGroup(TyperGroup):
    """The root. Commands that are registered in the usual way are shown before those of `LAZY`."""

    LAZY: ClassVar[Mapping[str, Lazy]] = {}
    PANELS: ClassVar[tuple[str, ...]] = ()

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._eager: dict[str, Any] = dict(self.commands)
        self.commands = cast(MutableMapping[str, Any], _Commands(self.LAZY, self._eager))

    def list_commands(self, _context: Any) -> list[str]:
        return list(self.commands)

    def format_commands(self, context: Any, formatter: Any) -> None:
        """Under the headings of `PANELS`, without an import."""
        limit = formatter.width - 6 - max(map(len, self.commands))
        rows = [
            *(
                (each.rich_help_panel, name, each.get_short_help_str(limit))
                for name, each in self._eager.items()
            ),
            *((each.panel, name, each.summary) for name, each in self.LAZY.items()),
        ]
        for panel in self.PANELS:
            with formatter.section(panel):
                formatter.write_dl([(name, text) for of, name, text in rows if of == panel])

    def make_context(self, *words: Any, **more: Any) -> Any:
        with quiet_at_closed_pipe():  # --help prints here
            return super().make_context(*words, **more)

    def invoke(self, context: Any) -> Any:
        with quiet_at_closed_pipe():
            return super().invoke(context)


@contextmanager
def quiet_at_closed_pipe() -> Iterator[None]:
    """Ends the command with 0 if the reader of standard output has left. Other broken connections stay errors."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:  # None: it was closed at the start
                sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_has_left():
            raise
        with open(os.devnull, "wb") as nothing:  # the interpreter flushes once more at its end
            os.dup2(nothing.fileno(), STDOUT)
        raise typer.Exit(0) from None


def _reader_has_left() -> bool:
    watch = select.poll()
    watch.register(STDOUT, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in watch.poll(0))
