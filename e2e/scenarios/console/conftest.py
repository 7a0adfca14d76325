"""One cluster, one console and one browser for each file; a new person for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafscale.runtime.ports import free_port
from playwright.sync_api import Browser

from e2e.harness.cluster import Cluster
from e2e.harness.console_page import Visitor, chromium


@pytest.fixture(scope="module")
def settings() -> dict[str, str]:
    """More variables of the cluster; a file may have its own."""
    return {}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, settings: dict[str, str]) -> Iterator[Cluster]:
    """With the console that `kafscale up` starts."""
    cluster = Cluster(
        data_dir=tmp_path_factory.mktemp("console") / "data",
        env={"KAFSCALE_CONSOLE": "1", "KAFSCALE_CONSOLE_PORT": str(free_port()), **settings},
    )
    cluster.start()
    yield cluster
    cluster.kill()


@pytest.fixture(scope="module")
def url(cluster: Cluster) -> str:
    """Of its console."""
    line = cluster.wait_for("Console: ").strip()
    return line.removeprefix("Console: ").removesuffix("/")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def visitor(browser: Browser, url: str) -> Iterator[Visitor]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, timezone_id="Europe/Berlin")
    visitor = Visitor(context.new_page(), url)
    yield visitor
    context.close()
    visitor.check()
