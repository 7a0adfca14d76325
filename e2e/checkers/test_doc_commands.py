"""Each `kafscale` command of the documents exists, with its options; `e2e/scenarios/test_doc_commands.py` runs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from kafscale.cli.__main__ import app

from e2e.harness.doc_blocks import ROOT, RUN_ELSEWHERE, WORLDS, blocks, inline_commands, pages

QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'", re.DOTALL)
CALL = re.compile(r"(?:^|[|;&(!`]|bin/|[A-Z]=\S+|-u [A-Z_]+) *kafscale +([^\n|;&<>`)]+)", re.MULTILINE)
"""At the begin of a line or behind what may stand before a command."""


def calls(text: str) -> Iterator[list[str]]:
    """The words after each `kafscale`; a quoted text is one word."""
    plain = QUOTED.sub("QUOTED", text.replace("\\\n", " "))
    for found in CALL.finditer(plain):
        yield re.sub(r"\s#.*", "", found[1]).split()


def fault(words: list[str]) -> str | None:
    """Which word is no command and no option of its command."""
    at: Any = typer.main.get_command(app)
    context = typer.Context(at)
    options = dict.fromkeys(at.get_help_option_names(context), False)
    """Whether each takes a value."""
    left = iter(words)
    for word in left:
        if word in ("--", "…"):
            return None
        option, has_value, _ = word.partition("=")
        for parameter in at.params:
            takes_value = not getattr(parameter, "is_flag", False)
            options |= dict.fromkeys([*parameter.opts, *parameter.secondary_opts], takes_value)
        below = getattr(at, "commands", None)
        if option.startswith("-") and option != "-" and not re.match(r"-\d", option):
            if option not in options:
                return word
            if options[option] and not has_value:
                next(left, None)
        elif below and word in below:
            at = below[word]
        elif below and re.fullmatch(r"[a-z-]+", word):
            return word
    return None


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_exist_with_their_options(page: Any) -> None:
    texts = [*(block.text for block in blocks(page)), *inline_commands(page)]
    wrong = [(words, bad) for text in texts for words in calls(text) if (bad := fault(words)) is not None]
    assert wrong == []


def test_a_wrong_command_and_a_wrong_option_are_found() -> None:
    assert [fault(words) for words in calls("kafscale topics lst\nkafscale lag --no-such=1 | x")] == [
        "lst",
        "--no-such=1",
    ]
    assert [fault(words) for words in calls('kafscale sql "select 1 --x" --output csv -- # --y')] == [None]


def test_a_block_that_does_not_run_says_what_it_needs() -> None:
    marks = {block.world for page in pages() for block in blocks(page)}
    assert marks - {""} == set(WORLDS)
    assert all((ROOT / page).is_file() and (ROOT / test).is_file() for page, test in RUN_ELSEWHERE.items())
