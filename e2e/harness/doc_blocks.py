"""The shell blocks of the documents, and where each can run.

A block that begins with ```sh runs as it stands, in the order of its page, in a folder whose `data` is a running
cluster. A block that needs more names it after `sh`, for example ```sh kubernetes; readers of the rendered page do not
see it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
WORLDS: Final = {
    "kubernetes": "a cluster of Kubernetes",
    "docker": "Docker and the project's images",
    "secured": "etcd or a listener with logins, users or certificates",
    "login": "a person who types a password",
    "elsewhere": "a cluster that does not run on ./data",
    "settings": "no command: variables for the environment of a service",
    "program": "a program that is not KafScale's",
    "machine": "a whole machine: packages, systemd, another release",
    "checkout": "minutes of building, or a working copy with its tests",
}
"""What a block may need. Of these blocks only the names of commands and options are checked."""
RUN_ELSEWHERE: Final = {
    "docs/tutorial.md": "e2e/scenarios/test_tutorial.py",
    "docs/security.md": "e2e/scenarios/test_security_page.py",
}
"""Pages with a test of their own, which runs their unmarked blocks."""

_BLOCK: Final = re.compile(r"^ *```sh ?(\S*)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_INLINE: Final = re.compile(r"`(kafscale [^`]+)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    page: str
    line: int
    world: str
    text: str

    def commands(self) -> list[str]:
        """Without comments. A line that ends in a backslash goes on in the next one."""
        joined = re.sub(r"\\\n\s*", "", self.text)
        lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in joined.splitlines())
        return [line for line in lines if line]


def pages() -> list[Path]:
    """What a user reads: README, docs/ and the page of each member."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*/README.md"))]
    return [*found, *sorted(ROOT.glob("*/*/README.md"))]


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page=str(page.relative_to(ROOT)), line=line, world=found[1], text=found[2])


def inline_commands(page: Path) -> list[str]:
    """Commands inside sentences."""
    return _INLINE.findall(page.read_text())
