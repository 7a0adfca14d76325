"""Words of the command line become the values that typer makes of them with pydantic, which is the oracle here."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from kafscale.cli.coercion import reader
from pydantic import ValidationError
from typer._adapters import try_build_adapter
from typer.models import OptionInfo, ParameterInfo


class Fruit(StrEnum):
    APPLE = "apple"
    PEAR = "Pear"


REFUSED = "refused"
KINDS: list[tuple[Any, ParameterInfo]] = [
    (str, OptionInfo()),
    (bool, OptionInfo()),
    (int, OptionInfo()),
    (int, OptionInfo(min=0, max=10)),
    (float, OptionInfo()),
    (float, OptionInfo(min=0.1, max=60)),
    (float, OptionInfo(min=1)),
    (Fruit, OptionInfo()),
    (Fruit, OptionInfo(case_sensitive=False)),
    (Path, OptionInfo()),
    (Path, OptionInfo(exists=True, dir_okay=False)),
    (list[str], OptionInfo()),
    (list[int], OptionInfo(min=0)),
    (list[Fruit], OptionInfo()),
]
WORDS = [
    "",
    "0",
    "1",
    "10",
    "11",
    "-1",
    " 3 ",
    "1_0",
    "0.1",
    "1e3",
    "nan",
    "inf",
    "true",
    "NO",
    "oFf",
    "t",
    "maybe",
]
WORDS += ["apple", "APPLE", "Pear", "pear", "/", "/etc/passwd", "/nowhere", "a,b", "²", "0x10", "١"]


def answer(read: Callable[[Any], Any], word: Any) -> Any:
    try:
        return read(word)
    except (ValueError, ValidationError, typer.BadParameter):
        return REFUSED


def both(annotation: Any, info: ParameterInfo, word: Any) -> tuple[str, str]:
    ours, oracle = reader(annotation, info), try_build_adapter(annotation, info)
    assert ours is not None
    assert oracle is not None
    return repr(answer(ours, word)), repr(answer(oracle.validate_python, word))


@pytest.mark.parametrize("word", WORDS)
def test_a_word_becomes_what_typer_makes_of_it(word: str) -> None:
    for annotation, info in KINDS:
        value = [word] if getattr(annotation, "__origin__", None) is list else word
        ours, oracle = both(annotation, info, value)
        assert ours == oracle, (annotation, vars(info))


@given(st.sampled_from([kind for kind in KINDS if kind[0] in (str, bool, Fruit)]), st.text(max_size=8))
def test_any_word_does(kind: tuple[Any, ParameterInfo], word: str) -> None:
    ours, oracle = both(*kind, word)
    assert ours == oracle


@given(st.integers(-(10**20), 10**20) | st.floats())
def test_numbers_do(number: float) -> None:
    for annotation, info in KINDS:
        if annotation in (int, float) and not (annotation is int and isinstance(number, float)):
            ours, oracle = both(annotation, info, str(number))
            assert ours == oracle


def test_other_types_are_left_to_typer() -> None:
    assert reader(bytes, OptionInfo()) is None
    assert reader(tuple[int, int], OptionInfo()) is None
    assert reader(int, OptionInfo(clamp=True)) is None
    assert reader(str, OptionInfo(parser=str.upper)) is None


def test_a_refused_word_says_what_is_allowed() -> None:
    for annotation, info, word, why in (
        (int, OptionInfo(min=1, max=5), "7", "7 is not at least 1 and at most 5."),
        (int, OptionInfo(), "x", "'x' is not a whole number."),
        (Fruit, OptionInfo(), "plum", "'plum' is not one of 'apple', 'Pear'."),
    ):
        read = reader(annotation, info)
        assert read is not None
        with pytest.raises(ValueError, match=f"^{why}$"):
            read(word)
