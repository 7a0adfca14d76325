"""The Helm chart makes the same objects as kustomize, but for what belongs to the tool: labels, hashes and order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from e2e.checkers.manifests.objects import Objects

OF_THE_TOOL: Final = (
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
    "checksum/",
)
"""Labels and annotations, by the beginning of their names."""
HASHED: Final = re.compile(r"(kafscale-(?:settings|outside|redis))-[a-z0-9]{10}")
KEYS: Final = ("name", "mountPath", "port")
"""What elements of a list are known by. A list without such a key keeps its order."""


def differences(one: Objects, other: Objects) -> list[str]:
    """A sentence for each path at which the two differ."""
    return list(_compared("", _by_name(one), _by_name(other)))


def _by_name(objects: Objects) -> dict[str, Any]:
    return {f"{each['kind']} {_plain(each['metadata']['name'])}": _plain(each) for each in objects}


def _plain(value: Any) -> Any:
    """Without what belongs to the tool, and with lists of named elements as mappings."""
    if isinstance(value, dict):
        kept = {key: _plain(each) for key, each in value.items() if not key.startswith(OF_THE_TOOL)}
        return {
            key: each for key, each in kept.items() if not (key in ("labels", "annotations") and not each)
        }
    if isinstance(value, list):
        key = next(
            (key for key in KEYS if value and all(isinstance(one, dict) and key in one for one in value)), ""
        )
        named = {f"{_plain(one[key])}": _plain(one) for one in value} if key else {}
        return named if key and len(named) == len(value) else [_plain(one) for one in value]
    return HASHED.sub(r"\1", value) if isinstance(value, str) else value


def _compared(path: str, one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}, key=str):
            if key not in one or key not in other:
                yield f"{path} {key}: only in {'the first' if key in one else 'the second'}".strip()
            else:
                yield from _compared(f"{path} {key}".strip(), one[key], other[key])
    elif one != other:
        yield f"{path}: {one} and {other}"
