"""The list of files for a new Kafka API in CONTRIBUTING.md names each file by hand that names an API of today."""

from __future__ import annotations

import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
AN_API = "list_?config_?resources"
GENERATED = ("libs/wire/*", "tools/wire_schema/*")
LISTED = ("libs", "services", "e2e/harness", "tools")


def listed() -> list[str]:
    """The paths of the list, as patterns."""
    section = (
        (ROOT / "CONTRIBUTING.md").read_text().partition("## Adding a Kafka API\n")[2].partition("\n## ")[0]
    )
    paths = re.findall(r"`([^`]+/[^`]+)`", section)
    return [re.sub(r"…|<\w+>", "*", path) for path in paths]


def test_each_file_that_names_an_api_is_in_the_list_for_a_new_one() -> None:
    """Tests of a service are "its test"."""
    command = ["git", "grep", "-liE", AN_API, "--", *LISTED]
    naming = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    by_hand = [
        path for path in naming if not any(fnmatch(path, each) for each in (*GENERATED, "services/*/tests/*"))
    ]
    assert {path.split("/")[1] for path in by_hand} >= {"access", "admin", "frontdoor"}
    assert [path for path in by_hand if not any(fnmatch(path, each) for each in listed())] == []
