"""--command-config: which commands take it, and what a wrong file does."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import typer
from kafscale.cli.__main__ import app
from typer.testing import CliRunner

SECRET = "hush-hush"


def commands(group: object) -> list[tuple[str, set[str]]]:
    found = []
    for name, command in getattr(group, "commands", {}).items():
        options = set(itertools.chain.from_iterable(each.opts for each in command.params))
        found += [(name, options), *((f"{name} {more}", flags) for more, flags in commands(command))]
    return found


def test_every_command_that_asks_a_kafka_takes_the_file() -> None:
    ask = [
        (name, options)
        for name, options in commands(typer.main.get_command(app))
        if "--bootstrap-server" in options and name != "profile create"
    ]
    assert len(ask) >= 20
    assert [name for name, options in ask if "--command-config" not in options] == []


@pytest.mark.parametrize("line", ["topics list", "produce orders", "consume orders --exit", "users list"])
def test_a_wrong_file_ends_the_command_before_anything_is_sent(tmp_path: Path, line: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={SECRET}\n")
    result = CliRunner().invoke(app, [*line.split(), "--command-config", str(path)])
    assert result.exit_code == 2
    assert f"--command-config {path}: sasl.jaas.config" in result.output.replace("\n", "")
    assert SECRET not in result.output
