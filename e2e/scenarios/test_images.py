"""The contents of the images, as far as they can be checked without an engine; test_compose.py checks the built
images.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from kafscale.runtime.memory_tuning import MALLOC_ENV

from e2e.harness.compose import ROLES, ROOT

LAKE = {"pyarrow", "duckdb", "numpy", "kafscale-lake"}
OF_ALL = {
    "grpcio",
    "protobuf",
    "pydantic-settings",
    "redis",
    "uvloop",
    "kafscale-runtime",
    "kafscale-storage",
    "kafscale-wire",
}


@pytest.mark.parametrize("role", ROLES)
def test_an_image_leaves_out_what_its_service_does_not_need(role: str) -> None:
    command = [sys.executable, "tools/locked.py", f"kafscale-{role}"]
    unneeded = set(
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    )
    others = {f"kafscale-{other}" for other in ROLES} - {f"kafscale-{role}"}
    assert unneeded >= others | {"pytest", "typer", "confluent-kafka"}
    assert unneeded.isdisjoint(OF_ALL)
    assert unneeded & LAKE == (set() if role == "upkeep" else LAKE)
    assert ("google-re2" in unneeded) == (role not in ("coordinator", "frontdoor"))


def test_the_console_s_image_has_its_client_and_no_command() -> None:
    command = [sys.executable, "tools/locked.py", "kafscale-console"]
    unneeded = set(
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    )
    assert unneeded >= {"kafscale-cli", "kafscale-frontdoor", "typer", "rich", "pytest"}
    assert unneeded.isdisjoint({"aiohttp", "confluent-kafka", "kafscale-client", "kafscale-operations"})


def test_images_start_services_with_the_allocator_that_they_want() -> None:
    words = (ROOT / "Dockerfile").read_text().split()
    assert {f"{name}={value}" for name, value in MALLOC_ENV.items()} <= set(words)
