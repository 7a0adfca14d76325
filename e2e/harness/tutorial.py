"""Runs the commands of a page as a reader does: all blocks, in order, in a separate folder."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)

ROOT = Path(__file__).parent.parent.parent
LINKED = (".venv", "docs")
COUNT = 10_000_000
SHARES = (1, 10)


class Failed(AssertionError):
    """A command of the page did not end well."""


@dataclass(slots=True)
class Page:
    """The blocks of shell commands of a page, to be run in `folder`.

    The page's ten million become `count`, and its one million a tenth of it.
    """

    path: Path
    folder: Path
    count: int
    env: Mapping[str, str]
    timeout_s: float
    _blocks: list[str] = field(default_factory=list)
    _before: str = ""

    def open(self) -> None:
        self._blocks = re.findall(r"```sh\n(.*?)```", self.path.read_text(), re.DOTALL)
        for name in LINKED:
            (self.folder / name).symlink_to(Path(sys.prefix) if name == ".venv" else ROOT / name)

    def passed(self, *lines: str) -> None:
        """The next block, which the caller runs."""
        assert self._blocks.pop(0).splitlines() == list(lines)

    def settings(self, *lines: str) -> None:
        """The next block, which holds for all that follow."""
        self.passed(*lines)
        self._before = "\n".join(lines) + "\n"

    def run(self, beginning: str) -> str:
        """Runs the next block, which begins like that; what it prints."""
        return self._run(self._next(beginning))

    def ask(self, beginning: str) -> Any:
        """Runs the next block, a command that prints rows, with its answer as JSON."""
        words = beginning.split()
        command = " ".join(words[: 3 if words[1] == "retention" else 2])
        return json.loads(self._run(self._next(beginning).replace(command, f"{command} --output json")))

    def ask_besides(self, command: str) -> Any:
        """The answer to a command that is not on the page."""
        return json.loads(self._run(f"kafscale {command} --output json"))

    @property
    def is_read(self) -> bool:
        return not self._blocks

    def _next(self, beginning: str) -> str:
        block = self._blocks.pop(0)
        assert block.startswith(beginning), f"the page goes on with\n{block}"
        return block

    def _run(self, block: str) -> str:
        begin_s = time.monotonic()
        shell = subprocess.Popen(
            ["/bin/sh", "-ec", self._before + self._scaled(block)],
            cwd=self.folder,
            env={**os.environ, **self.env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = shell.communicate(timeout=self.timeout_s)
        except subprocess.TimeoutExpired as late:
            os.killpg(shell.pid, signal.SIGKILL)
            raise Failed(f"{block}has not ended after {self.timeout_s:.0f} s") from late
        if shell.returncode:
            raise Failed(f"{block}{out[-4000:]}{err[-4000:]}")
        log.info("%.1f s: %s", time.monotonic() - begin_s, block.strip())
        log.debug("%s%s", out, err)
        return out

    def _scaled(self, block: str) -> str:
        for share in SHARES:
            block = re.sub(rf"\b{COUNT // share}\b", str(self.count // share), block)
        return block
