"""Makes the harness beside this file importable, and keeps long searches for `-m deep`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import structlog

sys.path.insert(0, str(Path(__file__).parent))

from door_harness import Cluster

HERE = Path(__file__).parent


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster.running() as running:
        yield running


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr:
        return
    long = [item for item in items if HERE in item.path.parents and item.get_closest_marker("deep")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture
def audit() -> Iterator[list[dict[str, Any]]]:
    with structlog.testing.capture_logs() as logs:
        yield logs  # type: ignore[misc]
