"""Random messages for every (API, kind, version), drawn from the definition files.

Fields that a version lacks keep their defaults, so that a value read back must equal the value written.
Lengths sit around the borders that matter: one byte of varint or two, unrolled integer arrays or not.
"""

from __future__ import annotations

import json
import os
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from kafscale.wire.errors import ERROR_CODES
from kafscale.wire.schema import MODULES, module_of
from kio.schema.errors import ErrorCode as KioErrorCode

DEFINITIONS = Path(__file__).parents[3] / "tools" / "wire_schema"
EXAMPLES_FACTOR = int(os.environ.get("KAFSCALE_EXAMPLES_FACTOR", "1"))
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
LONG = 150


def quick(examples: int) -> settings:
    """Few examples, the same ones every time; more and random ones when the factor is raised."""
    return settings(
        max_examples=examples * EXAMPLES_FACTOR,
        derandomize=EXAMPLES_FACTOR == 1,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


class Case(NamedTuple):
    """One message in one version."""

    module: ModuleType
    kind: str
    version: int

    @property
    def name(self) -> str:
        return f"{self.module.NAME}{self.kind.capitalize()}"

    @property
    def flexible(self) -> bool:
        return bool(self.version >= self.module.FLEXIBLE_FROM)

    def encode(self, message: Any) -> bytes:
        return b"".join(getattr(self.module, f"encode_{self.kind}")(message, self.version))

    def decode(self, data: Any) -> Any:
        return getattr(self.module, f"decode_{self.kind}")(data, self.version)

    def __str__(self) -> str:
        return f"{self.name}-v{self.version}"


def cases() -> list[Case]:
    """Every message in every version that the package has."""
    found = []
    for key in MODULES:
        module = module_of(key)
        for kind in ("request", "response"):
            first, last = getattr(module, f"{kind.upper()}_VERSIONS")
            found += [Case(module, kind, version) for version in range(first, last + 1)]
    return found


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


@cache
def definition(api_key: int) -> dict[str, Any]:
    return dict(json.loads((DEFINITIONS / f"{MODULES[api_key]}.json").read_text()))


def fields_of(case: Case) -> list[dict[str, Any]]:
    return list(definition(case.module.API_KEY)[case.kind]["fields"])


def present(field: dict[str, Any], version: int, key: str = "versions") -> bool:
    """Whether a field exists (or is nullable, or tagged) in a version."""
    if key not in field:
        return False
    first, last = field[key].split("-")
    return int(first) <= version <= int(last)


NEVER_MISSING = {"transaction_start_time_ms"}
"""kio does not know that Kafka sends -1 for a time that there is none of."""


@cache
def values(case: Case) -> st.SearchStrategy[Any]:
    """Messages of one case."""
    return _struct(case, case.name, fields_of(case))


def _struct(case: Case, name: str, fields: list[dict[str, Any]]) -> st.SearchStrategy[Any]:
    struct = getattr(case.module, name)
    arguments = {
        snake(field["name"]): _field(case, field) for field in fields if present(field, case.version)
    }
    for field in fields:
        if present(field, case.version, "tagged"):  # not sent when it has its default
            attribute = snake(field["name"])
            arguments[attribute] |= st.just(getattr(struct(), attribute))
    return st.builds(struct, **arguments)


def _field(case: Case, field: dict[str, Any]) -> st.SearchStrategy[Any]:
    array = field["type"].startswith("[]")
    kind = field["type"].removeprefix("[]")
    if "fields" in field:
        element = _struct(case, case.name + kind, field["fields"])
    else:
        element = _scalar(kind, snake(field["name"]))
    value = element
    if array:
        many = st.just([7] * LONG if kind in INTEGERS else ["n"] * LONG)
        value = st.lists(element, max_size=2 if "fields" in field else 9)
        value = value if "fields" in field or kind == "uuid" else st.one_of(value, value, value, many)
    return st.none() | value if present(field, case.version, "nullable") else value


def _scalar(kind: str, name: str) -> st.SearchStrategy[Any]:
    if name in ERROR_CODES:
        return st.sampled_from([int(code) for code in KioErrorCode])  # kio knows no others
    if kind == "int64" and name.endswith(("_ms", "timestamp")):
        dates = st.integers(0, 1 << 41)  # a date or a duration to kio
        return dates if name in NEVER_MISSING else st.just(-1) | dates
    if kind in INTEGERS:
        bits = INTEGERS[kind] - 1
        return st.integers(-(1 << bits), (1 << bits) - 1)
    long = st.just("n" * LONG)
    return {
        "uint16": st.integers(0, (1 << 16) - 1),
        "float64": st.floats(allow_nan=False),
        "bool": st.booleans(),
        "string": st.one_of(st.text(max_size=6), st.text(max_size=6), long),
        "bytes": st.binary(max_size=LONG),
        "records": st.binary(max_size=LONG),
        "uuid": st.binary(min_size=16, max_size=16),
    }[kind]
