"""Makes the harness beside this file importable."""

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


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster.running() as running:
        yield running


@pytest.fixture
def audit() -> Iterator[list[dict[str, Any]]]:
    with structlog.testing.capture_logs() as logs:
        yield logs  # type: ignore[misc]
