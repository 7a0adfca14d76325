"""Lines of a generated function: indentation, fresh names, and the struct.Struct constants a module needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tools.wiregen.model import FIXED, Field

INTS_UNROLLED = 8
INT_ARRAYS = {"int16": "h", "int32": "i", "int64": "q", "int8": "b"}


class Module:
    """The state that the functions of one module share: its compiled struct formats, each named after its format."""

    def __init__(self) -> None:
        self.formats: set[str] = set()

    def unpack(self, formats: str) -> str:
        self.formats.add(formats)
        return f"_u_{constant(formats)}"

    def pack(self, formats: str) -> str:
        self.formats.add(formats)
        return f"_p_{constant(formats)}"


class Code:
    """The body of one function."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self._depth = 1
        self._serial = 0

    def name(self, prefix: str) -> str:
        self._serial += 1
        return f"{prefix}{self._serial}"

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1


def constant(formats: str) -> str:
    """A format as the suffix of a name."""
    return formats.replace("?", "t")


def squeeze(formats: list[str]) -> str:
    """Joins formats into one string that is also valid in a name."""
    return "".join(formats)


def format_size(formats: list[str]) -> int:
    """The bytes of a run."""
    sizes = dict(FIXED.values()) | {"B": 1}
    return sum(sizes[letters] for letters in formats)


def default_source(field: Field) -> str:
    """A field's default as an expression for a constructor's argument."""
    if field.default == "null":
        return "None"
    if field.array:
        return "[]"
    if field.struct is not None:
        return f"_{field.struct.name}_DEFAULT" if shareable(field) else f"{field.struct.name}()"
    if field.kind in ("string", "bytes", "records", "uuid"):
        empty = {"string": '""', "bytes": 'b""', "records": 'b""', "uuid": "ZERO_UUID"}[field.kind]
        return repr(field.default) if field.default and field.kind == "string" else empty
    if field.kind == "bool":
        return str(field.default in ("true", True))
    if field.kind == "float64":
        return repr(float(field.default or 0.0))
    return str(int(str(field.default), 0)) if field.default not in (None, "") else "0"


def shareable(field: Field) -> bool:
    """Whether a struct-valued field may share one frozen default, because its value is immutable."""
    struct = field.struct
    return struct is not None and not any(inner.array or inner.struct for inner in struct.fields)
