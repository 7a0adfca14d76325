"""The command line itself: help for each command, mistakes that end with 2, completion, and becoming a service."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from kafscale.cli.__main__ import app
from kafscale.cli.groups import EARLIEST, LATEST, Target, target_of
from kafscale.operations.services import ROLES, WHAT_THEY_DO
from kafscale.runtime.memory_tuning import MALLOC_ENV
from typer.testing import CliRunner

RUNNER = CliRunner()


def commands(group: object, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in getattr(group, "commands", {}).items():
        yield (*words, name)
        yield from commands(command, (*words, name))


ROOT = typer.main.get_command(app)
ALL = sorted(commands(ROOT))
BAD_NAMESPACE = (
    "kafscale: 'Bad Name!' cannot be a namespace: use 1 to 100 letters, digits, dots, dashes or underscores, "
    "but not . or .. alone"
)


def takes(words: tuple[str, ...], option: str) -> bool:
    command: object = ROOT
    for word in words:
        command = getattr(command, "commands", {})[word]
    return any(option in parameter.opts for parameter in getattr(command, "params", ()))


IN_A_NAMESPACE = [words for words in ALL if takes(words, "--namespace")]


def test_no_role_is_without_a_command() -> None:
    assert set(WHAT_THEY_DO) == set(ROLES) == {words[1] for words in ALL if words[0] == "serve" and words[1:]}


@pytest.mark.parametrize("words", [words for words in ALL if words[0] != "serve"], ids=" ".join)
def test_each_command_says_what_it_does(words: tuple[str, ...]) -> None:
    result = RUNNER.invoke(app, [*words, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.stdout


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "topics",
        "topics create",
        "topics create orders --config retention.ms",
        "topics create orders --config =1",
        "topics create orders --partitions 0",
        "configs set orders retention.ms",
        "groups reset-offsets billing --topic orders --to yesterday",
        "groups describe billing --output xml",
        "completion tcsh",
        "topics delete orders",
        "groups delete billing",
        "groups reset-offsets billing --topic orders --to earliest",
        "transactions describe",
        "transactions find-hanging --partition 0",
        "transactions abort --topic orders --partition 0 --yes",
        "transactions abort --topic orders --partition 0 --producer-id 1 --producer-epoch 2 --yes",
        "transactions abort --topic orders --partition 0 --start-offset 1 --producer-id 1 --yes",
        "transactions abort --topic orders --partition 0 --start-offset 1",
        "transactions forceTerminateTransaction --transactionalId billing",
        "retention what-if",
        "retention apply --retention-ms 1 --yes",
        "retention apply",
        "compact",
        "orphans",
        "users",
        "users add",
        "users add alice --iterations 4095",
        "users add alice --mechanism PLAIN",
        "users passwd alice --password-file /nowhere/password",
        "acls add --topic orders",
        "acls add --topic orders --allow-principal alice",
        "acls remove --allow-principal User:alice",
        "acls list --resource-pattern-type some",
        "quotas set producer_byte_rate=1",
        "quotas set producer_byte_rate --user alice",
        "quotas set producer_byte_rate=much --user alice",
        "quotas set producer_byte_rate=1 --user alice --user-defaults",
        "quotas set connection_creation_rate=1 --ip 10.0.0.1 --client app",
        "quotas list --ip-defaults --client-defaults",
        "quotas remove",
        "up --scale nobody=2",
        "consume",
        "consume orders --offset yesterday",
        "consume orders --until soon",
        "consume orders --partition 3-1",
        "consume orders --count 0",
        "consume orders --regex [",
        "consume orders --format %x",
        "consume orders --format %v --output json",
        "consume orders --group billing --offset -5",
        "consume orders --group billing --partition 0",
        "consume orders --group billing --until end",
        "produce",
        "produce orders --timestamp soon",
        "produce orders --timestamp 1960-01-01",
        "produce orders --header trace",
        "produce orders --partition -1",
        "delete-records orders",
        "delete-records orders --before soon --yes",
        "offsets orders --at soon",
        "profile create prod",
        "--profile prod",
    ],
)
def test_what_was_written_wrongly_ends_with_2_before_anything_is_asked(line: str) -> None:
    assert RUNNER.invoke(app, line.split()).exit_code == 2


def test_the_commands_that_take_a_namespace_are_found() -> None:
    assert {("up",), ("status",), ("fsck",), ("lag",), ("sql",), ("retention", "apply")} <= set(
        IN_A_NAMESPACE
    )


@pytest.mark.parametrize("words", IN_A_NAMESPACE, ids=" ".join)
def test_a_bad_namespace_is_the_same_sentence_in_each_command(words: tuple[str, ...]) -> None:
    result = RUNNER.invoke(app, [*words, "--namespace", "Bad Name!"])
    assert (result.exit_code, result.stdout, result.stderr.strip()) == (2, "", BAD_NAMESPACE)


@pytest.mark.parametrize("wrong", ["--namespace Bad!", "--data-dir=", "-b ::1:9193"])
def test_a_shell_completes_a_line_with_a_wrong_value_in_silence(wrong: str) -> None:
    line = f"kafscale {'topics list' if wrong.startswith('-b') else 'fsck'} {wrong} --out"
    done = completed(line, len(line.split()) - 1)
    assert (done.stdout.split(), done.stderr) == (["--output"], "")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("earliest", Target(EARLIEST, is_time=True)),
        ("latest", Target(LATEST, is_time=True)),
        ("42", Target(42, is_time=False)),
        ("2026-01-31T08:00", Target(1_769_846_400_000, is_time=True)),
        ("2026-01-31T09:00+01:00", Target(1_769_846_400_000, is_time=True)),
    ],
)
def test_where_a_group_is_to_go_on(text: str, target: Target) -> None:
    assert target_of(text) == target


def test_bash_accepts_the_script_and_it_completes() -> None:
    script = RUNNER.invoke(app, ["completion", "bash"]).stdout
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    done = completed("kafscale topics d", 2)
    assert done.stdout.split() == ["describe", "delete"], done.stderr


def completed(line: str, word: int) -> subprocess.CompletedProcess[str]:
    """The words that bash gets for the completion of this word of the line."""
    environment = {
        **os.environ,
        "COMP_WORDS": line,
        "COMP_CWORD": str(word),
        "_KAFSCALE_COMPLETE": "complete_bash",
    }
    kafscale = [
        sys.executable,
        "-c",
        "import sys; sys.argv[0] = 'kafscale'; from kafscale.cli.__main__ import main; main()",
    ]
    return subprocess.run(kafscale, env=environment, capture_output=True, text=True, check=False)


def test_the_page_names_no_command_that_is_not_there() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "command.md").read_text()
    named = set(re.findall(r"(?<![\w_./])kafscale ([a-z][a-z-]*)", page))
    assert len(named) > 10
    assert named <= {words[0] for words in ALL}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script_for_this_command(shell: str) -> None:
    result = RUNNER.invoke(app, ["completion", shell])
    assert (result.exit_code, "_KAFSCALE_COMPLETE=complete_" + shell in result.stdout) == (0, True)


def test_serving_replaces_the_process_with_its_allocator_set(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda *words: became.append(words))
    monkeypatch.setenv("MALLOC_TOP_PAD_", "1")
    result = RUNNER.invoke(app, ["serve", "fetch", "--cache-bytes", "0", "--help"])
    assert result.exit_code == 0, result.output
    ((program, argv, environment),) = became
    assert (program, argv) == (
        sys.executable,
        [sys.executable, "-m", "kafscale.fetch", "--cache-bytes", "0", "--help"],
    )
    expected = {**MALLOC_ENV, "MALLOC_TOP_PAD_": "1"}
    assert {name: environment[name] for name in expected} == expected
