"""Finding a Java, and making one of Debian's package where there is none. Programs are small scripts here."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from kafscale_spark.java import TOOLS, NoJava, ensure_java

JVM = "usr/lib/jvm/java-17-openjdk-amd64"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def java(path: Path, version: str) -> Path:
    return script(path, f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-01' >&2\n")


def fake_debian(folder: Path, package: str) -> None:
    """An apt-get that has this package alone, whose tree has links into /etc as Debian's has."""
    made = f"""#!{sys.executable}
import pathlib
tree = pathlib.Path("unpacked")
home = tree / "{JVM}"
(home / "bin").mkdir(parents=True)
(home / "bin" / "java").write_text("#!/bin/sh\\necho 'openjdk version \\"17.0.9\\"' >&2\\n")
(home / "bin" / "java").chmod(0o755)
(tree / "etc" / "java-17-openjdk").mkdir(parents=True)
(tree / "etc" / "java-17-openjdk" / "jvm-amd64.cfg").write_text("-server KNOWN")
(home / "jvm.cfg").symlink_to("/etc/java-17-openjdk/jvm-amd64.cfg")
(home / "cacerts").symlink_to("/etc/ssl/certs/java/no-such-file")
"""
    known = f'[ "$2" = {package} ] || {{ echo no such package >&2; exit 100; }}\n'
    script(folder / "apt-get", f"#!/bin/sh\n{known}: > {package}_17_amd64.deb\n")
    script(folder / "dpkg-deb", made)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing in it but what the test puts there, and a folder for what is fetched."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("JAVA_HOME", "put back when the test is over")
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv(TOOLS, str(tmp_path / "tools"))
    return folder


def test_a_java_that_is_there_is_taken_without_a_word(bare: Path) -> None:
    java(bare / "java", "21.0.1")
    said: list[str] = []
    ensure_java(said.append)
    assert not said
    assert "JAVA_HOME" not in os.environ


@pytest.mark.parametrize("package", ["openjdk-17-jre-headless", "openjdk-21-jre-headless"])
def test_debians_is_fetched_once_and_whole(bare: Path, tmp_path: Path, package: str) -> None:
    fake_debian(bare, package)
    said: list[str] = []
    ensure_java(said.append)
    home = tmp_path / "tools" / "java-debian"
    assert os.environ["JAVA_HOME"] == str(home)
    assert "there is none on PATH" in said[0]
    assert (home / "jvm.cfg").read_text() == "-server KNOWN"
    assert not (home / "jvm.cfg").is_symlink()
    assert not (home / "cacerts").is_symlink()
    assert [path.name for path in home.parent.iterdir()] == ["java-debian"]
    (bare / "apt-get").unlink()
    del os.environ["JAVA_HOME"]
    said.clear()
    ensure_java(said.append)
    assert not said
    assert os.environ["JAVA_HOME"] == str(home)


def test_one_that_is_too_old_is_not_taken(bare: Path, tmp_path: Path) -> None:
    java(bare / "java", "11.0.2")
    fake_debian(bare, "openjdk-17-jre-headless")
    ensure_java(lambda _: None)
    assert os.environ["JAVA_HOME"] == str(tmp_path / "tools" / "java-debian")


def test_without_a_folder_or_a_package_it_is_said_what_to_do(
    bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoJava, match="apt-get or dpkg-deb is missing.*apt-get install openjdk-17"):
        ensure_java(lambda _: None)
    fake_debian(bare, "nothing-of-ours")
    with pytest.raises(NoJava, match="no such package"):
        ensure_java(lambda _: None)
    assert not list((tmp_path / "tools").iterdir())
    monkeypatch.delenv(TOOLS)
    with pytest.raises(NoJava, match="none on PATH: install it"):
        ensure_java(lambda _: None)


def test_a_java_that_somebody_named_is_not_replaced(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_debian(bare, "openjdk-17-jre-headless")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(NoJava, match="JAVA_HOME=/nowhere has none"):
        ensure_java(lambda _: None)
