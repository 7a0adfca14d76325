"""A package with one module for each Kafka API: the name of the module is the name of the API.

So the file registers its API, and no table repeats it: `list_offsets.py` answers ApiKey.LIST_OFFSETS.
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import TypeVar

from kafscale.wire.apis import ApiKey

T = TypeVar("T")


def exported(package: ModuleType, name: str, kind: type[T]) -> dict[int, T]:
    """What each module of the package exports under `name`, by API key, in the order of the keys.

    Modules without that name are helpers of the others. Raises KeyError for a module that is named after no API.
    """
    found: dict[int, T] = {}
    for each in iter_modules(package.__path__):
        value = getattr(import_module(f"{package.__name__}.{each.name}"), name, None)
        if value is None:
            continue
        assert isinstance(value, kind), f"{each.name}.{name} is no {kind.__name__}"
        found[int(ApiKey[each.name.upper()])] = value
    return dict(sorted(found.items()))
