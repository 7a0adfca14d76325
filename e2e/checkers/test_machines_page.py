"""docs/machines.md: systemd accepts the units, and the services have the settings."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "machines.md").read_text()
UNITS = dict(re.findall(r"`/etc/systemd/system/([^`]+)`:\n\n```ini\n(.*?)```", PAGE, re.DOTALL))
SETTINGS = re.findall(r"^(KAFSCALE_\w+)=", PAGE, re.MULTILINE)


def test_the_settings_exist() -> None:
    known = set(
        re.findall(r"^\| `(KAFSCALE_\w+)`", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE)
    )
    assert len(SETTINGS) > 10
    assert set(SETTINGS) - known == set()


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """With a program and a user that this machine has in place of those of an installation."""
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed")
    assert sorted(UNITS) == ["kafscale.target", "kafscale@.service"]
    for name, text in UNITS.items():
        text = text.replace("/opt/kafscale/bin/kafscale", "/bin/true").replace("User=kafscale", "User=root")
        (tmp_path / name).write_text(text)
    instances = [tmp_path / f"kafscale@{role}.service" for role in ("frontdoor", "produce")]
    done = subprocess.run(
        [verify, "verify", "--recursive-errors=no", *map(str, instances), str(tmp_path / "kafscale.target")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
