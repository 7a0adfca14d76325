"""The files of `web/`, read once. A path is a key of this table, so no path can lead out of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

from kafscale.console.guard import policy

INDEX: Final = "index.html"
_TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
}
_INLINE: Final = re.compile(r'<script type="importmap">(.*?)</script>', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    content_type: str
    etag: str


@dataclass(frozen=True, slots=True)
class Assets:
    by_path: Mapping[str, Asset]
    """`app.js`, `screens/topics.js`, …"""
    csp: str
    """It allows the one inline script of the page, which names the modules in `vendor/`."""

    @property
    def page(self) -> Asset:
        return self.by_path[INDEX]


def read_assets() -> Assets:
    found = dict(_read(files("kafscale.console") / "web", ""))
    inline = _INLINE.findall(found[INDEX].body.decode())
    assert len(inline) == 1, "the page has one inline script"
    return Assets(found, policy(inline[0]))


def _read(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found: list[tuple[str, Asset]] = []
    for each in folder.iterdir():
        suffix = f".{each.name.rpartition('.')[2]}"
        if each.is_dir():
            found += _read(each, f"{prefix}{each.name}/")
        elif suffix in _TYPES:
            body = each.read_bytes()
            found.append((prefix + each.name, Asset(body, _TYPES[suffix], sha256(body).hexdigest()[:32])))
    return found
