"""The wheels of a release in an environment with nothing else: the command, and a KafScale with a record."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.harness.builds import build
from e2e.harness.cluster import Cluster
from tools.gen_version import version
from tools.release import CHANGELOG, notes

pytestmark = [pytest.mark.release, pytest.mark.timeout(1_200)]

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("release")
    build([sys.executable, "-m", "tools.release", "--wheels-only", "--out", str(out)], ROOT)
    return out / version()


@pytest.fixture(scope="module")
def kafscale(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The command of an environment into which pip has installed the wheels."""
    folder = tmp_path_factory.mktemp("environment")
    build([sys.executable, "-m", "venv", str(folder)], ROOT)
    pip = [f"{folder}/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    found = ["--find-links", str(wheels), "--constraint", str(wheels / "constraints.txt")]
    build([*pip, *found, f"kafscale-cli=={version()}"], folder)
    return f"{folder}/bin/kafscale"


def run(*command: str, given: str = "") -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, input=given, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_equal_sources_give_equal_wheels(wheels: Path, tmp_path: Path) -> None:
    build([sys.executable, "-m", "tools.release", "--wheels-only", "--out", str(tmp_path)], ROOT)
    assert (tmp_path / version() / "SHA256SUMS").read_text() == (wheels / "SHA256SUMS").read_text()


def test_the_command_has_the_version(kafscale: str) -> None:
    assert version() in run(kafscale, "--version")


def test_a_record_goes_in_and_out(kafscale: str, tmp_path: Path) -> None:
    cluster = Cluster(data_dir=tmp_path / "data", command=(kafscale,))
    cluster.start()
    try:
        run(kafscale, "produce", "greetings", "-b", cluster.bootstrap, given="hello\n")
        assert "hello" in run(kafscale, "consume", "greetings", "--exit", "-b", cluster.bootstrap)
        cluster.stop()
        assert "clean" in run(kafscale, "fsck", "--data-dir", str(cluster.data_dir))
    finally:
        cluster.kill()


def test_the_notes_are_the_section_of_the_version() -> None:
    newest, first = "## 0.2.0 (2026-12-01)\n\n- b\n  c\n", "## 0.1.0 (2026-11-01)\n\n- d\n"
    changelog = f"# Changelog\n\n## Unreleased\n\n- a\n\n{newest}\n{first}"
    assert notes("0.2.0", changelog) == "- b\n  c\n"
    assert notes("0.1.0", changelog) == "- d\n"
    assert (notes("0.3.0", changelog), notes("0x1.0", changelog)) == ("", "")
    assert notes("0.2.0", changelog.replace("- b\n  c\n", "")) == ""


def test_the_changelog_has_notes_of_this_version() -> None:
    assert notes(version(), CHANGELOG.read_text())
