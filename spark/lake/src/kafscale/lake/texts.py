"""SQL on text inside bytes: a key or a value that is JSON is read as JSON, not as DuckDB's escaped form of bytes.

DuckDB casts bytes to text by escaping: `"` becomes `\\x22`. So each JSON function on a value returns null, without an
error. Here a parsed query is changed: where DuckDB would cast bytes to text, they are decoded as UTF-8. Bytes that are
not UTF-8 become null. DuckDB still decides by type, when it binds the query: only bytes are decoded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

import duckdb

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Node: TypeAlias = dict[str, Json]

DECODED: Final = "kafscale_text"
MACRO: Final = (
    f"create temp macro {DECODED}(a blob) as list_transform([a], lambda text: try(decode(text)))[1], (a) as a"
)
"""TRY takes no subquery; in the lambda it gets the result of one."""
TEXT_TYPES: Final = frozenset({"json", "varchar", "text", "string", "char", "bpchar"})
TEXT_FUNCTIONS: Final = frozenset(
    {"->>", "from_json", "from_json_strict", "to_json", "row_to_json", "array_to_json"}
    | {"||", "concat", "concat_ws", "format", "printf", "string_agg", "listagg", "group_concat"}
    | {f"{negated}{like}" for negated in ("", "!") for like in ("~~", "~~*")}
    | {f"{negated}{like}_escape" for negated in ("", "not_") for like in ("like", "ilike")}
)
"""These functions, and all whose name begins with `json`, read or write text; DuckDB casts other arguments to it."""
CHOOSERS: Final = frozenset(
    {
        "any_value",
        "arbitrary",
        "first",
        "last",
        "first_value",
        "last_value",
        "nth_value",
        "lag",
        "lead",
        "mode",
    }
    | {"min", "max", "min_by", "max_by", "argmin", "argmax", "list", "array_agg"}
    | {"string_agg", "listagg", "group_concat"}
    | {f"arg_{end}{nulls}" for end in ("min", "max") for nulls in ("", "_null", "_nulls_last")}
)
"""Aggregates and window functions whose result has the type of their first argument, or is made of such values."""


@dataclass(frozen=True, slots=True)
class Understood:
    """A query, and the topics that it compares `topic` with.

    `readable`: DuckDB gave its parts, so texts in it are decoded.
    """

    text: str
    topics: frozenset[str]
    readable: bool = True


def understood(connection: duckdb.DuckDBPyConnection, text: str) -> Understood:
    """The query with its texts decoded. DuckDB parses it; what DuckDB cannot write as JSON stays as it is."""
    parsed = cast(Node, json.loads(_answer(connection, "select json_serialize_sql(?::varchar)", text)))
    if parsed["error"]:
        return Understood(text, frozenset(), readable=False)
    topics = frozenset(_topics(parsed))
    match parsed["statements"]:
        case [_, _, *_]:  # DuckDB writes one statement only, and `kafscale sql` runs one
            return Understood(text, topics)
    unnamed = list(_unnamed(parsed))
    names = [_name(connection, expression) for expression in unnamed]
    if not _Decoding(_aggregates(connection)).decode_all(parsed):
        return Understood(text, topics)
    for expression, name in zip(unnamed, names, strict=True):
        expression["alias"] = name
    return Understood(_written(connection, parsed), topics)


def _answer(connection: duckdb.DuckDBPyConnection, query: str, argument: str) -> str:
    ((answer,),) = connection.execute(query, [argument]).fetchall()
    return str(answer)


def _written(connection: duckdb.DuckDBPyConnection, parsed: Node) -> str:
    return _answer(connection, "select json_deserialize_sql(?::json)", json.dumps(parsed))


def _unnamed(parsed: Node) -> Iterator[Node]:
    """The expressions of select lists whose columns DuckDB names by their text, which must not change."""
    for node in _nodes(parsed):
        match node:
            case {"type": "SELECT_NODE", "select_list": list(columns)}:
                for column in columns:
                    match column:
                        case {"class": "COLUMN_REF" | "CONSTANT"}:
                            pass
                        case dict() if column["alias"] == "" and not _has_star(column):
                            yield column


def _has_star(expression: Node) -> bool:
    return any(node.get("class") == "STAR" for node in _nodes(expression))


def _name(connection: duckdb.DuckDBPyConnection, expression: Node) -> str:
    alone = cast(Node, json.loads(_answer(connection, "select json_serialize_sql(?::varchar)", "select 1")))
    for node in _nodes(alone):
        if node.get("type") == "SELECT_NODE":
            node["select_list"] = [expression]
    return _written(connection, alone).removeprefix("SELECT ")


def _aggregates(connection: duckdb.DuckDBPyConnection) -> frozenset[str]:
    names = "select distinct function_name from duckdb_functions() where function_type = 'aggregate'"
    return frozenset(str(name) for (name,) in connection.execute(names).fetchall())


@dataclass(frozen=True, slots=True)
class _Decoding:
    """Puts the macro around what DuckDB would cast to text.

    DuckDB chooses the macro's form before it knows the type of an aggregate or a window. So for these the macro is put
    around what they choose from.
    """

    aggregates: frozenset[str]

    def decode_all(self, parsed: Node) -> bool:
        """Whether a node was changed."""
        changed = False
        for node in list(_nodes(parsed)):
            match node:
                case {"class": "CAST", "child": dict(child), "type_expr": {"type_name": str(name)}}:
                    if name.lower() in TEXT_TYPES:
                        node["child"] = self._decoded(child)
                        changed = True
                case {"class": "LAMBDA", "syntax_type": "SINGLE_ARROW", "lhs": dict(json_text)}:
                    node["lhs"] = self._decoded(json_text)
                    changed = True
                case {
                    "class": "FUNCTION" | "WINDOW",
                    "function_name": str(name),
                    "arguments": list(arguments),
                }:
                    if name in TEXT_FUNCTIONS or name.startswith("json"):
                        changed |= self._decode_arguments(arguments)
        return changed

    def _decode_arguments(self, arguments: Iterable[Json]) -> bool:
        changed = False
        for argument in arguments:
            if not isinstance(argument, dict):
                continue
            match argument["expression"]:
                case {"class": "CONSTANT" | "LAMBDA"}:
                    pass
                case dict() as expression:
                    argument["expression"] = self._decoded(expression)
                    changed = True
        return changed

    def _decoded(self, expression: Node) -> Node:
        collected = list(self._collected(expression))
        if not collected:
            return _call_of_macro(expression)
        for node in collected:
            match node:
                case {"function_name": str(name), "arguments": [dict(first), *_]} if name in CHOOSERS:
                    self._decode_arguments([first])
        return expression

    def _collected(self, json_value: Json) -> Iterator[Node]:
        """The outermost aggregates and windows, which belong to this query and not to one within it."""
        match json_value:
            case {"class": "SUBQUERY"}:
                pass
            case dict() if self._is_collected(json_value):
                yield json_value
            case dict():
                for child in json_value.values():
                    yield from self._collected(child)
            case list():
                for child in json_value:
                    yield from self._collected(child)

    def _is_collected(self, node: Node) -> bool:
        return node.get("class") == "WINDOW" or node.get("function_name") in self.aggregates


def _call_of_macro(expression: Node) -> Node:
    return {
        "class": "FUNCTION",
        "type": "FUNCTION",
        "alias": "",
        "function_name": DECODED,
        "qualified_name": {"path": [DECODED]},
        "arguments": [{"name": "", "expression": expression}],
        "filter": None,
        "order_bys": {"type": "ORDER_MODIFIER", "orders": []},
        "distinct": False,
        "is_operator": False,
        "export_state": False,
    }


def _topics(parsed: Node) -> Iterator[str]:
    for node in _nodes(parsed):
        match node:
            case {"type": "COMPARE_EQUAL", "left": dict(left), "right": dict(right)}:
                for column, value in ((left, right), (right, left)):
                    if _is_topic(column):
                        yield from _constants([value])
            case {"type": "COMPARE_IN", "children": [dict(column), *values]} if _is_topic(column):
                yield from _constants(values)


def _is_topic(node: Node) -> bool:
    match node:
        case {"class": "COLUMN_REF", "column_names": [*_, str(name)]}:
            return name.lower() == "topic"
    return False


def _constants(nodes: Iterable[Json]) -> Iterator[str]:
    for node in nodes:
        match node:
            case {"class": "CONSTANT", "literal": {"kind": "STRING", "text": str(text)}}:
                yield text


def _nodes(json_value: Json) -> Iterator[Node]:
    match json_value:
        case dict():
            yield json_value
            for child in list(json_value.values()):
                yield from _nodes(child)
        case list():
            for child in json_value:
                yield from _nodes(child)
