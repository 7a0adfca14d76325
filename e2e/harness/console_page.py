"""A console beside a cluster, and a Chromium that looks at it, by Playwright.

Law: on no screen does the browser report an error, a violation of the Content-Security-Policy, or a request to another
host. `Visitor` checks that at its end. `Visitor.inspect` also checks accessibility (axe, levels A and AA) and keeps
pictures, light and wide, and dark and narrow.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from axe_playwright_python.sync_playwright import Axe
from kafscale.runtime.ports import free_port
from kafscale.testkit.chromium import find_chromium
from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Page,
    Request,
    ViewportSize,
    expect,
    sync_playwright,
)

from e2e.harness.cluster import KAFSCALE
from e2e.harness.services import dying_with_parent

PICTURES: Final = "CONSOLE_PICTURES"
"""Names a folder for the pictures; without it they are not kept."""
WAIT_MS: Final = 60_000
START_TIMEOUT_S: Final = 60.0
WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
NARROW: Final[ViewportSize] = {"width": 390, "height": 844}
Theme = Literal["light", "dark"]
LOOKS: Final[Sequence[tuple[Theme, str, ViewportSize]]] = (
    ("light", "wide", WIDE),
    ("dark", "narrow", NARROW),
)
_AXE: Final = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}}


@contextmanager
def console_of(options: Sequence[str], env: Mapping[str, str] | None = None) -> Iterator[str]:
    """`kafscale console` with these options. The address without a slash at its end."""
    process = subprocess.Popen(
        [*dying_with_parent(), *KAFSCALE, "console", "--port", str(free_port()), *options],
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.fullmatch(r"Console: (https?://\S+)/\n", line)
        assert found is not None, line + process.stderr.read()
        yield found[1]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(START_TIMEOUT_S)
        assert process.stderr is not None
        with process.stderr as rest:
            said = rest.read()
        assert "Traceback" not in said, said


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's, of the PATH. Without one the test is skipped, or fails if CI is set."""
    binary = find_chromium()
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """One person's tab. `page` is Playwright's."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.expected: set[str] = set()
        """Parts of messages that the test provokes: the browser logs each answer of 400 or more."""
        self._wrong: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self._wrong.append(f"exception: {error}"))
        page.on("request", self._requested)

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self._wrong.append(f"{message.type}: {message.text}")

    def _requested(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "data:")):
            self._wrong.append(f"a request to {request.url}")

    def go(self, path: str) -> None:
        self.page.goto(self.url + path)
        self.page.locator("main h1").first.wait_for()

    def cells(self) -> list[list[str]]:
        """The texts of the first table's rows, once there is one."""
        self.page.locator("tbody tr").first.wait_for()
        rows = self.page.locator("table").first.locator("tbody tr").all()
        return [row.locator("td").all_inner_texts() for row in rows]

    def inspect(self, name: str) -> None:
        """The screen as it is: without findings of axe and without sideways scrolling, light and wide, then dark
        and narrow."""
        for theme, width, size in LOOKS:
            self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            self.page.set_viewport_size(size)
            self._keep(f"{name}-{theme}-{width}")
            overflow: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert overflow <= 0, f"{name}: {overflow} pixels too wide ({width})"
            findings: Any = Axe().run(self.page, options=_AXE).response["violations"]
            assert not findings, f"{name}, {theme}, {width}: " + "; ".join(
                f"{each['id']}: {each['nodes'][0]['html'][:200]} {each['nodes'][0]['failureSummary']}"
                for each in findings
            )
        self.page.set_viewport_size(WIDE)

    def picture(self, name: str, height: int) -> None:
        """For a page of docs, in both themes, as high as what it shows."""
        for theme in ("light", "dark"):
            self.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            self.page.set_viewport_size({"width": WIDE["width"], "height": height})
            self._keep(f"{name}-{theme}")

    def _keep(self, name: str) -> None:
        if folder := os.environ.get(PICTURES):
            self.page.screenshot(path=Path(folder) / f"{name}.png")

    def check(self) -> None:
        wrong = [each for each in self._wrong if not any(part in each for part in self.expected)]
        assert not wrong, wrong
