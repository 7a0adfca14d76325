"""The files of other authors in the console's page, and whether they are what the npm registry has.

    .venv/bin/python -m tools.vendor            # `make vendor`: fetches the versions of vendor.json by `npm pack`
    .venv/bin/python -m tools.vendor --check    # `make lint`: compares the files with their hashes, without a network

`integrity` is the package's, as npm says it; `files` maps a path in the package to our file and its SHA-256.
--check also holds the page to its law: no file of ours makes markup of a text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tools.generated import ROOT

WEB: Final = ROOT / "console" / "src" / "kafscale" / "console" / "web"
VENDOR: Final = WEB / "vendor"
LIST: Final = VENDOR / "vendor.json"
BANNED: Final = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|\beval\b|new Function"
    r"|srcdoc|https?://(?!www\.w3\.org/2000/svg)"
)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def complaints() -> Iterator[str]:
    listed = {LIST.name: sha256(LIST.read_bytes())}
    for package in json.loads(LIST.read_text()):
        listed |= {file["to"]: file["sha256"] for file in package["files"]}
    found = {path.name: sha256(path.read_bytes()) for path in VENDOR.iterdir()}
    for name in sorted(listed.keys() | found.keys()):
        if listed.get(name) != found.get(name):
            yield f"{VENDOR / name} is not what vendor.json says; run `make vendor`"
    ours = [path for path in sorted(WEB.rglob("*")) if path.is_file() and VENDOR not in path.parents]
    for path in ours:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if (banned := BANNED.search(line)) is not None:
                yield f"{path}:{number}: {banned[0]} is banned: texts are text nodes, and no other host is asked"


def fetch(package: dict[str, Any]) -> None:
    """Replaces our files and their hashes. Fails if the package is not the one of `integrity`."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"{package['package']}@{package['version']}"
        subprocess.run(["npm", "pack", "--silent", name], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).iterdir()
        digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if package["integrity"] != f"sha512-{digest}":
            sys.exit(f"{name} has the integrity sha512-{digest}, not that of vendor.json")
        with tarfile.open(archive) as tar:
            for file in package["files"]:
                member = tar.extractfile(f"package/{file['from']}")
                assert member is not None, file["from"]
                content = member.read()
                (VENDOR / file["to"]).write_bytes(content)
                file["sha256"] = sha256(content)


def main() -> int:
    if "--check" in sys.argv[1:]:
        found = list(complaints())
        print("\n".join(found), end="\n" if found else "")
        return 1 if found else 0
    packages = json.loads(LIST.read_text())
    for package in packages:
        fetch(package)
    LIST.write_text(json.dumps(packages, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
