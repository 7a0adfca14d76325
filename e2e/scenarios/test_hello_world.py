"""The first programs of docs/clients.md, as they stand but for the address: each reads what it and the others wrote."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.harness.clients import go_program, java_classpath, node_command, require
from e2e.harness.cluster import Cluster

PAGE = (Path(__file__).parents[2] / "docs" / "clients.md").read_text()
PROGRAMS = dict(
    re.findall(r"```(python|javascript|java|go)\n(.*?)```", PAGE.split("## Hello world")[1], re.DOTALL)
)
TIMEOUT_S = 300.0

pytestmark = pytest.mark.timeout(900)


def python(source: Path) -> list[str]:
    return [sys.executable, str(source)]


def javascript(source: Path) -> list[str]:
    return node_command(source)


def java(source: Path) -> list[str]:
    require("a program in Java", "java", "mvn")
    return ["java", "-cp", java_classpath(), str(source)]


def go(source: Path) -> list[str]:
    require("a program in Go", "go")
    return [str(go_program(source))]


LANGUAGES: dict[str, tuple[str, Callable[[Path], list[str]], str]] = {
    "python": ("hello.py", python, "hello from Python"),
    "javascript": ("hello.mjs", javascript, "hello from Node"),
    "java": ("Hello.java", java, "hello from Java"),
    "go": ("hello.go", go, "hello from Go"),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("hello"))
    cluster.start()
    yield cluster
    cluster.stop()
    cluster.kill()


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_first_program_of_the_page_reads_what_it_wrote(
    cluster: Cluster, tmp_path: Path, language: str
) -> None:
    name, command, greeting = LANGUAGES[language]
    source = tmp_path / name
    source.write_text(PROGRAMS[language].replace("127.0.0.1:9092", cluster.bootstrap))
    done = subprocess.run(
        command(source), capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert greeting in done.stdout.splitlines()


def test_the_page_has_a_program_in_each_language() -> None:
    assert set(PROGRAMS) == set(LANGUAGES)
