"""Writes docs/settings.md from the settings classes, so that the page cannot disagree with the code."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from kafscale.console.variables import ConsoleVariables
from kafscale.operations.services import WHAT_THEY_DO
from kafscale.runtime.settings import ServiceSettings
from kafscale.runtime.settings_load import variable
from pydantic import SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings

from tools.generated import ROOT, write_or_check

PAGE = ROOT / "docs" / "settings.md"
NAMES: dict[object, str] = {str: "text", int: "whole number", float: "number", bool: "0 or 1", Path: "path"}

INTRODUCTION = """\
# Settings

Every setting is an environment variable, and a flag of the same name: `KAFSCALE_ETCD_ENDPOINTS` is
`--etcd-endpoints`, and the flag wins. A secret has no flag, because all users of a machine can read the arguments of
processes. An invalid value ends the process with code 2 and one sentence
that names the variable. Sizes are bytes, times are milliseconds. This page is written by
`tools/gen_settings_docs.py`.

Configure glibc's allocator for large buffers, and gRPC for small requests. `kafscale up`, `kafscale serve` and the
images set these variables; if you start a service in another way, set them too:
`MALLOC_MMAP_THRESHOLD_=134217728 MALLOC_TRIM_THRESHOLD_=536870912 MALLOC_TOP_PAD_=16777216
GRPC_EXPERIMENTS=-event_engine_client,-event_engine_listener`.
"""


def kind_of(annotation: Any) -> str:
    origin = get_origin(annotation)
    if origin is Literal:
        return " \\| ".join(f"`{value}`" for value in get_args(annotation))
    if origin in (Union, UnionType):
        return kind_of(next(part for part in get_args(annotation) if part is not type(None)))
    if origin is tuple:
        return "comma-separated"
    if origin is frozenset:
        return "semicolon-separated"
    return "secret" if annotation is SecretStr else NAMES.get(annotation, str(annotation))


def default_of(info: FieldInfo) -> str:
    match info.default:
        case None | "" | ():
            return ""
        case frozenset() if not info.default:
            return ""
        case bool():
            return f"`{int(info.default)}`"
        case tuple():
            return f"`{','.join(info.default)}`"
        case _:
            return f"`{info.default}`"


def rows(kind: type[BaseSettings], skip: frozenset[str]) -> Iterator[str]:
    yield "| variable | value | default | what it is |"
    yield "|---|---|---|---|"
    for name, info in kind.model_fields.items():
        if name not in skip:
            text = (info.description or "").replace("|", "\\|")
            yield f"| `{variable(kind, name)}` | {kind_of(info.annotation)} | {default_of(info)} | {text} |"


def settings_class(service: str) -> type[ServiceSettings]:
    module = importlib.import_module(f"kafscale.{service}.settings")
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ServiceSettings) and value is not ServiceSettings
    ]
    assert len(found) == 1, f"kafscale.{service}.settings has {len(found)} settings classes"
    return found[0]


def page() -> str:
    shared = frozenset(ServiceSettings.model_fields)
    lines = [INTRODUCTION, "## Every service", "", *rows(ServiceSettings, frozenset())]
    for service in WHAT_THEY_DO:
        kind = settings_class(service)
        if set(kind.model_fields) - shared:
            lines += ["", f"## {service}", "", *rows(kind, shared)]
    lines += ["", "## The console", "", *rows(ConsoleVariables, frozenset())]
    return "\n".join(lines) + "\n"


def main() -> int:
    return write_or_check({PAGE: page()})


if __name__ == "__main__":
    sys.exit(main())
