"""How the cases of answer_cases.py are made from the requests of api_requests.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kafscale.wire.apis import ApiKey

from e2e.harness.oracles import Content
from e2e.harness.prepared import Prepare, World, nothing
from e2e.harness.rights_rows import Case

NO_SUCH: Final = "no-such-name"
Told = Callable[[World, int], Content]


def changed(said: Told, *path: str | int, **fields: object) -> Told:
    """The request with other fields, in itself or in the one entry of the lists that `path` names."""

    def inside(value: Any, names: Sequence[str | int]) -> Any:
        if not names:
            return {**value, **fields}
        (entry,) = value[names[0]]
        return {**value, names[0]: [inside(entry, names[1:])]}

    return lambda world, version: inside(said(world, version), path)


def made(
    key: ApiKey, label: str, content: Told, prepare: Prepare = nothing, versions: tuple[int, int] = (0, 99)
) -> Case:
    return Case(key=key, label=label, content=content, prepare=prepare, versions=versions)


def of_absent(said: Told, key: ApiKey, what: str, *path: str, name: str = "name", to: str = NO_SUCH) -> Case:
    return made(key, f"{what} of an absent topic", changed(said, *path, **{name: to}))
