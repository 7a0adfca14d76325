"""Show, ask, do: what a command does before it destroys anything, for a person, a script and a dry run."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

import pytest
import typer
from kafscale.cli import consent
from kafscale.cli.consent import ROWS_ASKED_MAX, DryRunOption, Way, YesOption, agreed, chosen_way, way_of
from kafscale.cli.terminal import Output, OutputOption
from kafscale.operations.consent import ChangePlan
from typer.testing import CliRunner, Result

LOSS = {"group": "billing", "topic": "t", "partition": 0, "committed": 3, "start": 10, "records": 7_000}
FACTS = ["5 things", "groups that would lose records that they have not read: billing 7,000"]


def plan(count: int = 5, losses: Iterable[dict[str, Any]] | None = (LOSS,)) -> ChangePlan:
    return ChangePlan(
        what=f"{count} things",
        question="Delete them?",
        columns=("thing",),
        rows=[{"thing": f"thing-{number}"} for number in range(count)],
        losses=None if losses is None else list(losses),
        more={"bytes": 9},
    )


def run(plan: ChangePlan, *words: str, terminal: bool = False, answer: str | None = None) -> Result:
    """A command that prints `done` where another would delete."""
    app = typer.Typer()

    @app.command()
    def destroy(
        dry_run: DryRunOption = False, yes: YesOption = False, output: OutputOption = Output.TABLE
    ) -> None:
        way = chosen_way(dry_run=dry_run, yes=yes)
        typer.echo("plans", err=True)
        if agreed(way, plan, output):
            typer.echo("done")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consent, "on_terminal", lambda: terminal)
        return CliRunner().invoke(app, list(words), input=answer)


def test_the_way_depends_on_the_options_and_on_whether_anybody_can_be_asked() -> None:
    found = {
        (dry_run, yes, terminal): way_of(dry_run=dry_run, yes=yes, terminal=terminal)
        for dry_run, yes, terminal in itertools.product((False, True), repeat=3)
    }
    assert {key for key, way in found.items() if way is Way.SHOW} == {key for key in found if key[0]}
    assert {key for key, way in found.items() if way is Way.DO} == {
        (False, True, False),
        (False, True, True),
    }
    assert (found[False, False, True], found[False, False, False]) == (Way.ASK, None)


def test_a_script_without_yes_is_refused_before_anything_is_planned() -> None:
    done = run(plan(), answer="y\n")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nobody can be asked here" in done.stderr
    assert "plans" not in done.stderr


def test_a_script_with_yes_is_not_asked_and_its_log_says_what_went() -> None:
    done = run(plan(), "--yes")
    assert (done.exit_code, done.stdout) == (0, "done\n")
    assert done.stderr.splitlines() == ["plans", *FACTS]


@pytest.mark.parametrize("words", [("--dry-run",), ("--dry-run", "--yes")])
@pytest.mark.parametrize("terminal", [False, True])
def test_a_dry_run_shows_all_and_does_nothing(words: tuple[str, ...], terminal: bool) -> None:
    done = run(plan(ROWS_ASKED_MAX + 5), *words, terminal=terminal, answer="y\n")
    assert done.exit_code == 0
    assert f"thing-{ROWS_ASKED_MAX + 4}" in done.stdout
    assert "7000" in done.stdout, "the losses are a table too"
    assert "done" not in done.stdout
    assert done.stderr.splitlines()[-1] == "nothing was changed"


def test_a_dry_run_for_a_program_has_the_plan_and_the_losses() -> None:
    done = run(plan(1), "--dry-run", "-o", "json")
    assert json.loads(done.stdout) == {"plan": [{"thing": "thing-0"}], "bytes": 9, "losses": [LOSS]}
    assert "losses" not in json.loads(run(plan(1, None), "--dry-run", "-o", "json").stdout)
    assert run(plan(1), "--dry-run", "-o", "csv").stdout.splitlines() == ["thing", "thing-0"]


def test_a_person_sees_what_goes_and_who_has_not_read_it_and_then_says_yes() -> None:
    done = run(plan(), terminal=True, answer="y\n")
    assert (done.exit_code, done.stdout) == (0, "done\n"), "the question is not in the rows"
    lines = done.stderr.splitlines()
    assert [line.strip() for line in lines[2:9]] == [*(f"thing-{number}" for number in range(5)), *FACTS]
    assert lines[9].startswith("Delete them? [y/N]")


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "yesterday\n"])
def test_anything_but_a_yes_is_a_no(answer: str) -> None:
    done = run(plan(), terminal=True, answer=answer)
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].endswith("nothing was changed")


def test_a_long_plan_is_cut_above_the_question() -> None:
    done = run(plan(ROWS_ASKED_MAX + 2), terminal=True, answer="n\n")
    assert f"thing-{ROWS_ASKED_MAX - 1}" in done.stderr
    assert f"thing-{ROWS_ASKED_MAX}" not in done.stderr
    assert "and 2 more rows, which --dry-run shows" in done.stderr


def test_nobody_is_asked_about_nothing() -> None:
    done = run(plan(0, []), terminal=True)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "0 things: there is nothing to do" in done.stderr


def test_a_hostile_name_cannot_write_to_the_terminal() -> None:
    done = run(plan(losses=[{**LOSS, "group": "\x07x"}]), terminal=True, answer="n\n")
    assert "\x07" not in done.stderr
