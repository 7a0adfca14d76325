"""Gives every member, and the images that the manifests name, the version of the root pyproject.toml."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Final

from tools.generated import ROOT, write_or_check

SOURCE: Final = ROOT / "pyproject.toml"
MEMBERS: Final = ("libs/*", "services/*", "cli", "spark/*")
MANIFESTS: Final = (ROOT / "k8s" / "overlays" / "production" / "kustomization.yaml",)
_VERSION: Final = re.compile(r'^version = ".*"$', re.MULTILINE)
_TAG: Final = re.compile(r"(newName: \S+/kafscale-\w+, newTag: )[^\s}]+")


def version() -> str:
    found: str = tomllib.loads(SOURCE.read_text())["project"]["version"]
    return found


def files(of: str) -> dict[Path, str]:
    """Each file with this version in it."""
    members = [path for pattern in MEMBERS for path in sorted(ROOT.glob(f"{pattern}/pyproject.toml"))]
    written = {path: _VERSION.sub(f'version = "{of}"', path.read_text(), count=1) for path in members}
    return written | {path: _TAG.sub(rf"\g<1>{of}", path.read_text()) for path in MANIFESTS}


def main() -> int:
    return write_or_check(files(version()))


if __name__ == "__main__":
    sys.exit(main())
