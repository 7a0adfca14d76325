"""Gives every member, and the images that the manifests name, the version of the root pyproject.toml.

A member requires exactly this version of the others: a wheel of one release never runs with those of another.
"""

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

from tools.generated import ROOT, write_or_check

SOURCE: Final = ROOT / "pyproject.toml"
MEMBERS: Final = ("libs/*", "services/*", "console", "cli", "spark/*")
MANIFESTS: Final = (ROOT / "k8s" / "overlays" / "production" / "kustomization.yaml",)
_VERSION: Final = re.compile(r'^version = ".*"$', re.MULTILINE)
_REQUIRED: Final = re.compile(r'^( +"kafscale-\w+)(?:==[^"]*)?",$', re.MULTILINE)
_TAG: Final = re.compile(r"(newName: \S+/kafscale-\w+, newTag: )[^\s}]+")


def version() -> str:
    found: str = tomllib.loads(SOURCE.read_text())["project"]["version"]
    return found


def files(of: str) -> dict[Path, str]:
    """Each file with this version in it."""
    members = [path for pattern in MEMBERS for path in sorted(ROOT.glob(f"{pattern}/pyproject.toml"))]
    return {
        **{path: _member(path.read_text(), of) for path in members},
        **{path: _TAG.sub(rf"\g<1>{of}", path.read_text()) for path in MANIFESTS},
    }


def _member(text: str, of: str) -> str:
    return _REQUIRED.sub(rf'\g<1>=={of}",', _VERSION.sub(f'version = "{of}"', text, count=1))


def main() -> int:
    return write_or_check(files(version()))


if __name__ == "__main__":
    sys.exit(main())
