"""A command imports what it needs and nothing else, and ends in silence if its reader leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from kafscale.cli.__main__ import Commands, app
from kafscale.cli.lazy import quiet_at_closed_pipe
from kafscale.cli.version import current
from typer.testing import CliRunner

HEAVY = (
    "aiohttp",
    "asyncio",
    "confluent_kafka",
    "cryptography",
    "duckdb",
    "google.protobuf",
    "grpc",
    "http.client",
    "numpy",
    "opentelemetry",
    "prometheus_client",
    "pyarrow",
    "pydantic",
    "rich",
    "ssl",
    "structlog",
    "uvloop",
)
MODULES_MAX = 21
"""Of this project, for a command that only prints."""
RUN = (
    "import atexit, sys; sys.argv = ['kafscale', *sys.argv[1:]]; "
    "atexit.register(lambda: print(*sys.modules, file=sys.stderr, sep='\\n')); "
    "from kafscale.cli.__main__ import main; main()"
)


def imported(line: str, tmp_path: Path) -> set[str]:
    environment = {**os.environ, "KAFSCALE_CONFIG_HOME": str(tmp_path)}
    words = [sys.executable, "-c", RUN, *line.split()]
    return set(
        subprocess.run(words, env=environment, capture_output=True, text=True, check=False).stderr.split()
    )


@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "--version",
        "version",
        "topixs",
        "topics --help",
        "consume --help",
        "produce --help",
        "up --help",
        "lag --help",
        "profile list --output json",
        "delete-records orders --before nowhere",
    ],
)
def test_what_only_prints_imports_nothing_heavy(line: str, tmp_path: Path) -> None:
    found = imported(line, tmp_path)
    assert [name for name in HEAVY if name in found] == []
    assert len([name for name in found if name.startswith("kafscale.")]) <= MODULES_MAX


def test_a_command_of_the_kafka_protocol_imports_its_client_and_no_more(tmp_path: Path) -> None:
    found = imported("topics list -b 127.0.0.1:1", tmp_path)
    assert "confluent_kafka" in found
    # asyncio and its ssl come with the client
    assert [
        name for name in HEAVY if name in found and name not in ("asyncio", "ssl", "confluent_kafka")
    ] == []


ROOT = typer.main.get_command(app)


@pytest.mark.parametrize("name", Commands.LAZY)
def test_the_list_of_commands_says_what_each_command_says(name: str) -> None:
    assert isinstance(ROOT, Commands)
    lazy = Commands.LAZY[name]
    assert lazy.summary == ROOT.commands[name].get_short_help_str(limit=500)
    assert lazy.panel in Commands.PANELS


def test_help_lists_each_command_once() -> None:
    shown = CliRunner().invoke(app, ["--help"]).stdout
    assert isinstance(ROOT, Commands)
    for name in ROOT.commands:
        assert len([line for line in shown.splitlines() if line.startswith(f"  {name}  ")]) == 1, name


def test_one_version_by_option_and_by_command() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"kafscale {current()}\n"
    assert CliRunner().invoke(app, ["version"]).stdout == f"kafscale {current()}\n"
    assert f'"version": "{current()}"' in CliRunner().invoke(app, ["version", "-o", "json"]).stdout


PROGRAM = """import typer
from kafscale.cli.lazy import LazyGroup
app = typer.Typer(cls=LazyGroup)
@app.callback()
def root() -> None: ...
@app.command()
def go() -> None:
"""


@pytest.mark.parametrize(
    "program",
    [
        "import typer\nfor _ in range(99_999): typer.echo('row')",
        "import sys\nwhile True: sys.stdout.write('row\\n')",
        "from kafscale.cli.terminal import Output, show_rows\nshow_rows(['n'], [{'n': 'x' * 99}] * 999, Output.TABLE)",
        "from kafscale.cli.terminal import fail\nprint('row', flush=True); print('x' * 999_999); raise fail('broken')",
    ],
    ids=["echo", "write", "table", "fails after it"],
)
def test_a_reader_that_leaves_early_ends_the_command_with_0_and_in_silence(program: str) -> None:
    body = "\n".join(f"    {line}" for line in program.splitlines())
    whole = f"{PROGRAM}{body}\napp()"
    writer = subprocess.Popen(
        [sys.executable, "-c", whole, "go"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout is not None
    writer.stdout.read(3)
    writer.stdout.close()
    assert writer.stderr is not None
    assert (writer.stderr.read().replace(b"kafscale: broken\n", b""), writer.wait()) == (b"", 0)
    writer.stderr.close()


def test_another_broken_connection_is_an_error() -> None:
    with pytest.raises(BrokenPipeError), quiet_at_closed_pipe():
        raise BrokenPipeError
