"""Prints the installed packages that a service does not need: `tools/locked.py kafscale-produce`, one name per line.

An image is built from the one lock file of all members. This prints the packages that the service does not require,
directly or indirectly, and the Dockerfile removes them. It runs in the image's environment with pip's parser of
requirements, so it needs no other package.
"""

import sys
from importlib.metadata import distribution, distributions

from pip._vendor.packaging.requirements import Requirement  # type: ignore[import-untyped,unused-ignore]
from pip._vendor.packaging.utils import canonicalize_name  # type: ignore[import-untyped,unused-ignore]

INSTALLER = {"pip", "setuptools"}


def needed_by(name: str) -> set[str]:
    """Canonical names of the package and its installed dependencies, direct and indirect, with requested extras."""
    found: set[str] = set()
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(canonicalize_name(name), frozenset[str]())]
    while waiting:
        one, extras = waiting.pop()
        if (one, extras) in seen:
            continue
        seen.add((one, extras))
        found.add(one)
        for text in distribution(one).requires or ():
            wanted = Requirement(text)
            contexts = [{"extra": extra} for extra in extras | {""}]
            if wanted.marker is None or any(wanted.marker.evaluate(context) for context in contexts):
                waiting.append((canonicalize_name(wanted.name), frozenset(wanted.extras)))
    return found


def main() -> None:
    [service] = sys.argv[1:]
    here = {canonicalize_name(each.metadata["Name"]) for each in distributions()}
    for name in sorted(here - needed_by(service) - INSTALLER):
        print(name)


if __name__ == "__main__":
    main()
