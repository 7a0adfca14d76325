"""A password comes from a prompt or a file, and is never repeated in a message."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
import typer
from kafscale.cli import passwords
from kafscale.cli.passwords import STANDARD_INPUT, password_from


class Terminal(io.TextIOWrapper):
    """Standard input, which is a terminal or not."""

    def __init__(self, content: bytes, *, is_terminal: bool) -> None:
        super().__init__(io.BytesIO(content))
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "password"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\nmore\n"])
def test_it_is_the_first_line_of_a_file(tmp_path: Path, end: bytes) -> None:
    assert password_from(written(tmp_path, " p:ss wörd ".encode() + end), "alice") == " p:ss wörd "


def test_it_may_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(b"secret\n", is_terminal=False))
    assert password_from(STANDARD_INPUT, "alice") == "secret"


def test_a_person_is_asked_and_has_to_confirm(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def prompt(text: str, **how: object) -> str:
        asked.update(how, text=text)
        return "secret"

    monkeypatch.setattr(sys, "stdin", Terminal(b"", is_terminal=True))
    monkeypatch.setattr(passwords.typer, "prompt", prompt)
    assert password_from(None, "alice") == "secret"
    assert asked == {"text": "Password for alice", "hide_input": True, "confirmation_prompt": True}


def test_without_a_terminal_nobody_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(b"secret\n", is_terminal=False))
    with pytest.raises(typer.Exit) as ended:
        password_from(None, "alice")
    assert ended.value.exit_code == 2
    assert "give --password-file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the password is empty"),
        (b"\nsecretword", "the password is empty"),
        (b"secretword\xff", "not UTF-8"),
        (b"secretword" * 500, "more than 4096 bytes"),
    ],
)
def test_what_is_no_password_is_refused_without_its_content(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, sentence: str
) -> None:
    with pytest.raises(typer.Exit) as ended:
        password_from(written(tmp_path, content), "alice")
    said = capsys.readouterr().err.replace("\n", " ")
    assert ended.value.exit_code == 2
    assert sentence in said
    assert "secretword" not in said
