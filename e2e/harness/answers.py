"""Whole answers of two systems, field by field: what is left of them without ids, addresses and times.

The codec is KafScale's, because the independent ones do not keep null and empty apart. That it reads Kafka's bytes as
they are is shown elsewhere (`libs/wire/tests`, `test_api_table.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from kafscale.wire.schema import module_of

from e2e.harness.oracles import request_frame
from e2e.harness.raw import Closed, Raw, body_of
from e2e.harness.rights_rows import Case

SET: Final = "<set>"
TEXT: Final = "<text>"
NONE_OF_THEM: Final[tuple[object, ...]] = (None, "", -1, bytes(16), [])
IDS: Final = {
    "base_timestamp",
    "cluster_id",
    "controller_id",
    "host",
    "isr_nodes",
    "leader",
    "leader_id",
    "log_append_time_ms",
    "log_dir",
    "member_id",
    "node_id",
    "port",
    "producer_id",
    "replica_nodes",
    "session_id",
    "topic_id",
}
"""Fields whose values differ between any two systems. Only whether they are set is compared."""
OTHERWISE: Final = {
    "assignment_epoch": "Apache Kafka 4.3 starts group epochs at 2, KafScale and earlier Kafka versions at 1",
    "group_epoch": "as assignment_epoch",
    "member_epoch": "as assignment_epoch",
    "documentation": "KafScale documents what a config does here",
    "leader_epoch": "KafScale's first owner of a partition has epoch 1, Kafka's first leader 0",
    "total_bytes": "the object store has no size",
    "usable_bytes": "as total_bytes",
}
"""Fields that differ on purpose."""
OWN_NAMES: Final = ("kafscale.", "__")
"""Of configs that Kafka does not have, and of topics that KafScale does not need."""
NAMES: Final = ("name", "topic_name", "group_id", "resource_name")


@dataclass(frozen=True, slots=True, order=True)
class At:
    """A field of an API's answers. `path`: the names of the fields that lead to it, joined by dots."""

    key: int
    path: str


def answer_of(bootstrap: str, case: Case, version: int, content: Mapping[str, Any]) -> Any:
    """The answer as plain values, on a connection of its own. None: the connection was closed."""
    with Raw.to(bootstrap) as raw:
        raw.frame(request_frame(case.key, version, version, content))
        try:
            body = body_of(raw.answer(), case.key, version, version)
        except Closed:
            return None
    response = module_of(case.key).decode_response(body, version)
    return msgspec.to_builtins(response, builtin_types=(bytes, memoryview, bytearray))


def comparable(value: Any, about: str, name: str = "") -> Any:
    """The answer without what differs between any two systems. `about`: the name that the request is about. Lists are
    sorted, because few of Kafka's have an order, and lists of the whole cluster are cut to what the request made."""
    if name in OTHERWISE:
        return None
    if name in IDS:
        return SET if value not in NONE_OF_THEM else value
    if isinstance(value, Mapping):
        return {field: comparable(each, about, field) for field, each in value.items()} | _message(value)
    if isinstance(value, (list, tuple)):
        return sorted(
            (comparable(each, about, name) for each in value if not _foreign(each, about)), key=repr
        )
    if isinstance(value, (bytes, bytearray, memoryview)):
        return f"{len(value)} bytes"
    return value


def _message(value: Mapping[str, Any]) -> dict[str, str]:
    """A text of an error is in the words of the system that found it."""
    return {"error_message": TEXT} if value.get("error_code") and value.get("error_message") else {}


def _foreign(value: Any, about: str) -> bool:
    """Whether this entry of a list is another test's, or one that only one of the systems has."""
    name = (
        next((value[field] for field in NAMES if field in value), None)
        if isinstance(value, Mapping)
        else None
    )
    if not isinstance(name, str):
        return False
    return name.startswith(OWN_NAMES) or (TAG in name and about not in name)


TAG: Final = "-answers-"
"""In the names of all topics and groups that a comparison makes."""


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """The places where two comparable answers differ, with both values. A text in place of none is no difference."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name, mine in ours.items():
            its = theirs[name]
            if not (name == "error_message" and mine == TEXT and its in (None, "")):
                yield from differences(mine, its, f"{path}.{name}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for mine, its in zip(ours, theirs, strict=True):
            yield from differences(mine, its, f"{path}[]")
    elif ours != theirs:
        yield f"{path}: {ours!r}, Apache Kafka {theirs!r}"


def nulls(key: int, value: Any, path: Sequence[str] = ()) -> Iterator[At]:
    """Each field of an answer that is null."""
    if value is None and path:
        yield At(key, ".".join(path))
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from nulls(key, each, (*path, name))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from nulls(key, each, path)
