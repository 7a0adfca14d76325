"""Reads settings from the environment and from flags of the same names; each mistake gets one readable sentence.

`--etcd-endpoints x` overrides KAFSCALE_ETCD_ENDPOINTS=x. A secret has no flag, because every user of a machine can read
the arguments of processes. An invalid value ends the process with code 2 before anything is opened. An error never
contains a secret.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, get_args

from kafscale.runtime.redaction import HIDDEN, redact_field, redact_text
from pydantic import SecretStr, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsError

S = TypeVar("S", bound=BaseSettings)

USAGE_EXIT_CODE = 2


class BadSettings(Exception):
    """The text has a line for each mistake."""


def load_settings(kind: type[S], argv: Sequence[str] | None = None) -> S:
    """For a service's __main__: prints mistakes and exits with 2. `argv`: by default the process's arguments."""
    try:
        return read_settings(kind, parse_flags(kind, sys.argv[1:] if argv is None else argv))
    except BadSettings as bad:
        sys.stderr.write(f"{bad}\n")
        raise SystemExit(USAGE_EXIT_CODE) from None


def read_settings(kind: type[S], given: Mapping[str, Any] | None = None) -> S:
    """`given` values, as text or as the field's type, override the environment. Raises BadSettings."""
    try:
        return kind(**(given or {}))
    except ValidationError as error:
        raise BadSettings("\n".join(sentence(kind, detail) for detail in error.errors())) from None
    except SettingsError as error:
        raise BadSettings(str(error)) from None


def variable(kind: type[BaseSettings], field: str) -> str:
    return f"{kind.model_config.get('env_prefix', '')}{field}".upper()


def sentence(kind: type[BaseSettings], detail: object) -> str:
    """KAFSCALE_CACHE_BYTES="many": should be a whole number. (Bytes of ...)"""
    assert isinstance(detail, dict), "pydantic describes an error by a dict"
    field = str(detail["loc"][0]) if detail["loc"] else ""
    message = redact_text(str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input ").rstrip("."))
    if not field:
        return f"settings: {message}."
    info = kind.model_fields.get(field)
    value = (
        HIDDEN
        if info is not None and is_secret(info)
        else str(redact_field(field, repr(str(detail["input"]))))
    )
    what = f" {info.description}" if info is not None and info.description else ""
    return f"{variable(kind, field)}={value}: {message}.{what}"


def is_secret(info: FieldInfo) -> bool:
    return SecretStr in get_args(info.annotation)


def parse_flags(kind: type[BaseSettings], argv: Sequence[str]) -> dict[str, str]:
    program = f"python -m {kind.__module__.rpartition('.')[0]}"
    parser = argparse.ArgumentParser(prog=program, description=kind.__doc__, allow_abbrev=False)
    for name, info in kind.model_fields.items():
        if is_secret(info):
            continue
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            dest=name,
            default=None,
            help=f"{info.description or ''} [{variable(kind, name)}]".replace("%", "%%"),
        )
    return {name: value for name, value in vars(parser.parse_args(argv)).items() if value is not None}
