"""docs/security.md: an operator who types what is there has TLS, users and ACLs.

Laws: the commands end without an error, as they are. The user with the ACLs writes and reads; each of the others is
refused with its reason. No log and no output has a password, and only the owner can read what was written.
`make security-page` does it from a fresh clone, with the set-up and on the page's port.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kafscale.runtime.ports import free_port

from e2e.harness.page_script import follow, script_of

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "security.md"
HEADING = "## From nothing to TLS, users and ACLs"
PORT = "9094"
TIMEOUT_S = 300.0
SETUP_TIMEOUT_S = 1_500.0

pytestmark = pytest.mark.timeout(1_800)


def is_what_the_page_promises(said: str, clone: Path) -> None:
    for expected in (
        "created user 'admin' with SCRAM-SHA-256 and SCRAM-SHA-512",
        "created topic 'orders' with 3 partitions",
        "created user 'alice'",
        "1 record acknowledged",
        "\nfirst order\n",
        "TOPIC_AUTHORIZATION_FAILED",
        "it closed the connection; if it wants TLS or a login, give --command-config",
        "Authentication failed",
    ):
        assert expected in said, f"{expected!r} is not in\n{said}"
    events = set(re.findall(r'"event":"([a-z ]+)"', said))
    assert events >= {"authenticated", "authentication failed", "denied"}
    folder = clone / "secured"
    passwords = [path.read_text().strip() for path in folder.glob("*.password")]
    assert len(passwords) == 2
    logs = "".join(path.read_text() for path in (folder / "data" / "run" / "log").glob("*.log"))
    assert [word for word in passwords if word in said + logs] == []
    readable = [path.name for path in folder.rglob("*") if path.is_file() and path.stat().st_mode & 0o077]
    assert {name for name in readable if "key" in name or "properties" in name or "password" in name} == set()


def test_the_page_gives_tls_users_and_acls(tmp_path: Path) -> None:
    """Without the set-up, which this environment has, and on a free port."""
    (tmp_path / "Makefile").write_text("setup:\n")
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    said = follow(script_of(PAGE, HEADING).replace(PORT, str(free_port())), tmp_path, {}, TIMEOUT_S)
    is_what_the_page_promises(said, tmp_path)


@pytest.mark.chaos
def test_the_page_works_from_a_fresh_clone_as_it_stands(tmp_path: Path) -> None:
    clone = tmp_path / "kafscale"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True, timeout=TIMEOUT_S)
    env = {"PATH": os.pathsep.join(part for part in os.environ["PATH"].split(":") if ".venv" not in part)}
    is_what_the_page_promises(follow(script_of(PAGE, HEADING), clone, env, SETUP_TIMEOUT_S), clone)
