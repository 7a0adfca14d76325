"""Words of the command line become values: texts, numbers, flags, choices and paths.

typer does this with pydantic, whose import takes longer than most commands. Law: for the types here a word becomes what
typer makes of it, or is refused where typer refuses it; a test compares the two. Other types are left to typer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final, get_args, get_origin

import typer
import typer.core
from typer._coercion import RuntimeParam, TypeDescriptor, build_runtime_param
from typer._param_types import coerce_cli_choice, coerce_cli_path
from typer.models import ParameterInfo

_FLAGS: Final = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("", "0", "false", "f", "no", "n", "off"), False),
}
_NUMBERS: Final[Mapping[type, str]] = {int: "a whole number", float: "a number"}

Read = Callable[[Any], Any]


class Plain(RuntimeParam):
    """What a parameter of typer keeps to read its values."""

    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        read = reader(self.annotation, self.parameter_info)
        assert read is not None, "only such parameters have a Plain"
        try:
            return read(value)
        except ValueError as wrong:
            raise typer.BadParameter(str(wrong), ctx=ctx, param=param) from wrong


def read_plainly() -> None:
    """From now on typer's parameters read their values here, also those that typer adds itself, such as --help."""
    vars(typer.core)["build_runtime_param"] = _runtime_param


def _runtime_param(kind: TypeDescriptor) -> RuntimeParam:
    if kind.is_file or reader(kind.annotation, kind.parameter_info) is None:
        return build_runtime_param(kind)
    return Plain(kind.parameter_info, kind.annotation)


def reader(annotation: Any, info: ParameterInfo) -> Read | None:
    """None for a type that is not read here. A reader raises ValueError."""
    if info.parser is not None:
        return None
    if get_origin(annotation) is list:
        one = reader(get_args(annotation)[0], info)
        return None if one is None else _list_of(one)
    if not isinstance(annotation, type):
        return None
    if issubclass(annotation, Enum):
        choices = tuple(annotation)
        return lambda value: coerce_cli_choice(value, choices=choices, case_sensitive=info.case_sensitive)
    if annotation in _NUMBERS:
        return None if info.clamp else _number(annotation, info)
    if issubclass(annotation, Path):
        return lambda value: annotation(os.fsdecode(coerce_cli_path(value, info, path_type=None)))
    return _OTHERS.get(annotation)


def _list_of(one: Read) -> Read:
    return lambda value: [one(each) for each in (value if isinstance(value, list | tuple) else [value])]


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    found = _FLAGS.get(str(value).strip().lower())
    if found is None:
        raise ValueError(f"'{value}' is neither true nor false.")
    return found


_OTHERS: Final[Mapping[type, Read]] = {bool: _flag, str: str}


def _number(kind: type, info: ParameterInfo) -> Read:
    def read(value: Any) -> Any:
        try:
            number = kind(str(value).encode("ascii"))  # digits of other scripts are refused
        except ValueError:
            raise ValueError(f"'{value}' is not {_NUMBERS[kind]}.") from None
        least, most = info.min, info.max
        if (least is not None and not number >= least) or (most is not None and not number <= most):
            limits = [f"at least {least}"] * (least is not None) + [f"at most {most}"] * (most is not None)
            raise ValueError(f"{value} is not {' and '.join(limits)}.")
        return number

    return read
